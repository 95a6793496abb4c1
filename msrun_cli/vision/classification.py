"""What a classification run has of its own: batches, arguments of the loss, scores, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindspore import nn

from msrun_cli.data.classification import eval_pipeline, train_pipeline
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages, fingerprint
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.samples import files_of_batch
from msrun_cli.reporting.classification import ClassificationReport
from msrun_cli.transforms.chain import Chain


class Classification:
    """One class per image. Its twin with the same methods is `vision.detection.Detection`.

    train_chain, eval_chain: transforms of the training and of the evaluation
    dvpp: an Ascend decodes and resizes
    shard: (rank, number of ranks) of this process; batch_size is per rank
    """

    metric_names = ("top1", "top5", "mean_class_accuracy")
    objective = "top1"  # what `best` means, and what sweeps maximise

    def __init__(
        self,
        data: ImageFolderData,
        train_chain: Chain,
        eval_chain: Chain,
        *,
        image_size: int,
        batch_size: int,
        seed: int,
        loader: LoaderOptions,
        dvpp: bool = False,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self.data = data
        self.train_chain, self.eval_chain = train_chain, eval_chain
        self.image_size, self.batch_size, self.seed, self.loader = image_size, batch_size, seed, loader
        self.shard = shard
        self.dvpp = dvpp

    def train_batches(self, start: tuple[int, int] = (0, 0)) -> Batches:
        """Endless shuffled batches of the training split, (images, labels), from (epoch, step) on."""
        return self._train_batches(start, self.loader)

    def preview(self) -> Batches:
        """The same batches from the first one on, for a look at one: a single reader, nothing measured."""
        return self._train_batches((0, 0), LoaderOptions(workers=1, prefetch=1))

    def _train_batches(self, start: tuple[int, int], loader: LoaderOptions) -> Batches:
        return train_pipeline(
            self.data,
            self.train_chain,
            image_size=self.image_size,
            batch_size=self.batch_size,
            seed=self.seed,
            loader=loader,
            first_epoch=start[0],
            first_step=start[1],
            shard=self.shard,
            dvpp=self.dvpp,
            bad=self.data.bad_samples,
        )

    def eval_batches(self, split: LabelledImages) -> Batches:
        """One pass over a split of the data, (images, labels, index)."""
        return eval_pipeline(
            self.data,
            split,
            self.eval_chain,
            image_size=self.image_size,
            batch_size=self.batch_size,
            loader=self.loader,
            shard=self.shard,
            dvpp=self.dvpp,
            bad=self.data.bad_samples,
        )

    def facts(self) -> dict[str, Any]:
        """What a resumed training must find again."""
        train, names = self.data.train, self.data.class_names
        return {"data": fingerprint(train), "images": len(train.paths), "classes": list(names)}

    def files_of(self, step: int) -> list[str]:
        """Paths of the pictures at the places of the training's batch `step`, from 1."""
        return files_of_batch(self.data.train.records, self.seed, self.batch_size, step, self.shard)

    def loss_arguments(self, network: nn.Cell, accumulate: int) -> dict[str, Any]:
        """What the loss needs besides its configuration."""
        return {"num_classes": len(self.data.class_names)}

    def decoder(self, network: nn.Cell) -> nn.Cell:
        """What stands behind the network for the evaluator: nothing, it takes the logits."""
        return nn.Identity()

    def report(self, folder: Path) -> ClassificationReport:
        return ClassificationReport(self.data.class_names, folder)
