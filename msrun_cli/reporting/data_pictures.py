"""The pictures of `check-data --save`: contact sheet, classes, box sizes; and its report.json."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter
from PIL import Image, ImageDraw

from msrun_cli.common.errors import DataError
from msrun_cli.common.files import atomic_path, write_json
from msrun_cli.data.decode_check import decoders_heard
from msrun_cli.data.doctor.anchors import AnchorFit, matched
from msrun_cli.data.doctor.checked import CheckedSplit
from msrun_cli.data.doctor.classes import class_counts
from msrun_cli.data.doctor.examination import CheckOptions, Examination, offenders
from msrun_cli.data.doctor.findings import Example
from msrun_cli.reporting.drawing import cjk_font_path, draw_boxes, fit, font_for, grid, save, with_title

_TILE = 300  # pixels of the long side
_MOST_MARKED, _TILES, _COLUMNS = 12, 20, 4
_HALF = _TILE // 2 - 4  # of two images beside each other
_FRAME = 4
_RED, _PAPER = (200, 30, 30), (245, 245, 245)
_MOST_BARS = 40
_MOST_POINTS = 20_000


def save_report(
    examination: Examination, report: dict[str, Any], folder: str | Path, options: CheckOptions, seed: int
) -> list[Path]:
    """Write report.json and the pictures for which there is something to draw. Raises DataError where that fails."""
    folder = Path(folder)
    try:
        write_json(folder / "report.json", report)
        with decoders_heard():  # what they say of damaged files is in the report
            paths = [folder / "report.json", contact_sheet(examination, folder / "contact_sheet.png", seed)]
        if len(examination.data.class_names):
            paths.append(class_histogram(examination, folder / "classes.png"))
        if examination.anchors is not None:
            paths.append(box_scatter(examination.anchors, options, folder / "box_sizes.png"))
    except OSError as error:
        raise DataError(
            f"--save {folder}: cannot be written ({error.strerror}). Give a folder that you own."
        ) from error
    return paths


def contact_sheet(examination: Examination, path: Path, seed: int) -> Path:
    """Up to twelve cases of the checks, framed in red, and images chosen by the seed; boxes and names drawn.

    Of copies the two images stand beside each other; a box that a check is about has a red frame around it.
    """
    splits = {split.name: split for split in examination.data.splits}
    cases = offenders(examination.findings)[:_MOST_MARKED]
    tiles = [_case_tile(examination, splits[str(of_record[0].split)], check, of_record) for check, of_record in cases]
    taken = {(of_record[0].split, of_record[0].index) for _, of_record in cases}
    others = [(split, index) for split in splits.values() for index in range(len(split.records))]
    rng = np.random.default_rng(seed)
    chosen = (others[place] for place in rng.permutation(len(others))[: _TILES + len(taken)])
    for split, index in chosen:
        if (split.name, index) not in taken and len(tiles) < _TILES:
            tile, _ = _picture(examination, split, index, np.flatnonzero(split.owners == index))
            tiles.append(_finished(tile, f"{split.name}: {_name(examination, split, index)}", marked=False))
    return save(grid(tiles, _COLUMNS), path)


def class_histogram(examination: Examination, path: Path) -> Path:
    """Boxes (images in classification) of each class in train and val, the commonest first."""
    data = examination.data
    counts = np.stack([class_counts(split, len(data.class_names)) for split in (data.train, data.val)])
    if data.same:
        counts = counts[:1]
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    shown = order[:_MOST_BARS]
    what = "boxes" if data.task == "detection" else "images"
    more = f", {len(order) - len(shown)} rarer classes left out" if len(order) > len(shown) else ""

    def draw(axes: Axes) -> None:
        places = np.arange(len(shown))
        thickness = 0.8 / len(counts)
        for row, name in enumerate(("train", "val")[: len(counts)]):
            bars = axes.barh(
                places + (row - (len(counts) - 1) / 2) * thickness, counts[row, shown], thickness, label=name
            )
            axes.bar_label(bars, padding=3, fontsize=7)
        axes.set_yticks(places, [_short(data.class_names[index]) for index in shown])
        for label in axes.get_yticklabels():
            label.set_fontproperties(_font(label.get_text()))
        axes.invert_yaxis()
        axes.set(title=f"{what.capitalize()} per class{more}", xlabel=what)
        if counts.max() > 100 * max(1, counts[:, shown].min()):
            axes.set_xscale("symlog", linthresh=1)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.margins(x=0.1, y=0.02)
        axes.legend(frameon=False, loc="lower right")

    return _figure(draw, path, height=1.4 + 0.19 * len(shown) * len(counts))


def box_scatter(fit_: AnchorFit, options: CheckOptions, path: Path) -> Path:
    """Width and height of the training boxes at the size of the network input, with the anchors."""
    rng = np.random.default_rng(0)
    sizes = fit_.sizes[rng.permutation(len(fit_.sizes))[:_MOST_POINTS]]
    good = matched(sizes, fit_.anchors, options.anchor_threshold)
    alpha = float(np.clip(40 / math.sqrt(max(1, len(sizes))), 0.12, 0.7))

    def draw(axes: Axes) -> None:
        axes.scatter(
            *sizes[good].T,
            s=9,
            alpha=alpha,
            linewidths=0,
            color="C0",
            label=f"boxes with an anchor ({fit_.recall:.1%})",
        )
        if not good.all():
            axes.scatter(*sizes[~good].T, s=14, alpha=0.8, linewidths=0, color="C3", label="boxes without")
        axes.scatter(*fit_.anchors.T, s=70, marker="+", linewidths=2, color="black", label="anchors of the model")
        if fit_.proposal is not None:
            label = f"proposed anchors ({fit_.proposed_recall:.1%})"
            axes.scatter(
                *fit_.proposal.T, s=50, marker="^", facecolors="none", edgecolors="C2", linewidths=1.8, label=label
            )
        axes.set(xscale="log", yscale="log", xlabel="width in pixels", ylabel="height in pixels")
        axes.set_title(f"Training boxes at image_size={options.image_size} ({len(fit_.sizes)})")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_aspect("equal", adjustable="datalim")
        axes.legend(loc="upper left", fontsize=8, markerscale=0.9)

    return _figure(draw, path, width=7, height=6.5)


def _case_tile(examination: Examination, split: CheckedSplit, check: str, cases: Sequence[Example]) -> Image.Image:
    """Of a check of boxes only the boxes that it is about, each with a red frame around it."""
    index, twin = int(cases[0].index or 0), cases[0].twin
    name = Path(split.records[index].image_path).name
    boxes = np.array([case.box_xyxy for case in cases if case.box_xyxy is not None], np.float64).reshape(-1, 4)
    own = np.flatnonzero(split.owners == index)
    about = [box for box in own if (boxes == split.boxes_xyxy[box]).all(axis=1).any()] if len(boxes) else own
    tile, factor = _picture(examination, split, index, about if twin is None else None)
    if twin is not None:
        name = f"{name} | {Path(twin).name}"
        other = _read_anyhow(twin)
        tile = tile if other is None else _side_by_side(tile, fit(other, _HALF, _HALF)[0])
    pen = ImageDraw.Draw(tile)
    for x1, y1, x2, y2 in boxes * factor:
        ring = np.clip((x1 - 5, y1 - 5, x2 + 5, y2 + 5), 0, (tile.width - 1, tile.height - 1) * 2)
        pen.rectangle(tuple(ring.tolist()), outline=_RED, width=2)
    return _finished(tile, f"{check.upper()}: {name}", marked=True)


def _picture(
    examination: Examination, split: CheckedSplit, index: int, boxes: Sequence[int] | np.ndarray | None
) -> tuple[Image.Image, float]:
    """The image with some of its boxes, and the factor to its pixels; or words on why it cannot be shown.

    boxes: places in `split.boxes_xyxy`; None = none, and half as wide
    """
    record = split.records[index]
    image = _read_anyhow(record.image_path)
    if image is None:
        fault = examination.looks[split.name][index].fault
        return _placeholder(fault.reason.removeprefix(record.image_path) if fault else "cannot be read"), 1.0
    side = _HALF if boxes is None else _TILE
    tile, factor = fit(image, side, side)
    fits = image.shape[:2] == (record.height, record.width)
    if boxes is not None and len(boxes) and examination.data.task == "detection" and fits:
        labels = split.classes[boxes]
        names = [_short(examination.data.class_names[label]) for label in labels]
        draw_boxes(tile, split.boxes_xyxy[boxes] * factor, labels, names)
    return tile, factor


def _side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    canvas = Image.new("RGB", (_TILE, max(left.height, right.height)), _PAPER)
    canvas.paste(left, (0, 0))
    canvas.paste(right, (_TILE - right.width, 0))
    return canvas


def _finished(tile: Image.Image, title: str, *, marked: bool) -> Image.Image:
    """In the middle of a square as wide as all tiles, so that titles have room, with a red frame if `marked`."""
    side = _TILE + 2 * _FRAME
    canvas = Image.new("RGB", (side, tile.height + 2 * _FRAME), _PAPER)
    place = (side - tile.width) // 2
    if marked:
        frame = (place - _FRAME, 0, place + tile.width + _FRAME - 1, tile.height + 2 * _FRAME - 1)
        ImageDraw.Draw(canvas).rectangle(frame, fill=_RED)
    canvas.paste(tile, (place, _FRAME))
    return with_title(canvas, title)


def _name(examination: Examination, split: CheckedSplit, index: int) -> str:
    name = Path(split.records[index].image_path).name
    if examination.data.task == "classification":
        return f"{examination.data.class_names[split.classes[index]]} · {name}"
    return name


def _read_anyhow(path: str) -> np.ndarray | None:
    """As much of the picture as can be decoded: a truncated file shows where it ends."""
    try:
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    except (OSError, ValueError, cv2.error):
        return None
    return None if image is None else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def _placeholder(words: str) -> Image.Image:
    tile = Image.new("RGB", (_TILE, _TILE * 3 // 4), (205, 205, 205))
    text = "\n".join(textwrap.wrap(words, 36)[:8])
    pen = ImageDraw.Draw(tile)
    middle = tile.width / 2, tile.height / 2
    pen.multiline_text(middle, text, fill=(60, 60, 60), font=font_for(text, 13), anchor="mm", align="center", spacing=6)
    return tile


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


def _font(text: str) -> FontProperties:
    """As in the drawings: a font with Chinese characters where the text has some and the system has one."""
    chosen = cjk_font_path() if not text.isascii() else None
    return FontProperties(fname=chosen, size=8) if chosen else FontProperties(size=8)


def _figure(draw: Callable[[Axes], None], path: Path, width: float = 8, height: float = 4.5) -> Path:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    with atomic_path(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # no Chinese font on this system
        figure.savefig(temporary)
    return path
