"""Tables for the terminal; rich prints them as plain text where there is no terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from msrun_cli.evaluation.coco_map import ClassRow
from msrun_cli.evaluation.detection import DetectionResult


def per_class_table(result: DetectionResult) -> Table:
    """One row for all classes and one for each, 0..1; a dash where a class has no ground truth."""
    table = Table(title="Detection by class")
    table.add_column("class", overflow="fold")
    for heading in ("images", "boxes", "precision", "recall", "AP50", "AP50-95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate([_all_row(result), *result.per_class]):
        figures = map(_figure, (row.precision, row.recall, row.ap50, row.ap50_95))
        # escaped: a class name in square brackets is no markup
        table.add_row(escape(row.name), str(row.images), str(row.boxes), *figures, end_section=not position)
    return table


def _all_row(result: DetectionResult) -> ClassRow:
    rows = result.per_class
    return ClassRow(
        name="all",
        images=result.images,
        boxes=sum(row.boxes for row in rows),
        precision=_mean([row.precision for row in rows]),
        recall=_mean([row.recall for row in rows]),
        ap50=result.metrics["map50"],
        ap50_95=result.metrics["map50_95"],
    )


def _mean(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
