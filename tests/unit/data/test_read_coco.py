from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from coco_folders import annotation, image, write_image, write_split

from msrun_cli.common.errors import DataError
from msrun_cli.data.coco import read_coco

NAN = float("nan")


def test_ids_and_file_names_of_any_kind(tmp_path: Path) -> None:
    images = [image("a-1", "Bild ä.png"), image(7, "sub/x.y.png")]
    annotations = [annotation(1, "a-1", [1, 2, 3, 4], 7), annotation(2, 7, [5, 6, 7, 8], 1)]
    write_split(tmp_path, images, annotations)
    data = read_coco(str(tmp_path))
    assert data.class_names == ("cat", "dog") and data.category_ids == (1, 7)
    assert [record.image_id for record in data.train.records] == ["a-1", 7]
    assert [record.labels.tolist() for record in data.train.records] == [[1], [0]]
    np.testing.assert_array_equal(data.train.records[0].boxes_xyxy, np.array([[1, 2, 4, 6]], np.float32))
    assert all(Path(record.image_path).is_file() for record in data.train.records)


def test_without_val_train_is_evaluated_and_said(tmp_path: Path) -> None:
    path = write_split(tmp_path, [image(1, "a.png")], [annotation(1, 1, [1, 2, 3, 4])])
    data = read_coco(str(tmp_path))
    assert data.val.name == "val" and data.val.records == data.train.records
    assert data.val.annotation_file == str(path)
    assert any("evaluating on train" in note for note in data.notes)


def test_with_val_only_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    write_split(tmp_path, [image(1, "a.png")], [], file="annotations/instances_val2017.json", folder="val2017")
    data = read_coco(str(tmp_path))
    assert not data.train.records and len(data.val.records) == 1
    assert any("only evaluation" in note for note in data.notes)


@pytest.mark.parametrize(
    "file, folder",
    [
        ("annotations/instances_train.json", "images/train"),
        ("annotations/instances_train2017.json", "images/train2017"),
        ("annotations/instances_train2017.json", "train2017"),
        ("annotations/instances_train.json", "train"),
        ("annotations/instances_train.json", "images"),
        ("annotations/instances_train.json", "images/train2017"),
        ("instances_train.json", "."),
        ("train/_annotations.coco.json", "train"),
    ],
)
def test_layouts_are_found_and_said(tmp_path: Path, file: str, folder: str) -> None:
    (tmp_path / "images").mkdir()  # an empty likely folder must not win
    write_split(tmp_path, [image(1, "a.png")], [], file=file, folder=folder)
    data = read_coco(str(tmp_path))
    assert Path(data.train.records[0].image_path).samefile(tmp_path / folder / "a.png")
    assert str(tmp_path / file) in data.notes[0] and "1 images" in data.notes[0]


def test_files_can_be_set(tmp_path: Path) -> None:
    write_split(tmp_path, [image(1, "a.png")], [], file="labels.json", folder="pictures")
    write_split(tmp_path, [image(1, "b.png")], [], file="annotations/instances_train.json")
    wanted = {"images": "pictures", "annotations": "labels.json"}
    assert read_coco(str(tmp_path), train=wanted).train.records[0].image_path.endswith("pictures/a.png")
    absolute = {"images": str(tmp_path / "pictures"), "annotations": str(tmp_path / "labels.json")}
    data = read_coco(str(tmp_path), train={"images": None, "annotations": None}, val=absolute)
    assert data.val.records[0].image_path.endswith("pictures/a.png")
    assert data.train.records[0].image_path.endswith("train/b.png")
    for key in wanted:
        with pytest.raises(DataError, match=f"dataset.val.{key}=nowhere"):
            read_coco(str(tmp_path), val={**absolute, key: "nowhere"})
    with pytest.raises(DataError, match="no key 'image'"):
        read_coco(str(tmp_path), train={"image": "pictures"})


def test_boxes_that_are_no_boxes_are_counted(tmp_path: Path) -> None:
    boxes = [[1, 1, 0, 5], [1, 1, 5, -2], [70, 1, 5, 5], [NAN, 1, 5, 5], [60, 40, 20, 20], [1, 1, 5], [2, 2, 5, 5]]
    annotations = [annotation(number, 1, box) for number, box in enumerate(boxes)]
    write_split(tmp_path, [image(1, "a.png")], [*annotations, annotation(99, 5, [1, 1, 2, 2])])
    data = read_coco(str(tmp_path))
    np.testing.assert_array_equal(data.train.records[0].boxes_xyxy, [[60, 40, 64, 48], [2, 2, 7, 7]])
    notes = "\n".join(data.notes)
    for said in (
        "2 boxes of zero or negative",
        "1 boxes outside",
        "1 boxes with a number",
        "1 boxes cut",
        "1 annotations without a bbox",
        "1 annotations of images that",
    ):
        assert notes.count(said) == 1


def test_crowds_stay_in_the_records(tmp_path: Path) -> None:
    write_split(
        tmp_path, [image(1, "a.png")], [annotation(1, 1, [1, 2, 3, 4], iscrowd=1), annotation(2, 1, [1, 2, 3, 4])]
    )
    data = read_coco(str(tmp_path))
    assert data.train.records[0].iscrowd.tolist() == [True, False]
    assert any("1 crowd boxes" in note for note in data.notes)


def test_background_images_are_kept_or_left_out(tmp_path: Path) -> None:
    images = [image(1, "a.png"), image(2, "b.png")]
    write_split(tmp_path, images, [annotation(1, 1, [1, 2, 3, 4])])
    write_split(tmp_path, images, [], file="annotations/instances_val.json", folder="images/val")
    kept, dropped = read_coco(str(tmp_path)), read_coco(str(tmp_path), keep_empty=False)
    assert len(kept.train.records) == 2 and len(dropped.train.records) == 1
    assert len(kept.val.records) == len(dropped.val.records) == 2
    assert any("1 images without boxes kept" in note for note in kept.notes)
    assert any("1 images without boxes left out" in note for note in dropped.notes)


def test_an_unknown_category_is_named(tmp_path: Path) -> None:
    write_split(tmp_path, [image(1, "a.png")], [annotation(31, 1, [1, 2, 3, 4], category_id=9)])
    with pytest.raises(DataError, match=r"instances_train.json: annotation 31 .*category_id 9.* 2 categories .*1\.\.7"):
        read_coco(str(tmp_path))


def test_splits_must_agree_on_categories(tmp_path: Path) -> None:
    write_split(tmp_path, [image(1, "a.png")], [])
    write_split(
        tmp_path, [image(2, "b.png")], [], [(1, "cat"), (7, "cow")], file="annotations/instances_val.json", folder="val"
    )
    with pytest.raises(DataError, match="instances_val.json has other categories.*'dog'.*'cow'"):
        read_coco(str(tmp_path))


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_file_without_images_is_named(split: str, tmp_path: Path) -> None:
    for name in ("train", "val"):
        images = [] if name == split else [image(1, "a.png")]
        write_split(tmp_path, images, [], file=f"annotations/instances_{name}.json", folder=f"images/{name}")
    with pytest.raises(DataError) as caught:
        read_coco(str(tmp_path))
    said = str(caught.value)
    assert f"annotations/instances_{split}.json lists no images" in said and "\n" not in said
    assert f"Set dataset.{split}.annotations" in said
    assert caught.value.exit_code == 3


def test_images_that_are_all_missing_are_listed(tmp_path: Path) -> None:
    images = [image(number, f"{number}.png") for number in range(7)]
    write_split(tmp_path, images, [], folder=None)
    write_image(tmp_path / "images/train/other.png")
    with pytest.raises(DataError) as caught:
        read_coco(str(tmp_path))
    text = str(caught.value)
    assert "none of the 7 images" in text and "and 2 more" in text and "dataset.train.images" in text
    assert [f"{number}.png" in text for number in range(7)] == [True] * 5 + [False] * 2
    write_image(tmp_path / "images/train/3.png")
    assert len(read_coco(str(tmp_path)).train.records) == 7  # the check of the images finds the others


def test_a_wrong_root_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere is not a folder"):
        read_coco(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"looked for annotations/instances_train\*.json"):
        read_coco(str(tmp_path))


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "not valid JSON"),
        ("[]", "no list named images, annotations, categories"),
        ('{"images": [], "annotations": [], "categories": []}', "lists no categories"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1}]}', "whole-number id and a name"),
        ('{"images": [], "annotations": [], "categories": [{"id":1,"name":"a"},{"id":1,"name":"b"}]}', "same id"),
        ('{"images": [{}], "annotations": [], "categories": [{"id":1,"name":"a"}]}', "needs an id and a file_name"),
        ('{"images": [], "annotations": [3], "categories": [{"id":1,"name":"a"}]}', "must be an object"),
    ],
)
def test_damaged_annotations_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "annotations" / "instances_train.json"
    path.parent.mkdir()
    path.write_text(text)
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=f"{path}.*{said}"):
        read_coco(str(tmp_path))


def test_a_byte_order_mark_and_missing_sizes_are_fine(tmp_path: Path) -> None:
    path = write_split(tmp_path, [image(1, "a.png", 40, 30)], [annotation(1, 1, [1, 2, 100, 100])])
    content = json.loads(path.read_text())
    del content["images"][0]["width"], content["images"][0]["height"]
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    record = read_coco(str(tmp_path)).train.records[0]
    assert (record.width, record.height) == (40, 30)
    np.testing.assert_array_equal(record.boxes_xyxy, [[1, 2, 40, 30]])


def test_coco128(shared_data: Path) -> None:
    data = read_coco(str(shared_data / "coco128"))
    assert len(data.train.records) == 128 and len(data.class_names) == 80
    assert data.category_ids[0] == 1 and data.category_ids[-1] == 90 and data.class_names[-1] == "toothbrush"
    assert sum(record.iscrowd.sum() for record in data.train.records) == 10
    assert sum(not len(record.labels) for record in data.train.records) == 2


def test_bccd(shared_data: Path) -> None:
    data = read_coco(str(shared_data / "bccd"))
    assert [len(split.records) for split in (data.train, data.val)] == [205, 87]
    assert [sum(len(r.labels) for r in split.records) for split in (data.train, data.val)] == [2804, 1137]
    assert data.class_names == ("RBC", "WBC", "Platelets") and len(data.notes) == 2
