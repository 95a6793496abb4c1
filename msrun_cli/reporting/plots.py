"""The pictures of a run folder: curves of metrics.csv, a training batch, predictions beside the truth."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from msrun_cli.common.errors import DataError
from msrun_cli.common.files import atomic_path
from msrun_cli.data.images import read_rgb
from msrun_cli.data.records import Record
from msrun_cli.evaluation.detections import Detections
from msrun_cli.reporting.drawing import draw_boxes, fit, grid, save, with_title

_PLACE_COLUMNS = {"kind", "epoch", "step"}
_TRAINING_COLUMNS = {"loss", "lr", "loss_scale", "overflows", "images_per_s", "data_wait", "grad_norm"}
_SMALLEST_TILE, _LARGEST_TILE = 320, 640  # pixels of the long side
_LARGEST_BATCH_TILE = 480  # there are up to 16 of them
_SMOOTH_FROM = 40  # points; shorter curves are drawn as they are

Row = dict[str, float]


def plot_curves(metrics_csv: str | Path, out_dir: str | Path) -> list[Path]:
    """Draw loss.png, metrics.png and learning_rate.png into `out_dir`, those for which there are numbers.

    The columns between `loss` and `lr` are terms of the loss; columns that the trainer does not use for something else
    are metrics. Where a resumed run measured a step again, the later row counts.
    """
    columns, steps, epochs = _read(Path(metrics_csv))
    terms = columns[columns.index("loss") + 1 : columns.index("lr")] if {"loss", "lr"} <= set(columns) else []
    metrics = [name for name in columns if name not in {*_PLACE_COLUMNS, *_TRAINING_COLUMNS, *terms}]
    by_step = steps if any("loss" in row for row in steps) else epochs
    x_name = "step" if any("step" in row for row in by_step) else "epoch"
    drawings = {
        "loss.png": lambda axes: _curves(axes, by_step, x_name, ["loss", *terms], "Training loss", smooth=True),
        "metrics.png": lambda axes: _curves(axes, epochs, "epoch", metrics, "Evaluation metrics"),
        "learning_rate.png": lambda axes: _curves(axes, by_step, x_name, ["lr"], "Learning rate"),
    }
    return [path for name, draw in drawings.items() if (path := _figure(draw, Path(out_dir) / name))]


def draw_batch(images: np.ndarray, targets: np.ndarray, class_names: Sequence[str], path: str | Path) -> Path:
    """A grid of the first 16 images (B, S, S, 3 uint8 RGB) with their targets.

    targets: (B, M, 5) class, cx, cy, w, h normalised to 0..1; class -1 is padding.
    """
    tiles = []
    for image, target in zip(images[:16], targets[:16], strict=True):
        tile, _ = fit(image, _SMALLEST_TILE, _LARGEST_BATCH_TILE)
        target = target[target[:, 0] >= 0]
        labels = target[:, 0].astype(int)
        sides = np.array([tile.width, tile.height], np.float32)
        centres, halves = target[:, 1:3] * sides, target[:, 3:5] * sides / 2
        boxes_xyxy = np.concatenate((centres - halves, centres + halves), axis=1)
        draw_boxes(tile, boxes_xyxy, labels, [_name(class_names, label) for label in labels])
        tiles.append(tile)
    return save(grid(tiles, math.ceil(math.sqrt(max(1, len(tiles))))), path)


def draw_predictions(
    records: Sequence[Record],
    detections: Sequence[Detections | None],
    class_names: Sequence[str],
    path: str | Path,
    minimum_score: float = 0.25,
    limit: int = 8,
) -> Path:
    """The first `limit` images that were evaluated, each twice: truth left, detections with their scores right.

    records, detections: in the same order; images whose detections are None are left out.
    """
    tiles: list[Image.Image] = []
    for position, detected in enumerate(detections):
        if len(tiles) == limit:
            break
        if detected is None:
            continue
        record, found = records[position], detected.above(minimum_score)
        try:
            image = read_rgb(record.image_path, record.width, record.height)
        except DataError:
            continue  # it vanished after it was evaluated, which must not end a finished run
        name = Path(record.image_path).name
        truth_texts = [
            _name(class_names, label) + (" (crowd)" if crowd else "")
            for label, crowd in zip(record.labels, record.iscrowd, strict=True)
        ]
        found_texts = [
            f"{_name(class_names, label)} {score:.2f}" for label, score in zip(found.labels, found.scores, strict=True)
        ]
        left = _tile(image, record.boxes_xyxy, record.labels, truth_texts)
        right = _tile(image, found.boxes_xyxy, found.labels, found_texts)
        left = with_title(left, f"{name}: truth ({len(truth_texts)})")
        right = with_title(right, f"detected, score ≥ {minimum_score:g} ({len(found)})")
        tiles.append(grid([left, right], columns=2))
    return save(grid(tiles, columns=1 if len(tiles) <= 2 else 2), path)


def _tile(image: np.ndarray, boxes_xyxy: np.ndarray, labels: np.ndarray, texts: Sequence[str]) -> Image.Image:
    tile, factor = fit(image, _SMALLEST_TILE, _LARGEST_TILE)
    draw_boxes(tile, boxes_xyxy * factor, labels, texts)
    return tile


def _name(class_names: Sequence[str], label: int) -> str:
    return class_names[label] if 0 <= label < len(class_names) else f"class {label}"


def _read(path: Path) -> tuple[list[str], list[Row], list[Row]]:
    """Column names, rows of steps and rows of epochs; empty cells and text are left out of a row."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        columns = [name for name in reader.fieldnames or [] if name]
    steps: dict[float, Row] = {}
    epochs: dict[float, Row] = {}
    for cells in rows:
        row = {name: value for name in columns if (value := _number(cells.get(name))) is not None}
        if cells.get("kind") == "step" and "step" in row:
            steps[row["step"]] = row
        elif cells.get("kind") == "epoch" and "epoch" in row:
            epochs[row["epoch"]] = row
    return columns, [steps[key] for key in sorted(steps)], [epochs[key] for key in sorted(epochs)]


def _number(cell: str | None) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None


def _figure(draw: Callable[[Axes], bool], path: Path) -> Path | None:
    """Save what `draw` draws; it says whether there was anything. pyplot is not used, so no state is left behind."""
    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    if not draw(figure.add_subplot()):
        return None
    with atomic_path(path) as temporary:
        figure.savefig(temporary)
    return path


def _curves(
    axes: Axes, rows: Sequence[Row], x_name: str, names: Sequence[str], title: str, smooth: bool = False
) -> bool:
    """Draw a curve for each name that has numbers; False when there are none at all."""
    for position, name in enumerate(names):
        points = [(row[x_name], row[name]) for row in rows if name in row and x_name in row]
        if points:
            x, y = np.array(points).T
            _curve(axes, x, y, name, f"C{position}", smooth and len(x) >= _SMOOTH_FROM)
    if not axes.lines:
        return False
    axes.set(title=title, xlabel=x_name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return True


def _curve(axes: Axes, x: np.ndarray, y: np.ndarray, name: str, colour: str, smooth: bool) -> None:
    if smooth:
        axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(x, _running_mean(y, len(y) // 20), color=colour, label=name, linewidth=1.6)
    else:
        marker = "o" if len(x) < _SMOOTH_FROM else ""
        axes.plot(x, y, color=colour, label=name, linewidth=1.6, marker=marker, markersize=3.5)


def _running_mean(values: np.ndarray, half_width: int) -> np.ndarray:
    """Mean of up to 2 * half_width + 1 neighbours; numbers that are not finite are left out."""
    windows = (values[max(0, i - half_width) : i + half_width + 1] for i in range(len(values)))
    means = [window[np.isfinite(window)] for window in windows]
    return np.array([window.mean() if window.size else np.nan for window in means])
