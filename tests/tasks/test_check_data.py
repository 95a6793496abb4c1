"""`msrun check-data` on data with one fault of each kind, and on real data whose facts are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import msrun
from faulty_data import write_faulty
from small_yolo_data import write_yolo_data

Checks = dict[str, dict[str, Any]]


def checks_of(report: dict[str, Any]) -> Checks:
    return {item["check"]: item for item in report["checks"]}


def check(*words: str, cwd: Path, code: int) -> dict[str, Any]:
    done = msrun("check-data", *words, "--json", cwd=cwd)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def examined(tmp_path_factory) -> tuple[Path, dict[str, Any], str]:
    """Folder (blanks, Chinese characters), report and stderr of the whole examination of faulty data."""
    folder = tmp_path_factory.mktemp("检查 data")
    write_faulty(folder / "set")
    words = ("dataset=coco", f"dataset.root={folder / 'set'}", "image_size=96", "batch_size=64", "--deep")
    done = msrun("check-data", *words, "--json", "--save", "报告 dir", cwd=folder)
    assert done.returncode == 3, done.stdout[-2000:] + done.stderr
    return folder, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("check_id", "status", "named"),
    [
        ("empty", "fail", ["empty.jpg"]),
        ("not_an_image", "fail", ["page.jpg is not an image but HTML page"]),
        ("unsupported", "fail", ["animated.jpg is GIF"]),
        ("truncated", "fail", ["truncated.jpg", "truncated.png"]),
        ("damaged", "fail", ["damaged.jpg"]),
        ("huge", "fail", ["huge.png"]),
        ("size", "fail", ["small.jpg has 96x48 pixels"]),
        ("mislabelled", "warn", ["a png.jpg is a PNG"]),
        ("labels", "warn", ["zero or negative width or height dropped"]),
        ("tiny_boxes", "warn", ["标注 boxes.jpg: cat"]),
        ("covering_boxes", "warn", ["标注 boxes.jpg: cat"]),
        ("duplicate_boxes", "warn", ["标注 boxes.jpg: 狗"]),
        ("ambiguous_boxes", "warn", ["标注 boxes.jpg: 狗"]),
        ("background", "warn", ["background.jpg", "leaked nearly.jpg"]),
        ("unused_classes", "warn", ["never"]),
        ("unseen_classes", "warn", ["only val"]),
        ("few_images", "fail", ["27 images"]),
        ("duplicates", "warn", ["twin b.jpg"]),
        ("leakage", "fail", ["good 0.jpg"]),
        ("contradictions", "warn", ["leaked.jpg (狗)"]),
        ("near_duplicates", "warn", ["near b.png"]),
        ("near_leakage", "warn", ["leaked nearly.jpg"]),
    ],
)
def test_each_fault_is_named(examined, check_id: str, status: str, named: list[str]) -> None:
    found = checks_of(examined[1])[check_id]
    assert (found["status"], found["count"]) == (status, len(named))
    assert len(found["examples"]) == len(named)
    for example, words in zip(found["examples"], named, strict=True):
        assert words in example["text"]
    assert found["summary"] and found["advice"]


def test_nothing_else_is_blamed(examined) -> None:
    found = checks_of(examined[1])
    fine = ("reader", "missing", "broken_link", "unreadable", "imbalance", "train_is_val")
    assert {found[name]["status"] for name in fine} == {"pass"}
    assert examined[1]["status"] == "fail"


def test_report_and_pictures_are_saved(examined) -> None:
    folder, report, error = examined
    saved = folder / "报告 dir"
    assert json.loads((saved / "report.json").read_text(encoding="utf-8")) == report
    for name in ("contact_sheet.png", "classes.png", "box_sizes.png"):
        assert (saved / name).read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["set", "报告 dir"]
    lines = error.splitlines()
    assert len(lines) == 2 and lines[0].startswith("saved:") and lines[1].startswith("error: failed: "), error


def test_a_reader_that_gives_up_is_a_failure_and_the_files_are_checked(tmp_path: Path) -> None:
    root = write_faulty(tmp_path / "数据 set", unknown_category=True)
    terminal = {"COLUMNS": "200", "PYTHONIOENCODING": "ascii"}  # cannot show the name of the folder
    done = msrun("check-data", "dataset=coco", f"dataset.root={root}", cwd=tmp_path, **terminal)
    assert done.returncode == 3
    assert "error: failed: reader, broken_link, empty, not_an_image" in done.stderr
    for words in ("category_id 99", "broken link.jpg is a symbolic link", "truncated.jpg", "not checked: labels"):
        assert words in done.stdout, done.stdout
    # Not deep: the decoders' complaints are caught, but belong to no file.
    assert "--deep names the files" in done.stdout
    assert "Corrupt JPEG" not in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    root = write_faulty(tmp_path, missing=True)
    report = check("dataset=coco", f"dataset.root={root}", "near_duplicates=false", cwd=tmp_path, code=3)
    failed = [item for item in report["checks"] if item["status"] == "fail"]
    assert any("missing.jpg" in example["text"] for item in failed for example in item["examples"])


def test_strict_counts_warnings(tmp_path: Path) -> None:
    data_yaml = write_yolo_data(tmp_path / "data", classes=2)
    words = ("dataset=yolo", f"dataset.data_yaml={data_yaml}", "image_size=64", "batch_size=8")
    report = check(*words, cwd=tmp_path, code=0)
    assert report["status"] == "warn"
    assert [name for name, item in checks_of(report).items() if item["status"] == "warn"] == [
        "near_duplicates",
        "near_leakage",
    ]
    done = msrun("check-data", *words, "--strict", cwd=tmp_path)
    assert done.returncode == 1
    assert "error: warnings, which --strict counts as errors: near_duplicates, near_leakage." in done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    assert msrun("check-data", "dataset=coco", cwd=tmp_path).returncode == 2
    assert msrun("check-data", "--save", cwd=tmp_path).returncode == 2


@pytest.mark.data
def test_bccd(shared_data: Path, tmp_path: Path) -> None:
    report = check("dataset=coco", f"dataset.root={shared_data / 'bccd'}", "image_size=320", cwd=tmp_path, code=0)
    splits = report["statistics"]["splits"]
    assert [(splits[name]["images"], splits[name]["boxes"]) for name in ("train", "val")] == [(205, 2804), (87, 1137)]
    assert [row["name"] for row in report["statistics"]["classes"]] == ["RBC", "WBC", "Platelets"]
    found = checks_of(report)
    # The same field of view at another focus.
    assert "BloodImage_00037.jpg" in found.pop("near_leakage")["examples"][0]["text"]
    assert {item["status"] for item in found.values()} == {"pass"}
    assert report["anchors"]["best_possible_recall"] > 0.99


@pytest.mark.data
def test_coco128(shared_data: Path, tmp_path: Path) -> None:
    report = check("dataset=coco", f"dataset.root={shared_data / 'coco128'}", cwd=tmp_path, code=0)
    train = report["statistics"]["splits"]["train"]
    assert (train["images"], train["crowds"], train["images_without_boxes"]) == (128, 10, 2)
    found = checks_of(report)
    assert (found["background"]["status"], found["background"]["count"]) == ("pass", 2)
    assert found["train_is_val"]["status"] == "warn"
    assert len(report["statistics"]["classes"]) == 80 and found["unused_classes"]["count"] == 9


@pytest.mark.data
def test_trashnet(shared_data: Path, tmp_path: Path) -> None:
    report = check(f"folder={shared_data / 'trashnet96'}", cwd=tmp_path, code=3)
    counts = [(item["train"], item["val"]) for item in report["statistics"]["classes"]]
    assert len(counts) == 6 and [sum(column) for column in zip(*counts, strict=True)] == [2024, 503]
    found = checks_of(report)
    (leak,) = found["leakage"]["examples"]
    assert leak["path"].endswith("glass389.jpg") and leak["twin"].endswith("plastic332.jpg")
    assert found["contradictions"]["count"] == 3
    assert [name for name, item in found.items() if item["status"] == "fail"] == ["leakage"]
