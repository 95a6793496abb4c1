"""What a detection run shows besides numbers: first batch, predictions, table per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.data.records import DetectionData, Split
from msrun_cli.evaluation.coco_map import save_detections
from msrun_cli.reporting.plots import draw_batch, draw_predictions
from msrun_cli.reporting.tables import per_class_table


class DetectionReport:
    """Pictures of a detection run, written into `folder`."""

    def __init__(self, class_names: tuple[str, ...], folder: Path) -> None:
        self.class_names = class_names
        self.folder = folder

    def first_batch(self, batch: dict[str, np.ndarray]) -> Path:
        """The first training batch with its boxes, as the network sees it."""
        path = self.folder / "train_batch.png"
        draw_batch(batch["images"], batch["targets"], self.class_names, path)
        return path

    def predictions(self, split: Split, result: Any) -> Path:
        """Truth and predictions side by side."""
        path = self.folder / f"{split.name}_predictions.png"
        draw_predictions(split.records, result.detections, self.class_names, path)
        return path

    def save(self, split: Split, data: DetectionData, result: Any, folder: Path) -> list[Path]:
        """detections.json: all detections as a COCO result file, with the ids of the annotation file."""
        path = folder / "detections.json"
        save_detections(path, result.detections, split, data)
        return [path]

    def table(self, result: Any) -> Any:
        return per_class_table(result)
