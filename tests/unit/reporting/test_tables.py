"""The table by class, as it appears where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from msrun_cli.evaluation.coco_map import ClassRow
from msrun_cli.evaluation.detection import DetectionResult
from msrun_cli.reporting.tables import per_class_table


def test_all_row_then_classes_with_dashes_where_nothing_was_measured():
    rows = [
        ClassRow("[red]猫", 2, 5, 0.5, 0.4, 0.6, 0.3),
        ClassRow("dog", 1, 1, 1.0, 0.8, 0.8, 0.5),
        ClassRow("bird", 0, 0, None, None, None, None),
    ]
    metrics = {"map50_95": 0.4, "map50": 0.7, "map75": 0.5}
    output = io.StringIO()
    Console(file=output, width=100).print(per_class_table(DetectionResult(metrics, 9, rows, [], 1.0, 1.0, 1.0)))
    lines = [line.replace("│", " ").split() for line in output.getvalue().splitlines()]
    assert ["all", "9", "6", "0.750", "0.600", "0.700", "0.400"] in lines
    assert ["[red]猫", "2", "5", "0.500", "0.400", "0.600", "0.300"] in lines
    assert ["bird", "0", "0", "-", "-", "-", "-"] in lines
    assert "\x1b" not in output.getvalue()
