"""What a detection run has of its own: batches, arguments of the loss, decoding, pictures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from mindspore import nn

from msrun_cli.data.detection import eval_pipeline, max_boxes_of, train_pipeline
from msrun_cli.data.pictures import AS_IN_THE_FILES, Reading
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.records import DetectionData, Split, fingerprint
from msrun_cli.data.samples import files_of_batch
from msrun_cli.reporting.detection import DetectionReport
from msrun_cli.transforms.chain import Chain

log = logging.getLogger("msrun")


class Detection:
    """Boxes in images. Its twin with the same methods is `vision.classification.Classification`.

    train_chain, eval_chain: transforms of the training and of the evaluation
    reading: how often and how large training pictures are decoded
    max_boxes: per image; None = from the data
    shard: (rank, number of ranks) of this process; batch_size is per rank
    """

    metric_names = ("map50_95", "map50", "map75")
    objective = "map50_95"  # what `best` means, and what sweeps maximise

    def __init__(
        self,
        data: DetectionData,
        train_chain: Chain,
        eval_chain: Chain,
        *,
        image_size: int,
        batch_size: int,
        seed: int,
        loader: LoaderOptions,
        dvpp: bool = False,
        shard: tuple[int, int] = (0, 1),
        reading: Reading = AS_IN_THE_FILES,
        max_boxes: int | None = None,
    ) -> None:
        self.data = data
        self.train_chain, self.eval_chain = train_chain, eval_chain
        self.image_size, self.batch_size, self.seed, self.loader = image_size, batch_size, seed, loader
        self.shard = shard
        self.reading, self.max_boxes = reading, max_boxes
        if dvpp:
            log.warning("device.dvpp=true: pictures for detection are decoded and transformed on the CPU all the same.")

    def train_batches(self, start: tuple[int, int] = (0, 0)) -> Batches:
        """Endless shuffled batches of the training split, (images, targets), from (epoch, step) on."""
        return self._train_batches(start, self.reading, self.loader)

    def preview(self) -> Batches:
        """The same batches from the first one on, for a look at one: a single reader, nothing measured or kept."""
        reading = Reading(partner_window=self.reading.partner_window, reduced=self.reading.reduced)
        return self._train_batches((0, 0), reading, LoaderOptions(workers=1, prefetch=1))

    def _train_batches(self, start: tuple[int, int], reading: Reading, loader: LoaderOptions) -> Batches:
        return train_pipeline(
            self.data.train,
            self.train_chain,
            image_size=self.image_size,
            batch_size=self.batch_size,
            max_boxes=self.max_boxes or max_boxes_of(self.data.train, self.train_chain),
            seed=self.seed,
            loader=loader,
            reading=reading,
            first_epoch=start[0],
            first_step=start[1],
            shard=self.shard,
            bad=self.data.bad_samples,
        )

    def eval_batches(self, split: Split) -> Batches:
        """One pass over a split of the data, (images, index, geometry)."""
        return eval_pipeline(
            split,
            self.eval_chain,
            image_size=self.image_size,
            batch_size=self.batch_size,
            loader=self.loader,
            shard=self.shard,
            bad=self.data.bad_samples,
        )

    def facts(self) -> dict[str, Any]:
        """What a resumed training must find again."""
        train, names = self.data.train, self.data.class_names
        return {"data": fingerprint(train), "images": len(train.records), "classes": list(names)}

    def files_of(self, step: int) -> list[str]:
        """Paths of the pictures at the places of the training's batch `step`, from 1."""
        return files_of_batch(self.data.train.records, self.seed, self.batch_size, step, self.shard)

    def loss_arguments(self, network: nn.Cell, accumulate: int) -> dict[str, Any]:
        """What the loss needs besides its configuration. accumulate: batches per update."""
        return {
            "num_classes": len(self.data.class_names),
            "image_size": self.image_size,
            "anchors_pixels": network.anchors_pixels,
            "strides": network.strides,
            "batch_factor": accumulate * self.shard[1],
            "ranks": self.shard[1],
        }

    def decoder(self, network: nn.Cell) -> nn.Cell:
        """What stands behind the network for the evaluator."""
        return network.decoder()

    def report(self, folder: Path) -> DetectionReport:
        return DetectionReport(self.data.class_names, folder)
