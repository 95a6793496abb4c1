"""COCO scores: hand-made cases, ids that are awkward, and a known result on real data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_splits import data_of, record, split_of

from msrun_cli.common.errors import DataError
from msrun_cli.evaluation.coco_map import ground_truth, save_detections, score
from msrun_cli.evaluation.detections import Detections

BOX_A, BOX_B = [10, 10, 50, 50], [60, 20, 90, 70]
ONE = {"map50_95": 1.0, "map50": 1.0, "map75": 1.0}
ZERO = {"map50_95": 0.0, "map50": 0.0, "map75": 0.0}


def found(boxes_xyxy, labels, scores=None) -> Detections:
    scores = scores if scores is not None else np.linspace(0.9, 0.5, len(labels))
    return Detections(
        np.array(boxes_xyxy, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.array(labels, np.int64)
    )


@pytest.fixture
def write_annotations(tmp_path):
    def write(content) -> str:
        path = tmp_path / "instances.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    return write


def xywh(box):
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def gappy_file(**extra):
    """Category ids with gaps, image ids that are text, annotations counted from 0 and some of them broken."""
    return {
        "images": [{"id": "b", "file_name": "b.jpg"}, {"id": "a", "file_name": "a.jpg"}, {"id": "x"}],
        "categories": [{"id": 90, "name": "dog"}, {"id": 7, "name": "cat"}, {"id": 44, "name": "bird"}],
        "annotations": [
            {"id": 0, "image_id": "a", "category_id": 7, "bbox": xywh(BOX_A)},
            {"id": 0, "image_id": "b", "category_id": 90, "bbox": xywh(BOX_B), "area": 5, "iscrowd": 0},
            {"id": 1, "image_id": "a", "category_id": 7, "bbox": [1, 1, 0, 5]},
            {"id": 2, "image_id": "a", "category_id": 7, "bbox": [1, 1, -4, 5]},
            {"id": 3, "image_id": "a", "category_id": 7, "bbox": [float("nan"), 1, 4, 5]},
            {"id": 4, "image_id": "a", "category_id": 7, "bbox": [500, 1, 4, 5]},
            {"id": 5, "image_id": "a", "category_id": 7, "bbox": []},
            {"id": 6, "image_id": "a", "category_id": 7},
            {"id": 7, "image_id": "x", "category_id": 7, "bbox": xywh(BOX_A)},
            {"id": 8, "image_id": "a", "category_id": 1234, "bbox": xywh(BOX_A)},
        ],
        **extra,
    }


def test_perfect_detections_score_one_and_classes_without_truth_are_left_out():
    split = split_of([record("a", [BOX_A, BOX_B], [0, 1]), record("b")])
    result = score(ground_truth(split, data_of()), [found([BOX_A, BOX_B], [0, 1]), Detections.empty()])
    assert result.metrics == pytest.approx(ONE)
    cat, dog, bird = result.per_class
    assert (cat.name, cat.images, cat.boxes) == ("cat", 1, 1)
    assert (cat.precision, cat.recall, dog.ap50, dog.ap50_95) == pytest.approx((1, 1, 1, 1))
    assert (bird.boxes, bird.precision, bird.recall, bird.ap50, bird.ap50_95) == (0, None, None, None, None)


def test_iou_decides_the_thresholds():
    """A box of 0.72 of the truth counts for 0.50 to 0.70, five of the ten thresholds, and not for 0.75."""
    split = split_of([record(1, [[0, 0, 100, 50]], [0])])
    result = score(ground_truth(split, data_of()), [found([[0, 0, 72, 50]], [0])])
    assert result.metrics == pytest.approx({"map50_95": 0.5, "map50": 1.0, "map75": 0.0})


def test_a_missed_box_halves_the_recall():
    split = split_of([record(1, [BOX_A, BOX_B], [0, 0])])
    result = score(ground_truth(split, data_of()), [found([BOX_A], [0])])
    assert result.metrics["map50"] == pytest.approx(51 / 101)  # precision 1 at the recalls 0, 0.01, ... 0.5
    assert result.per_class[0].precision == pytest.approx(1)
    assert result.per_class[0].recall == pytest.approx(0.5)


def test_detections_in_a_crowd_neither_count_nor_hurt():
    crowd = [0, 0, 100, 80]
    split = split_of([record(1, [BOX_A, crowd], [0, 0], [False, True])])
    boxes = [[70, 60, 80, 70], BOX_A]
    result = score(ground_truth(split, data_of()), [found(boxes, [0, 0])])
    assert result.metrics == pytest.approx(ONE)
    assert result.per_class[0].boxes == 1


@pytest.mark.parametrize("with_file", [True, False])
def test_no_detections_give_zeros(with_file, write_annotations):
    records = [record("a", [BOX_A], [0], path="a.jpg"), record("b", path="b.jpg")]
    split = split_of(records, write_annotations(gappy_file()) if with_file else None)
    data = data_of(category_ids=(7, 90, 44))
    assert score(ground_truth(split, data), [Detections.empty()] * 2).metrics == ZERO


def test_no_truth_gives_zeros_and_says_so(caplog):
    split = split_of([record(1)])
    assert score(ground_truth(split, data_of()), [found([BOX_A], [0])]).metrics == ZERO
    assert "no boxes" in caplog.text


def test_images_that_were_not_evaluated_do_not_count():
    split = split_of([record(1, [BOX_A], [0]), record(2, [BOX_A, BOX_B], [0, 1])])
    result = score(ground_truth(split, data_of()), [found([BOX_A], [0]), None])
    assert result.metrics == pytest.approx(ONE)
    assert [row.boxes for row in result.per_class] == [1, 0, 0]


def test_ids_are_mapped_through_the_annotation_file_and_broken_boxes_are_left_out(write_annotations):
    split = split_of([record("a"), record("b")], write_annotations(gappy_file()))
    data = data_of(category_ids=(7, 90, 44))
    result = score(ground_truth(split, data), [found([BOX_A], [0]), found([BOX_B], [1])])
    assert result.metrics == pytest.approx(ONE)
    assert [row.boxes for row in result.per_class] == [1, 1, 0]


def test_images_are_found_by_file_name_and_classes_by_name(write_annotations):
    """Records of another reader (YOLO text) against a COCO file of the same images."""
    records = [record(0, path="/data/a.jpg"), record(1, path="/data/b.jpg")]
    split = split_of(records, write_annotations(gappy_file()))
    result = score(ground_truth(split, data_of()), [found([BOX_A], [0]), found([BOX_B], [1])])
    assert result.metrics == pytest.approx(ONE)


def test_images_unknown_to_the_file_are_an_error(write_annotations):
    path = write_annotations(gappy_file())
    with pytest.raises(DataError, match=r"1 of 2 images.*other/c\.jpg"):
        ground_truth(split_of([record("a"), record("c", path="other/c.jpg")], path), data_of())


@pytest.mark.parametrize("content", [[], {"images": []}, "text"])
def test_a_file_of_another_kind_is_an_error(content, write_annotations):
    path = write_annotations(content)
    with pytest.raises(DataError, match=r"instances\.json"):
        ground_truth(split_of([record("a")], path), data_of())


def test_nothing_is_printed(capsys):
    score(ground_truth(split_of([record(1, [BOX_A], [0])]), data_of()), [found([BOX_A], [0])])
    assert capsys.readouterr().out == ""


def test_saved_detections_carry_the_ids_of_the_file(tmp_path, write_annotations):
    split = split_of([record("a"), record("b")], write_annotations(gappy_file()))
    path = tmp_path / "out 目录" / "detections.json"
    save_detections(path, [found([BOX_A], [0]), None], split, data_of(category_ids=(7, 90, 44)))
    assert json.loads(path.read_text()) == [
        {"image_id": "a", "category_id": 7, "bbox": [10.0, 10.0, 40.0, 40.0], "score": 0.9}
    ]
    save_detections(path, [None, None], split, data_of(category_ids=(7, 90, 44)))
    assert json.loads(path.read_text()) == []


def test_saved_detections_without_a_file_carry_the_ids_of_the_records(tmp_path):
    path = tmp_path / "detections.json"
    save_detections(path, [found([BOX_A], [2])], split_of([record("first")]), data_of(category_ids=(5, 6, 9)))
    assert [(row["image_id"], row["category_id"]) for row in json.loads(path.read_text())] == [("first", 9)]


@pytest.fixture
def shared_data() -> Path:
    folder = Path(os.environ.get("MSRUN_TEST_DATA") or Path(__file__).parents[4] / "shared" / "data")
    if not (folder / "coco128").is_dir():
        pytest.skip(f"no test data in {folder}; set MSRUN_TEST_DATA")
    return folder


@pytest.fixture
def coco128(shared_data):
    """The split of coco128 and known detections of a trained YOLOv5n at 640 pixels."""
    root = shared_data
    annotation_file = root / "coco128" / "annotations" / "instances_train2017.json"
    content = json.loads(annotation_file.read_text())
    categories = sorted(content["categories"], key=lambda category: category["id"])
    records = [
        record(image["id"], path=image["file_name"], width=image["width"], height=image["height"])
        for image in content["images"]
    ]
    known = np.load(root / "reference" / "coco128_640_detections.npz")
    boxes_xyxy = known["bbox_xywh"].copy()
    boxes_xyxy[:, 2:] += boxes_xyxy[:, :2]
    detections = []
    for image in content["images"]:
        chosen = known["image_id"] == image["id"]
        detections.append(found(boxes_xyxy[chosen], known["class_index"][chosen], known["score"][chosen]))
    data = data_of([category["name"] for category in categories], [category["id"] for category in categories])
    return split_of(records, str(annotation_file)), data, detections


def test_the_known_result_of_coco128(coco128):
    split, data, detections = coco128
    result = score(ground_truth(split, data), detections)
    assert result.metrics["map50_95"] == pytest.approx(0.359, abs=0.001)
    assert result.metrics["map50"] == pytest.approx(0.557, abs=0.001)
    assert sum(row.ap50 is None for row in result.per_class) == 9
