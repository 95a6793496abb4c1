"""The pictures of a profile, from its document: stacked steps, operators, wait for data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from msrun_cli.common.files import atomic_path
from msrun_cli.reporting.profile_tables import PART_WORDS, described

COLOURS = {
    "wait": "#d1495b",
    "host": "#edae49",
    "forward": "#2e6f95",
    "backward": "#66a182",
    "update": "#8d6a9f",
    "step": "#2e6f95",
    "logging": "#9a9a9a",
    "-": "#6b7a8f",  # operators whose phase is not known
}
_TYPES = 15  # bars


def draw_pictures(document: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Write steps.png, operators.png, data_wait.png and stages.png, those for which there are numbers; by name."""
    drawings: dict[str, tuple[Callable[[Axes, dict[str, Any]], None], float]] = {}
    if document["step"] is not None:
        drawings["steps"] = (_steps, 4.5)
        if document["data"] is not None:
            drawings["data_wait"] = (_data_wait, 4.0)
    if document["operators"] is not None:
        drawings["operators"] = (_operators, 0.32 * min(_TYPES, len(document["operators"]["by_type"])) + 1.4)
    if document["data"] is not None:
        drawings["stages"] = (_stages, 0.42 * len(document["data"]["stages"]) + 1.4)
    return {name: _save(draw, document, height, folder / f"{name}.png") for name, (draw, height) in drawings.items()}


def _save(draw: Callable[[Axes, dict[str, Any]], None], document: dict[str, Any], height: float, path: Path) -> Path:
    figure = Figure(figsize=(9, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes, document)
    axes.spines[["top", "right"]].set_visible(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary)
    return path


def _steps(axes: Axes, document: dict[str, Any]) -> None:
    """One bar per step, its parts on top of one another."""
    timeline = document["step"]["timeline_ms"]
    at = np.arange(1, len(timeline) + 1)
    bottom = np.zeros(len(timeline))
    for name in document["step"]["breakdown_ms"]:
        values = np.array([parts[name] for parts in timeline])
        axes.bar(at, values, 0.85, bottom=bottom, color=COLOURS[name], label=_with_mean(document, name))
        bottom += values
    axes.axhline(document["step"]["step_ms"]["median"], color="black", linewidth=0.8, linestyle=":")
    settings = document["settings"]
    axes.set(
        title=f"Training steps: {described(settings)}, {document['images_per_s']:.1f} images/s",
        xlabel="timed step (dotted: median)",
        ylabel="ms",
        xlim=(0.3, len(timeline) + 0.7),
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def _with_mean(document: dict[str, Any], name: str) -> str:
    value, whole = document["step"]["breakdown_ms"][name], document["step"]["mean_ms"] or 1.0
    return f"{PART_WORDS[name]}: {value:.1f} ms, {value / whole:.0%}"


def _data_wait(axes: Axes, document: dict[str, Any]) -> None:
    """When the training waits for batches: its steps one after the other on a line of time, the waits marked."""
    timeline = document["step"]["timeline_ms"]
    totals = np.array([sum(parts.values()) for parts in timeline])
    waits = np.array([parts["wait"] for parts in timeline])
    begins = np.concatenate([[0.0], np.cumsum(totals)[:-1]]) / 1000
    axes.bar(begins, waits, np.maximum(totals / 1000, 1e-6), align="edge", color=COLOURS["wait"], alpha=0.35)
    axes.bar(begins, waits, np.maximum(waits / 1000, 1e-6), align="edge", color=COLOURS["wait"])
    axes.plot([0, begins[-1] + totals[-1] / 1000], [waits.mean()] * 2, color="black", linewidth=0.8, linestyle=":")
    share = waits.sum() / totals.sum() if totals.sum() else 0.0
    axes.set(
        title=f"Wait for data: {waits.mean():.1f} ms a step on average, {share:.0%} of the time",
        xlabel="seconds since the first timed step (each step as wide as it takes; dark: its wait)",
        ylabel="wait, ms (dotted: mean)",
        xlim=(0, begins[-1] + totals[-1] / 1000),
        ylim=(0, max(waits.max() * 1.15, 0.05 * np.median(totals))),
    )


def _operators(axes: Axes, document: dict[str, Any]) -> None:
    """A bar per type, the longest on top, coloured by the phase in which it takes longest."""
    operators = document["operators"]
    rows = operators["by_type"][:_TYPES][::-1]
    axes.barh([row["name"] for row in rows], [row["ms"] for row in rows], color=[COLOURS[row["phase"]] for row in rows])
    longest = max(row["ms"] for row in rows) or 1.0
    for place, row in enumerate(rows):
        figures = f" {row['ms']:.1f} ms, {row['share']:.0%}, {row['count']:.0f} x"
        axes.text(row["ms"], place, figures, va="center", fontsize=8)
    phases = {row["phase"] for row in rows}
    words = {"forward": "forward", "backward": "backward", "update": "update", "-": "not known"}
    shown = [Patch(color=COLOURS[name], label=text) for name, text in words.items() if name in phases]
    axes.legend(handles=shown, frameon=False, loc="lower right")
    axes.set(title=f"Operators by type, per step ({operators['operators_ms']:.0f} ms in all)", xlabel="ms per step")
    axes.set_xlim(0, longest * 1.3)


def _stages(axes: Axes, document: dict[str, Any]) -> None:
    """A bar per stage of the input pipeline, in the order of the work."""
    data = document["data"]
    rows = data["stages"][::-1]
    colours = [COLOURS["wait"] if row["name"] == data["slowest"] else COLOURS["forward"] for row in rows]
    axes.barh([row["name"] for row in rows], [row["ms"] for row in rows], color=colours)
    longest = max(row["ms"] for row in rows) or 1.0
    for place, row in enumerate(rows):
        speed = "" if row["images_per_s"] is None else f", {row['images_per_s']:.0f} images/s"
        axes.text(row["ms"], place, f" {row['ms']:.2f} ms{speed}", va="center", fontsize=8)
    axes.set(
        title=f"Input pipeline, one thread ({data['images_per_s']:.0f} images/s with {data['workers']} workers)",
        xlabel="ms of processor time per image",
    )
    axes.set_xlim(0, longest * 1.35)
