"""What `check-data` shows: progress, tables, JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from msrun_cli.common.status import SKIP, worst
from msrun_cli.data.doctor.examination import Examination, Stage
from msrun_cli.data.doctor.findings import Finding
from msrun_cli.reporting.statuses import status_cell

REPORT_VERSION = 1
_SHOWN = 5
_MOST_CLASSES = 30  # rows of the table of classes


@contextmanager
def progress_display() -> Iterator[Stage]:
    """A bar for each stage on stderr, nothing where that is no terminal."""
    # A descriptor of its own: the one of stderr is lent to image decoders for a while.
    console = Console(file=os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def stage(description: str, total: int) -> Any:
            task = progress.add_task(description, total=total)
            return lambda done: progress.advance(task, done)

        yield stage


def report_json(examination: Examination, about: dict[str, Any]) -> dict[str, Any]:
    """The document of --json and report.json (docs/check-data.md). about: what was checked."""
    fit = examination.anchors
    anchors = None
    if fit is not None:
        anchors = {
            "model": fit.anchors.tolist(),
            "best_possible_recall": fit.recall,
            "proposal": None if fit.proposal is None else fit.proposal.tolist(),
            "proposal_recall": fit.proposed_recall,
        }
    return {
        "version": REPORT_VERSION,
        "status": worst(item.status for item in examination.findings),
        **about,
        "task": examination.data.task,
        "checks": [item.as_json() for item in examination.findings],
        "statistics": examination.statistics,
        "anchors": anchors,
        "notes": list(examination.data.notes),
    }


def report_tables(examination: Examination) -> Group:
    """Notes of the reader, statistics, checks."""
    data = examination.data
    parts: list[Any] = [Text("\n".join(data.notes))] if data.notes else []
    if examination.statistics["splits"]:
        parts.append(_statistics_table(examination.statistics))
    if examination.statistics["classes"]:
        splits = ("train",) if data.same else ("train", "val")
        parts.append(_class_table(examination.statistics["classes"], splits))
    below = common_folder([record.image_path for split in data.splits for record in split.records])
    return Group(*parts, findings_table(examination.findings, below))


def common_folder(paths: Sequence[str]) -> str:
    """The folder that all paths share, "" when that is the root or there is none."""
    try:
        folder = os.path.commonpath({os.path.dirname(path) for path in paths})
    except ValueError:  # no paths, or absolute and relative ones
        return ""
    return "" if folder == os.sep else folder


def findings_table(findings: Sequence[Finding], below: str = "") -> Table:
    """One row for each check that was made; under it up to five cases and what to do.

    below: a folder that is left out at the beginning of paths
    """
    table = Table(title=f"Checks (files are below {escape(below)})" if below else "Checks")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    for item in findings:
        if item.status != SKIP:
            table.add_row(item.check, status_cell(item.status), str(item.count), _words(item, below))
    left_out = [item.check for item in findings if item.status == SKIP]
    if left_out:
        table.caption = f"not checked: {', '.join(left_out)}"
    return table


def _words(item: Finding, below: str) -> Text:
    # Text and not markup: a path may have square brackets.
    words = Text(item.summary)
    for example in item.examples[:_SHOWN]:
        text = example.text.replace(f"{below}{os.sep}", "") if below else example.text
        words.append(f"\n  {text}", style="dim")
    if item.count > _SHOWN and len(item.examples) > _SHOWN:
        words.append(f"\n  and {item.count - _SHOWN} more", style="dim")
    if item.advice:
        words.append(f"\n-> {item.advice}")
    return words


def _statistics_table(statistics: dict[str, Any]) -> Table:
    table = Table(title="Dataset")
    table.add_column("")
    rows: dict[str, list[str]] = {}
    for name, split in statistics["splits"].items():
        table.add_column(name, overflow="fold")
        for label, value in _described(split):
            rows.setdefault(label, []).append(value)
    for label, values in rows.items():
        table.add_row(label, *values)
    return table


def _described(split: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("images", str(split["images"]))]
    if "boxes" in split:
        spread, sizes = split["boxes_per_image"], split["box_sizes"]
        lines += [
            ("boxes", f"{split['boxes']}" + (f" and {split['crowds']} crowds" if split["crowds"] else "")),
            ("images without boxes", str(split["images_without_boxes"])),
            ("boxes per image", f"min {spread['min']}, median {spread['median']:g}, max {spread['max']}"),
            ("box sizes (COCO)", ", ".join(f"{number} {name}" for name, number in sizes.items())),
        ]
    sizes = split["image_sizes"]
    common = ", ".join(f"{item['width']}x{item['height']} ({item['images']})" for item in sizes["commonest"][:3])
    more = f" and {sizes['different'] - 3} other sizes" if sizes["different"] > 3 else ""
    formats = ", ".join(f"{number} {name}" for name, number in split["formats"].items())
    return [*lines, ("image sizes", common + more or "-"), ("formats", formats or "-")]


def _class_table(classes: Sequence[dict[str, Any]], splits: Sequence[str]) -> Table:
    table = Table(title="Classes")
    table.add_column("class", overflow="fold")
    for split in splits:
        table.add_column(split, justify="right")
    common = sorted(classes, key=lambda item: -item["train"] - item["val"])
    for item in common[:_MOST_CLASSES]:
        table.add_row(escape(item["name"]), *(str(item[split]) for split in splits))
    if len(classes) > _MOST_CLASSES:
        table.caption = f"and {len(classes) - _MOST_CLASSES} rarer ones (--json has all)"
    return table
