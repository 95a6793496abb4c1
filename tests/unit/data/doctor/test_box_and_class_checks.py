from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msrun_cli.common.status import worst
from msrun_cli.data.doctor.boxes import background, box_checks, label_notes
from msrun_cli.data.doctor.checked import CheckedData, detection_view, labelled_view
from msrun_cli.data.doctor.classes import class_checks, split_checks
from msrun_cli.data.doctor.findings import Finding
from msrun_cli.data.doctor.statistics import statistics
from msrun_cli.data.records import DetectionData, Record, Split
from msrun_cli.data.scan import ImageFault, ImageLook

Box = tuple[float, float, float, float, int]


def record(name: str, *boxes: Box, crowds: tuple[int, ...] = (), size: tuple[int, int] = (200, 100)) -> Record:
    table = np.array(boxes, np.float64).reshape(-1, 5)
    iscrowd = np.isin(np.arange(len(table)), crowds)
    return Record(name, name, table[:, :4].astype(np.float32), table[:, 4].astype(np.int64), iscrowd, *size)


def view(train: list[Record], val: list[Record], *notes: str, names: tuple[str, ...] = ("a", "b", "c")) -> CheckedData:
    splits = Split("train", tuple(train)), Split("val", tuple(val))
    return detection_view(DetectionData(*splits, names, tuple(range(len(names))), notes))


def by_id(findings: list[Finding]) -> dict[str, Finding]:
    return {item.check: item for item in findings}


def test_boxes() -> None:
    data = view(
        [
            record("tiny.jpg", (0, 0, 1, 50, 0), (0, 0, 4.1, 50, 0)),  # at 100 px: 0.5 and 2.05
            record("all.jpg", (0, 0, 200, 95.1, 1), (0, 0, 200, 100, 1), (0, 0, 200, 100, 2), crowds=(1,)),
            record("twice.jpg", (5, 5, 50, 50, 0), (5.2, 5.3, 50.4, 49.9, 0), (5, 5, 50, 50, 1), (5, 5, 51, 50, 0)),
        ],
        [record("twice too.jpg", (5, 5, 50, 50, 0))],
    )
    found = by_id(box_checks(data, 100, 2.0, 0.95))
    assert [(e.path, e.index) for e in found["tiny_boxes"].examples] == [("tiny.jpg", 0)]
    assert found["tiny_boxes"].examples[0].box_xyxy == (0, 0, 1, 50)
    assert [e.text.split(":")[1].split()[0] for e in found["covering_boxes"].examples] == ["b", "c"]  # no crowd
    assert [e.index for e in found["duplicate_boxes"].examples] == [2]
    # One pair in all.jpg (a crowd counts: it is on the same place), one in twice.jpg.
    assert [e.path for e in found["ambiguous_boxes"].examples] == ["all.jpg", "twice.jpg"]
    assert all(item.status == "warn" and item.advice for item in found.values())


def test_no_boxes_at_all() -> None:
    data = view([record("a.jpg")], [])
    assert {item.status for item in box_checks(data, 640, 2.0, 0.95)} == {"pass"}
    assert (background(data).status, background(data).count) == ("warn", 1)
    assert by_id(class_checks(data, 50))["imbalance"].status == "pass"
    assert statistics(data, {"train": [ImageLook("JPEG", 200, 100, None)]})["splits"]["train"]["boxes"] == 0


def test_background_warns_only_when_there_is_much() -> None:
    full = [record(f"{i}.jpg", (0, 0, 9, 9, 0)) for i in range(9)]
    few = background(view([*full, record("empty.jpg")], []))
    assert (few.status, few.count, few.advice) == ("pass", 1, "")
    many = background(view([*full, record("x.jpg"), record("y.jpg")], []))
    assert (many.status, many.count) == ("warn", 2)


def test_classes() -> None:
    train = [record("a.jpg", *[(0, 0, 9, 9, 0)] * 51, (0, 0, 9, 9, 1), (0, 0, 9, 9, 3), crowds=(52,))]
    data = view(train, [record("b.jpg", (0, 0, 9, 9, 2))], names=("many", "one", "val only", "crowd only", "狗"))
    found = by_id(class_checks(data, 50))
    assert [e.text for e in found["unused_classes"].examples] == ["crowd only", "狗"]
    assert [e.text for e in found["unseen_classes"].examples] == ["val only: 1 in val, none in train"]
    assert [e.text for e in found["imbalance"].examples] == ["one: 1"]
    assert "51" in found["imbalance"].summary
    assert by_id(class_checks(data, 51))["imbalance"].status == "pass"


def test_splits() -> None:
    train = [record("a.jpg", (0, 0, 9, 9, 0)), record("b.jpg")]
    found = by_id(split_checks(view(train, [record("c.jpg")]), batch_size=3))
    assert (found["few_images"].status, found["train_is_val"].status) == ("fail", "pass")
    assert "at most 2" in found["few_images"].advice
    (only_val, _) = split_checks(view([], train), batch_size=2)
    assert only_val.status == "warn" and "only evaluation" in only_val.advice
    assert split_checks(view([], []), batch_size=1)[0].status == "fail"
    same = view(train, list(train))
    found = by_id(split_checks(same, batch_size=2))
    assert (found["few_images"].status, found["train_is_val"].status) == ("pass", "warn")
    assert [split.name for split in same.splits] == ["train"]
    assert by_id(class_checks(same, 50))["unseen_classes"].status == "skip"


def test_what_the_reader_counted() -> None:
    notes = (
        "train: 205 images in /data/cut/dropped/train, 2804 boxes from x.json",
        "train: 3 boxes outside their image dropped",
        "val: 4 boxes cut at the border of their image",
        "train: 2 images without boxes kept as background",
        "train: 10 crowd boxes, not trained on",
        "no val split under /x: evaluating on train",
    )
    found = label_notes(view([record("a.jpg")], [], *notes), {})
    assert (found.status, found.count) == ("warn", 7)
    assert [e.text for e in found.examples] == [notes[1], notes[2]]


@dataclass(frozen=True)
class Fault:
    path: str
    reason: str


@dataclass(frozen=True)
class SplitWithFaults:
    name: str
    records: tuple[Record, ...]
    faults: tuple[Fault, ...] = ()


def test_samples_that_the_reader_left_out() -> None:
    faults = (
        Fault("gone.jpg", "gone.jpg does not exist."),
        Fault("a.txt", "line 3: class 9 is not in the 2 classes"),
        Fault("c.jpg", "its c.xml is not valid XML"),
    )
    splits = SplitWithFaults("train", (record("b.jpg", (0, 0, 9, 9, 0)),), faults), SplitWithFaults("val", ())
    data = detection_view(DetectionData(*splits, ("a", "b"), (0, 1)))
    # The scan says what is wrong with these images, if anything.
    assert [item.image_path for item in data.train.records] == ["b.jpg", "gone.jpg", "c.jpg"]
    assert data.train.sizes.tolist() == [[200, 100], [0, 0], [0, 0]]
    fine, gone = ImageLook("JPEG", 200, 100, None), ImageLook("", 0, 0, ImageFault(1, "gone.jpg", "missing", "..."))
    looks = {"train": [fine, gone, fine]}
    found = label_notes(data, looks)
    assert (found.status, found.count) == ("fail", 2)
    assert [example.text for example in found.examples] == [
        "a.txt: line 3: class 9 is not in the 2 classes",
        "c.jpg: its c.xml is not valid XML",
    ]
    assert background(data).count == 0
    assert statistics(data, looks)["splits"]["train"]["images_without_boxes"] == 0


def test_without_val_the_splits_stay_the_same_whatever_was_left_out() -> None:
    records = (record("b.jpg", (0, 0, 9, 9, 0)),)
    splits = SplitWithFaults("train", records, (Fault("gone.jpg", "..."),)), SplitWithFaults("val", records)
    data = detection_view(DetectionData(*splits, ("a",), (0,)))
    assert data.same and [len(split.records) for split in data.splits] == [2]


def test_statistics() -> None:
    train = [
        record("a.jpg", (0, 0, 31, 33, 0), (0, 0, 32, 32, 0), (0, 0, 96, 96, 1), (0, 0, 97, 96, 1), crowds=(0,)),
        record("b.jpg"),
        record("c.jpg", (0, 0, 10, 10, 2)),
    ]
    looks = [ImageLook("JPEG", 200, 100, None), ImageLook("JPEG", 200, 100, None), ImageLook("PNG", 90, 100, None)]
    found = statistics(view(train, []), {"train": looks})
    assert found["splits"]["train"] == {
        "images": 3,
        "boxes": 4,
        "crowds": 1,
        "images_without_boxes": 1,
        "boxes_per_image": {"min": 0, "median": 1.0, "max": 3},
        "box_sizes": {"small": 1, "medium": 2, "large": 1},
        "image_sizes": {
            "different": 2,
            "commonest": [{"width": 200, "height": 100, "images": 2}, {"width": 90, "height": 100, "images": 1}],
            "smallest_side": 90,
            "largest_side": 200,
        },
        "formats": {"JPEG": 2, "PNG": 1},
    }
    assert found["classes"][1] == {"name": "b", "train": 2, "val": 0}


def test_classification_has_classes_without_boxes() -> None:
    data = labelled_view([("train", ["x.jpg", "y.jpg"], [0, 1]), ("val", ["z.jpg"], [1])], ("cat", "dog"), [])
    assert by_id(class_checks(data, 50))["unused_classes"].status == "pass"
    assert "boxes" not in statistics(data, {"train": [], "val": []})["splits"]["train"]


def test_worst() -> None:
    items = [Finding("a", status, 0, "") for status in ("pass", "skip", "warn")]
    statuses = [item.status for item in items]
    assert (worst(statuses), worst(statuses[:2]), worst([])) == ("warn", "pass", "pass")
    assert worst([*statuses, "fail"]) == "fail"
