"""What a detection run has of its own: batches, arguments of the loss, decoding, pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindspore import nn

from msrun_cli.data.detection import eval_pipeline, max_boxes_of, train_pipeline
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.records import DetectionData, Split
from msrun_cli.reporting.detection import DetectionReport
from msrun_cli.transforms.chain import Chain


class Detection:
    """Boxes in images. Its twin with the same methods is `vision.classification.Classification`.

    steps: transforms of the training and of the evaluation, by name. max_boxes: per image; None = from the data.
    """

    metric_names = ("map50_95", "map50", "map75")
    objective = "map50_95"  # what `best` means, and what sweeps maximise

    def __init__(
        self,
        data: DetectionData,
        train_steps: Mapping[str, Any],
        eval_steps: Mapping[str, Any],
        *,
        image_size: int,
        batch_size: int,
        seed: int,
        loader: LoaderOptions,
        dvpp: bool = False,
        max_boxes: int | None = None,
    ) -> None:
        self.data = data
        self.train_chain, self.eval_chain = Chain(dict(train_steps)), Chain(dict(eval_steps))
        self.image_size, self.batch_size, self.seed, self.loader = image_size, batch_size, seed, loader
        self.max_boxes = max_boxes

    def train_batches(self) -> Batches:
        """Endless shuffled batches of the training split, (images, targets)."""
        return train_pipeline(
            self.data.train,
            self.train_chain,
            image_size=self.image_size,
            batch_size=self.batch_size,
            max_boxes=self.max_boxes or max_boxes_of(self.data.train, self.train_chain),
            seed=self.seed,
            loader=self.loader,
        )

    def eval_batches(self, split: Split) -> Batches:
        return eval_pipeline(
            split, self.eval_chain, image_size=self.image_size, batch_size=self.batch_size, loader=self.loader
        )

    def loss_arguments(self, network: nn.Cell, accumulate: int) -> dict[str, Any]:
        """What the loss needs besides its configuration. accumulate: batches per update."""
        return {
            "num_classes": len(self.data.class_names),
            "image_size": self.image_size,
            "anchors_pixels": network.anchors_pixels,
            "strides": network.strides,
            "batch_factor": accumulate,
        }

    def decoder(self, network: nn.Cell) -> nn.Cell:
        """What stands behind the network for the evaluator."""
        return network.decoder()

    def report(self, folder: Path) -> DetectionReport:
        return DetectionReport(self.data.class_names, folder)
