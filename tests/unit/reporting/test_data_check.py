from __future__ import annotations

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from odd_images import encoded
from rich.console import Console

from msrun_cli.common.errors import DataError
from msrun_cli.data.doctor.checked import detection_view
from msrun_cli.data.doctor.examination import CheckOptions, Examination, examine, offenders
from msrun_cli.data.doctor.findings import Example, Finding
from msrun_cli.data.records import DetectionData, Record, Split
from msrun_cli.reporting.data_check import common_folder, findings_table, progress_display, report_json, report_tables
from msrun_cli.reporting.data_pictures import save_report

OPTIONS = CheckOptions(
    image_size=96,
    batch_size=2,
    deep=False,
    near_duplicates=False,
    workers=2,
    tiny_pixels=2.0,
    covering=0.95,
    imbalance=50.0,
    anchors=np.array([[10.0, 13.0], [33.0, 23.0]]),
    anchors_per_level=1,
    anchor_threshold=4.0,
    anchor_key="model.network.anchors_pixels",
)


@pytest.fixture
def examination(tmp_path: Path) -> Examination:
    """Three images, one of them no image; a tiny and a very tall box; names with brackets and Chinese characters."""
    boxes = np.array([[10, 10, 30, 30], [5, 5, 6, 6], [50, 1, 52, 63]], np.float32)
    records = []
    for number in range(3):
        path = tmp_path / f"[{number}].jpg"
        path.write_bytes(b"text" if number == 2 else encoded(".jpg", width=96, height=64, seed=number))
        records.append(Record(str(path), number, boxes, np.array([0, 1, 0]), np.zeros(3, bool), 96, 64))
    data = DetectionData(Split("train", tuple(records)), Split("val", tuple(records)), ("[red]", "汉字"), (0, 1))
    with progress_display() as stage:
        return examine(detection_view(data), None, OPTIONS, stage)


def shown(item: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))
    console.print(item)
    return console.export_text()


def test_tables(examination: Examination) -> None:
    text = shown(report_tables(examination))
    for words in (
        "[red]",
        "汉字",
        "[2].jpg is not an image but text",
        "not checked: unseen_classes",
        "FAIL",
        "WARN",
        "PASS",
    ):
        assert words in text
    assert "val" not in text.split("Checks")[0]  # it is train again


def test_five_cases_are_shown_below_their_folder() -> None:
    examples = tuple(Example(f"/data/set/[x]{number}.jpg is empty", "train", number) for number in range(9))
    found = Finding("empty", "fail", 1200, "files of 0 bytes", examples, "copy them")
    text = shown(findings_table([found, Finding("size", "skip", 0, "no")], "/data/set"))
    assert "below /data/set" in text and "  [x]4.jpg is empty" in text and "[x]5" not in text
    assert "and 1195 more" in text and "not checked: size" in text and "copy them" in text


def test_common_folder() -> None:
    assert common_folder(["/a/b/c/1.jpg", "/a/b/d/2.jpg"]) == "/a/b"
    assert common_folder(["/a/1.jpg", "/b/2.jpg"]) == "" == common_folder([]) == common_folder(["a/1.jpg", "/a/2.jpg"])


def test_json_is_plain(examination: Examination) -> None:
    report = report_json(examination, {"dataset": "x"})
    again = json.loads(json.dumps(report))
    assert again["status"] == "fail" and again["version"] == 1
    assert again["anchors"]["model"] == [[10.0, 13.0], [33.0, 23.0]]
    assert {tuple(sorted(item)) for item in again["checks"]} == {
        ("advice", "check", "count", "examples", "status", "summary")
    }
    tiny = next(item for item in again["checks"] if item["check"] == "tiny_boxes")
    assert tiny["examples"][0]["box_xyxy"] == [5, 5, 6, 6]


def test_offenders_take_turns_and_come_once() -> None:
    def case(index: int | None) -> Example:
        return Example("x", "train", index)

    findings = [
        Finding("a", "fail", 3, "", (case(1), case(1), case(2), case(3))),
        Finding("b", "warn", 2, "", (case(2), case(None), case(4))),
        Finding("c", "pass", 1, "", (case(9),)),
    ]
    found = [(check, [item.index for item in cases]) for check, cases in offenders(findings)]
    assert found == [("a", [1, 1]), ("b", [2]), ("b", [4]), ("a", [3])]
    assert offenders([]) == []


def test_saved_files(examination: Examination, tmp_path: Path) -> None:
    folder = tmp_path / "报告 1"
    for _ in range(2):  # again over the old ones
        written = save_report(examination, report_json(examination, {}), folder, OPTIONS, seed=0)
    assert sorted(folder.iterdir()) == sorted(written)
    assert [path.name for path in written] == ["report.json", "contact_sheet.png", "classes.png", "box_sizes.png"]
    sheet = cv2.imdecode(np.fromfile(written[1], np.uint8), cv2.IMREAD_COLOR)
    assert (sheet == (30, 30, 200)).all(axis=2).sum() > 1000  # the red frame, BGR


def test_a_folder_that_cannot_be_written(examination: Examination, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        save_report(examination, {}, tmp_path / "file" / "below", OPTIONS, seed=0)
