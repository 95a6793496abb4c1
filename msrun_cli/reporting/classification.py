"""What a classification run shows besides numbers: first batch, predictions, confusion matrix, table per class."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image, ImageOps
from rich.markup import escape
from rich.table import Table

from msrun_cli.common.files import atomic_path, write_text
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.evaluation.classification import ClassificationResult, class_accuracy
from msrun_cli.reporting.drawing import cjk_font_path, fit, grid, save, with_title

NOT_FINITE = "(not finite)"
_TILE = 160  # pixels of the long side
_TILES = 32
_LARGEST_TABLE = 50  # classes; above it only the worst are shown
_LARGEST_NUMBERED = 30  # classes up to which the matrix has its numbers written into it


class ClassificationReport:
    """Pictures and tables of a classification run, written into `folder`."""

    def __init__(self, class_names: Sequence[str], folder: Path) -> None:
        self.class_names = tuple(class_names)
        self.folder = folder

    def first_batch(self, batch: dict[str, np.ndarray]) -> Path:
        """The first training batch with its labels, as the network sees it."""
        tiles = []
        for image, label in zip(batch["images"][:_TILES], batch["labels"][:_TILES], strict=True):
            tile, _ = fit(_displayable(image), _TILE, _TILE)
            tiles.append(with_title(tile, self._label_text(label), 12))
        return save(grid(tiles, math.ceil(math.sqrt(len(tiles)))), self.folder / "train_batch.png")

    def predictions(self, split: LabelledImages, result: ClassificationResult) -> Path:
        """Pictures from the whole split, the wrong ones first: green what is right, red what is wrong."""
        seen = np.flatnonzero((result.predicted >= 0) | (result.probability > 0))
        wrong = result.predicted[seen] != split.labels[seen]
        half = _TILES // 2
        chosen = [*_spread(seen[wrong], half), *_spread(seen[~wrong], half)]
        tiles = [self._prediction(split, result, index) for index in chosen]
        return save(grid(tiles, 8), self.folder / f"{split.name}_predictions.png")

    def save(
        self, split: LabelledImages, data: ImageFolderData, result: ClassificationResult, folder: Path
    ) -> list[Path]:
        """predictions.csv (one row per picture) and the confusion matrix as CSV and as a picture."""
        rows = [
            [path, self.class_names[label], self._name(predicted), f"{probability:.6f}"]
            for path, label, predicted, probability in zip(
                split.paths, split.labels, result.predicted, result.probability, strict=True
            )
        ]
        table = folder / "predictions.csv"
        write_text(table, _csv([["file", "class", "predicted", "probability"], *rows]))
        matrix = folder / "confusion_matrix.csv"
        counts = [[name, *row] for name, row in zip(self.class_names, result.confusion.tolist(), strict=True)]
        write_text(matrix, _csv([["class \\ predicted", *self.class_names, NOT_FINITE], *counts]))
        return [table, matrix, self.confusion(result)]

    def confusion(self, result: ClassificationResult) -> Path:
        """The confusion matrix as a picture: rows are the true classes, colours the share of the row."""
        path = self.folder / "confusion_matrix.png"
        shares = result.confusion / np.maximum(result.confusion.sum(axis=1, keepdims=True), 1)
        broken = result.confusion[:, -1].any()
        columns = [*self.class_names, *[NOT_FINITE] * bool(broken)]
        side = min(12.0, 3.5 + 0.45 * len(self.class_names))
        figure = Figure(figsize=(side + 1, side), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        drawn = axes.imshow(shares[:, : len(columns)], cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(drawn, ax=axes, label="share of the class")
        axes.set(title=f"Confusion matrix, top-1 {result.metrics['top1']:.3f}", xlabel="predicted", ylabel="class")
        if len(self.class_names) <= _LARGEST_NUMBERED:
            self._ticks(axes, columns)
            for row, column in zip(*np.nonzero(result.confusion[:, : len(columns)]), strict=True):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(result.confusion[row, column]), ha="center", va="center", color=colour,
                          fontsize=7)  # fmt: skip
        with atomic_path(path) as temporary, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # without a CJK font, names show as boxes
            figure.savefig(temporary)
        return path

    def table(self, result: ClassificationResult) -> Table:
        """One row for all classes and one for each; of many classes the worst."""
        accuracy = class_accuracy(result.confusion)
        order = list(range(len(self.class_names)))
        title = "Classification by class"
        if len(order) > _LARGEST_TABLE:
            order = sorted(order, key=lambda index: np.nan_to_num(accuracy[index], nan=2.0))[:_LARGEST_TABLE]
            title += f" (the {_LARGEST_TABLE} worst of {len(self.class_names)})"
        table = Table(title=title)
        table.add_column("class", overflow="fold")
        table.add_column("images", justify="right")
        table.add_column("accuracy", justify="right")
        table.add_column("most often taken for", overflow="fold")
        table.add_row("all", str(result.images), f"{result.metrics['top1']:.3f}", "", end_section=True)
        for index in order:
            value = accuracy[index]
            shown = "-" if np.isnan(value) else f"{value:.3f}"
            count = str(result.confusion[index].sum())
            table.add_row(escape(self.class_names[index]), count, shown, escape(self._mistaken(result, index)))
        return table

    def _mistaken(self, result: ClassificationResult, index: int) -> str:
        others = result.confusion[index].copy()
        others[index] = 0
        most = int(others.argmax())
        return f"{self._name(most if most < len(self.class_names) else -1)} ({others[most]})" if others[most] else ""

    def _prediction(self, split: LabelledImages, result: ClassificationResult, index: int) -> Image.Image:
        with Image.open(split.paths[index]) as file:
            tile, _ = fit(np.asarray(file.convert("RGB")), _TILE, _TILE)
        right = result.predicted[index] == split.labels[index]
        tile = ImageOps.expand(tile, 3, (40, 150, 60) if right else (200, 40, 40))
        tile = with_title(tile, f"{self._name(result.predicted[index])} {result.probability[index]:.2f}", 12)
        return with_title(tile, f"is {self.class_names[split.labels[index]]}", 12)

    def _label_text(self, label: Any) -> str:
        """The class, or with class probabilities the two largest with their shares."""
        if np.ndim(label) == 0:
            return self._name(label)
        order = np.argsort(-label)[:2]
        return "  ".join(f"{self.class_names[index]} {label[index]:.2f}" for index in order if label[index] > 0)

    def _name(self, label: int) -> str:
        return self.class_names[label] if label >= 0 else NOT_FINITE

    def _ticks(self, axes: Any, columns: Sequence[str]) -> None:
        wide = any(ord(character) >= 0x2E80 for name in columns for character in name)
        font = FontProperties(fname=cjk_font_path()) if wide and cjk_font_path() else FontProperties()
        font.set_size(8)
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontproperties=font)
        axes.set_yticks(range(len(self.class_names)), self.class_names, fontproperties=font)


def _displayable(image: np.ndarray) -> np.ndarray:
    """uint8 (H, W, 3); a picture that the host normalised is stretched to 0..255."""
    if image.dtype == np.uint8:
        return image
    image = image.transpose(1, 2, 0)
    low, high = image.min(), image.max()
    return ((image - low) / max(high - low, 1e-6) * 255).astype(np.uint8)


def _spread(indices: np.ndarray, count: int) -> list[int]:
    """Up to `count` of them, evenly over the whole."""
    if len(indices) <= count:
        return indices.tolist()
    return indices[np.linspace(0, len(indices) - 1, count).astype(int)].tolist()


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
