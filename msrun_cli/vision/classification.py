"""What a classification run has of its own: batches, arguments of the loss, scores, pictures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindspore import nn

from msrun_cli.data.classification import eval_pipeline, train_pipeline
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.data.operators import dvpp_is_there
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.reporting.classification import ClassificationReport

log = logging.getLogger("msrun")


class Classification:
    """One class per image. Its twin with the same methods is `vision.detection.Detection`.

    steps: transforms of the training and of the evaluation, by name. dvpp: an Ascend decodes and resizes.
    """

    metric_names = ("top1", "top5", "mean_class_accuracy")
    objective = "top1"  # what `best` means, and what sweeps maximise

    def __init__(
        self,
        data: ImageFolderData,
        train_steps: Mapping[str, Any],
        eval_steps: Mapping[str, Any],
        *,
        image_size: int,
        batch_size: int,
        seed: int,
        loader: LoaderOptions,
        dvpp: bool = False,
    ) -> None:
        self.data = data
        self.train_steps, self.eval_steps = train_steps, eval_steps
        self.image_size, self.batch_size, self.seed, self.loader = image_size, batch_size, seed, loader
        self.dvpp = dvpp and dvpp_is_there()
        if dvpp and not self.dvpp:
            log.warning("device.dvpp=true: this MindSpore has no DVPP operators; the CPU decodes and resizes.")

    def train_batches(self) -> Batches:
        """Endless shuffled batches of the training split, (images, labels)."""
        return train_pipeline(
            self.data,
            self.train_steps,
            image_size=self.image_size,
            batch_size=self.batch_size,
            seed=self.seed,
            loader=self.loader,
            dvpp=self.dvpp,
        )

    def eval_batches(self, split: LabelledImages) -> Batches:
        return eval_pipeline(
            self.data,
            split,
            self.eval_steps,
            image_size=self.image_size,
            batch_size=self.batch_size,
            loader=self.loader,
            dvpp=self.dvpp,
        )

    def loss_arguments(self, network: nn.Cell, accumulate: int) -> dict[str, Any]:
        """What the loss needs besides its configuration."""
        return {"num_classes": len(self.data.class_names)}

    def decoder(self, network: nn.Cell) -> nn.Cell:
        """What stands behind the network for the evaluator: nothing, it takes the logits."""
        return nn.Identity()

    def report(self, folder: Path) -> ClassificationReport:
        return ClassificationReport(self.data.class_names, folder)
