"""Label faults over all formats, and that the formats agree."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from coco_folders import annotation, image, write_image, write_split
from label_formats import NAMES, write_coco, write_voc, write_yolo

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.coco import read_coco
from msrun_cli.data.detection import train_pipeline
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.data.records import DetectionData
from msrun_cli.data.screening import screen
from msrun_cli.data.voc import read_voc
from msrun_cli.data.yolo import read_yolo
from msrun_cli.transforms.chain import Chain

BOXES = {
    "a 1": [(0, 0, 0, 10, 10), (1, 5, 6, 20, 30)],
    "sub/图片": [(1, 1, 2, 3, 4), (1, 1, 2, 3, 4), (0, 63, 31, 64, 32), (0, 60, 20, 80, 40)],
    "empty": [],
}


def all_formats(root: Path, boxes=BOXES) -> dict[str, DetectionData]:
    return {
        "coco": read_coco(write_coco(root / "coco", boxes)),
        "yolo": read_yolo(write_yolo(root / "yolo", boxes), names=list(NAMES)),
        "voc": read_voc(write_voc(root / "voc", boxes), names=list(NAMES)),
    }


def test_all_formats_give_equal_records(tmp_path: Path) -> None:
    # VOC's <filename>less layout has no subfolders: names below ImageSets do not either.
    boxes = {name.replace("/", " "): rows for name, rows in BOXES.items()}
    found = all_formats(tmp_path / "路 径", boxes)
    by_name = {
        kind: {Path(record.image_path).stem: record for record in data.train.records} for kind, data in found.items()
    }
    assert by_name["coco"].keys() == by_name["yolo"].keys() == by_name["voc"].keys() == boxes.keys()
    for name, wanted in by_name["coco"].items():
        for record in (by_name["yolo"][name], by_name["voc"][name]):
            np.testing.assert_array_equal(record.boxes_xyxy, wanted.boxes_xyxy)
            np.testing.assert_array_equal(record.labels, wanted.labels)
            np.testing.assert_array_equal(record.iscrowd, wanted.iscrowd)
            assert (record.width, record.height) == (wanted.width, wanted.height)
    for data in found.values():
        assert data.class_names == NAMES
        assert sum(" repeated " in note for note in data.notes) == 1
        assert any("1 boxes cut" in note for note in data.notes)
        assert any("1 images without boxes kept" in note for note in data.notes)


@pytest.mark.parametrize("kind", ["coco", "yolo"])
def test_subfolders_spaces_and_chinese(tmp_path: Path, kind: str) -> None:
    data = all_formats(tmp_path / "数据 集")[kind]
    assert sum(Path(record.image_path).is_file() for record in data.train.records) == 3


def test_segments_stand_in_for_a_missing_box(tmp_path: Path) -> None:
    from pycocotools import mask

    pixels = np.zeros((48, 64), np.uint8)
    pixels[10:20, 30:50] = 1
    compressed = mask.encode(np.asfortranarray(pixels))
    text = {"size": [48, 64], "counts": compressed["counts"].decode()}
    runs = np.flatnonzero(np.diff(np.concatenate([[0], pixels.T.ravel(), [0]]))).tolist()
    plain = {"size": [48, 64], "counts": np.diff([0, *runs, 48 * 64]).tolist()}
    polygon = [[30, 10, 50, 10.5, 40, 20], [31, 11, 49, 12, 33, 13]]
    broken = [
        {"size": [0, 64], "counts": [1, 2]},
        {"size": [48, 64], "counts": [1, 2]},
        {"size": [48, 64], "counts": "~~~"},
        {"size": [48, 64], "counts": text["counts"] + "o"},
        {"size": [48, 64], "counts": [48 * 64 + 5, -5]},
        {"size": "x"},
        [[1, 2, 3]],
        [[float("nan")] * 6],
        "text",
        None,
    ]
    segments = [polygon, text, plain, *broken]
    annotations = [
        {"id": number, "image_id": 1, "category_id": 1, "segmentation": segment, "iscrowd": number % 2}
        for number, segment in enumerate(segments)
    ]
    write_split(tmp_path, [image(1, "a.png")], annotations)
    data = read_coco(str(tmp_path))
    np.testing.assert_array_equal(data.train.records[0].boxes_xyxy, [[30, 10, 50, 20]] * 2)
    assert data.train.records[0].iscrowd.tolist() == [False, True]
    assert any(f"{len(broken)} annotations without a bbox" in note for note in data.notes)
    assert any("1 repeated annotations" in note for note in data.notes)  # the mask in both notations


def test_repeated_images_are_merged(tmp_path: Path) -> None:
    images = [image(1, "a.png"), image(2, "b.png"), image(1, "a.png"), image("x", "./a.png")]
    boxes = [annotation(1, 1, [1, 2, 3, 4]), annotation(1, 1, [1, 2, 3, 4]), annotation(3, "x", [5, 6, 7, 8])]
    write_split(tmp_path, images, boxes)
    data = read_coco(str(tmp_path))
    assert [record.image_id for record in data.train.records] == [1, 2]
    assert data.train.records[0].boxes_xyxy.tolist() == [[1, 2, 4, 6], [5, 6, 12, 14]]
    notes = "\n".join(data.notes)
    assert "2 repeated image entries" in notes and "1 repeated annotations" in notes
    write_split(tmp_path, [image(1, "a.png"), image(1, "b.png")], [])
    with pytest.raises(DataError, match="gives two images the id 1"):
        read_coco(str(tmp_path))


def test_odd_values_in_coco_do_not_crash(tmp_path: Path) -> None:
    images = [
        image(1, "a.png"),
        image(10**30, "b.png"),
        image(None, "c.png"),
        image(1.5, "d.png"),
        image(True, "a.png"),
    ]
    odd = [
        {"id": 1, "image_id": [1], "category_id": 1, "bbox": [1, 1, 2, 2]},
        {"id": 2, "image_id": 1, "category_id": 1, "bbox": {"x": 1}},
        {"id": 3, "image_id": 1, "category_id": 1, "bbox": ["3", "3", 4.5, True]},
        {"id": 4, "image_id": 1, "category_id": 1, "bbox": [10**400, 1, 2, 2]},
        {"id": 5, "image_id": 1, "category_id": 1, "bbox": [float("inf"), 1, 2, 2]},
        {"id": 6, "image_id": 10**30, "category_id": 1.0, "bbox": [1, 1, 2, 2], "iscrowd": None},
        {"category_id": 1},
    ]
    write_split(tmp_path, images, odd)
    data = read_coco(str(tmp_path))
    assert [record.image_id for record in data.train.records] == [1, 10**30, None, 1.5]
    assert data.train.records[0].boxes_xyxy.tolist() == [[3, 3, 7.5, 4]]
    assert len(data.train.records[1].labels) == 1
    for entry in ({"id": [1], "file_name": "a"}, 3, {"id": 1}):
        path = write_split(tmp_path, [], [])
        path.write_text(json.dumps({**json.loads(path.read_text()), "images": [entry]}))
        with pytest.raises(DataError, match="instances_train.json"):
            read_coco(str(tmp_path))
    write_split(tmp_path, [image(1, "a.png")], [{**annotation(1, 1, [1, 1, 2, 2]), "category_id": [1]}])
    with pytest.raises(DataError, match="category_id '\\[1\\]'"):
        read_coco(str(tmp_path))


def test_ids_as_text(tmp_path: Path) -> None:
    boxes = [
        {"id": "x", "image_id": "007", "category_id": "7", "bbox": [1, 1, 2, 2], "iscrowd": "0"},
        {"id": "y", "image_id": "007", "category_id": "1", "bbox": [1, 1, 3, 3], "iscrowd": "1"},
    ]
    path = write_split(tmp_path, [image("007", "a.png")], boxes)
    path.write_text(path.read_text().replace('"id": 7', '"id": "7"'))
    (record,) = read_coco(str(tmp_path)).train.records
    assert record.image_id == "007" and record.labels.tolist() == [1, 0] and record.iscrowd.tolist() == [False, True]


def test_marks_line_ends_and_keys_in_any_order(tmp_path: Path) -> None:
    path = Path(write_coco(tmp_path, BOXES)) / "annotations" / "instances_train.json"
    wanted = read_coco(str(tmp_path), label_cache=False)
    content = json.loads(path.read_text())
    turned = {"info": {"a": [1, {"b": "}"}]}, **{key: content[key] for key in reversed(content)}, "x": [[{}]]}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(turned, indent="\t").replace("\n", "\r\n").encode())
    found = read_coco(str(tmp_path), label_cache=False)
    assert found.notes == wanted.notes
    np.testing.assert_array_equal(found.train.records.boxes_xyxy, wanted.train.records.boxes_xyxy)


@pytest.mark.parametrize("kind", ["coco", "yolo", "voc"])
def test_fewer_images_than_a_batch(tmp_path: Path, kind: str) -> None:
    split = (
        all_formats(tmp_path)[kind].train
        if kind != "voc"
        else read_voc(write_voc(tmp_path, {"a": [(0, 1, 1, 9, 9)]})).train
    )
    options = {"image_size": 32, "batch_size": 4, "max_boxes": 8, "seed": 0, "loader": LoaderOptions(1)}
    with pytest.raises(DataError, match="fewer than one batch .*set batch_size to at most"):
        train_pipeline(split, Chain({}), **options)


def test_a_class_out_of_range_is_an_error_even_among_good_labels(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path, {"good": [(0, 1, 1, 9, 9)], "wrong": [(0, 1, 1, 9, 9), (1, 2, 2, 5, 5)]})
    with pytest.raises(DataError, match=r"wrong.txt, line 2: class 1 is not in the 1 classes .*0\.\.0 are allowed"):
        read_yolo(folder, names=["cat"])


def test_label_files_that_cannot_be_opened_leave_their_image_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_yolo(tmp_path, BOXES)
    locked = str(tmp_path / "labels" / "a 1.txt")
    plain = Path.read_text

    def read_text(self: Path, *arguments: object, **options: object) -> str:
        if str(self) == locked:
            raise PermissionError(13, "Permission denied", locked)
        return plain(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)
    split = read_yolo(folder, names=list(NAMES)).train
    assert len(split.records) == 2 and "Permission denied" in split.faults[0].reason
    monkeypatch.undo()
    assert len(read_yolo(folder, names=list(NAMES)).train.records) == 3  # it was not kept in the cache


def test_broken_links_are_named(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path, BOXES)
    os.symlink(tmp_path / "nowhere.png", tmp_path / "images" / "link.png")
    (fault,) = read_yolo(folder, names=list(NAMES)).train.faults
    assert str(fault).endswith("link.png: it is a link to a file that does not exist")


@pytest.mark.parametrize(
    "line", ["1_0 0.5 0.5 0.1 0.1", "0 0.5 0.5 0.1", "cat 0.5 0.5 0.1 0.1", "0 50 25 20 20", "\x00\x01"]
)
def test_spoilt_label_files_leave_their_image_out(tmp_path: Path, line: str) -> None:
    folder = write_yolo(tmp_path, {"good": [(0, 1, 1, 9, 9)], "bad": []})
    (tmp_path / "labels" / "bad.txt").write_text(f"0 0.5 0.5 0.1 0.1\n{line}\n")
    for _ in range(2):  # from the cache, too
        split = read_yolo(folder, names=["cat"]).train
        assert len(split.records) == 1 and "bad.txt, line 2: " in split.faults[0].reason


def test_numbers_that_are_none_in_polygons(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path, {"a": []})
    (tmp_path / "labels" / "a.txt").write_text(
        "0 0.1 0.1 nan 0.2 0.3 0.3\n0 0.1 0.1 0.2 inf 0.3 0.3\n0 .1 .1 .2 .2 .3 .3\n"
    )
    data = read_yolo(folder, names=["cat"])
    assert len(data.train.records[0].labels) == 1
    assert any("2 boxes with a number that is not finite" in note for note in data.notes)


def test_utf16_labels_are_said(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path, {"a": [], "b": [(0, 1, 1, 2, 2)]})
    (tmp_path / "labels" / "a.txt").write_text("0 0.5 0.5 0.1 0.1", encoding="utf-16")
    assert "a.txt cannot be read as text" in read_yolo(folder, names=["cat"]).train.faults[0].reason


@pytest.mark.parametrize("place", ["images/classes.txt", "labels/classes.txt", "obj.names", "my.names"])
def test_class_names_beside_a_folder(tmp_path: Path, place: str) -> None:
    folder = write_yolo(tmp_path, BOXES)
    with pytest.raises(DataError, match=r"set dataset.names=\[first,second"):
        read_yolo(folder)
    (tmp_path / place).write_bytes("\ufeffcat\r\ndog\r\n\r\n".encode())
    assert read_yolo(folder).class_names == NAMES


def test_folders_with_splits_and_lists(tmp_path: Path) -> None:
    for split, file in (("train", "a"), ("valid", "b")):
        write_image(tmp_path / split / "images" / f"{file}.png")
        (tmp_path / split / "labels").mkdir()
        (tmp_path / split / "labels" / f"{file}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    data = read_yolo(str(tmp_path), names=["cat"])
    assert [Path(data.train.records[0].image_path).name, Path(data.val.records[0].image_path).name] == [
        "a.png",
        "b.png",
    ]
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "train.txt").write_text("train/images/a.png\ntrain/images/a.png\n")
    (tmp_path / "lists" / "val.txt").write_text(f"{tmp_path}/valid/images/b.png\n")
    listed = read_yolo(str(tmp_path / "lists" / "train.txt"), names=["cat"])
    assert (len(listed.train.records), len(listed.val.records)) == (1, 1)
    assert any("1 repeated image entries" in note for note in listed.notes)
    (tmp_path / "data.yaml").write_text("train: train/images\nnames: [dog]\n")
    assert read_yolo(str(tmp_path)).class_names == ("dog",)
    assert read_yolo(str(tmp_path / "data.yaml"), names=["cow"]).class_names == ("cow",)


def test_half_characters_are_no_names(tmp_path: Path) -> None:
    path = write_split(tmp_path, [image(1, "a.png"), image(2, "b.png")], [], [(1, "half")])
    path.write_text(path.read_text().replace("b.png", "\\ud800.png").replace("half", "\\ud800"))
    data = screen(read_coco(str(tmp_path)), BadSamples("skip", tmp_path / "bad.csv"), check_images=True)
    assert len(data.train.records) == 1 and data.class_names == ("\\ud800",)
    assert "\\ud800.png" in (tmp_path / "bad.csv").read_text(encoding="utf-8")
    path.write_text(path.read_text().replace('"id": 1', '"id": "\\udfff"', 1))
    with pytest.raises(DataError, match="the id of an image must be"):
        read_coco(str(tmp_path))
