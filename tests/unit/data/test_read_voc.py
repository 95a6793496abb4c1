from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_folders import write_image
from label_formats import voc_object, voc_xml, write_voc

from msrun_cli.common.errors import DataError
from msrun_cli.data.voc import read_voc

BOXES = {"a": [(0, 0, 0, 10, 10), (1, 5, 6, 20, 30)], "b": [(1, 1, 2, 3, 4)], "c": []}
CAT = voc_object("cat", (1, 1, 10, 10))


def write_xml(path: Path, text: str | bytes, image: str | None = "") -> Path:
    """image: suffix of the image beside it ("" = .png), None = no image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if image is not None:
        write_image(path.with_suffix(image or ".png"), 64, 32)
    return path


def write_lists(root: Path, **lists: str) -> None:
    for name, lines in lists.items():
        path = root / "ImageSets" / "Main" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines.encode())


def names_of(split) -> list[str]:
    return [Path(record.image_path).stem for record in split.records]


def test_boxes_count_from_one_and_include_the_last_pixel(tmp_path: Path) -> None:
    write_xml(tmp_path / "a.xml", voc_xml(CAT + voc_object("ant", ("2.5", " 3 ", 64, 32))))
    data = read_voc(str(tmp_path))
    (record,) = data.train.records
    np.testing.assert_array_equal(record.boxes_xyxy, [[0, 0, 10, 10], [1.5, 2, 64, 32]])
    assert data.class_names == ("ant", "cat") and record.labels.tolist() == [1, 0]
    assert (record.width, record.height) == (64, 32) and record.image_id == record.image_path


@pytest.mark.parametrize("folder", ["", "VOC2007", "VOCdevkit/VOC2007"])
def test_lists_choose_the_images(tmp_path: Path, folder: str) -> None:
    write_voc(tmp_path / folder, BOXES)
    write_lists(tmp_path / folder, train="\ufeffa  1\r\nc -1\r\n", val="b\n", trainval="a\nb\nc\n", test="c\nb\n")
    data = read_voc(str(tmp_path))
    assert (names_of(data.train), names_of(data.val)) == (["a", "c"], ["b"])
    chosen = read_voc(str(tmp_path), train_set="trainval", val_set="test")
    assert (names_of(chosen.train), names_of(chosen.val)) == (["a", "b", "c"], ["c", "b"])
    with pytest.raises(DataError, match=r"dataset.val_set=nope: there is no nope.txt \(looked in .*Main"):
        read_voc(str(tmp_path), val_set="nope")


def test_years_are_read_together(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        write_voc(tmp_path / "VOCdevkit" / year, BOXES)
        write_lists(tmp_path / "VOCdevkit" / year, train="a\n")
    data = read_voc(str(tmp_path))
    assert len(data.train.records) == 2 and "evaluating on train" in data.notes[-1]


def test_plain_folders(tmp_path: Path) -> None:
    write_xml(tmp_path / "train" / "sub" / "a.xml", voc_xml(CAT), ".JPG")
    write_xml(tmp_path / "valid" / "b c.xml", voc_xml(CAT, file_name="C:\\pictures\\图片.jpeg"), None)
    write_image(tmp_path / "valid" / "图片.jpeg", 64, 32)
    data = read_voc(str(tmp_path))
    assert (names_of(data.train), names_of(data.val)) == (["a"], ["图片"])
    write_voc(tmp_path / "other", BOXES)
    assert names_of(read_voc(str(tmp_path / "other")).train) == ["a", "b", "c"]


def test_names_decide_order_and_what_is_allowed(tmp_path: Path) -> None:
    root = write_voc(tmp_path, BOXES)
    assert read_voc(root, names=["dog", "cat"]).train.records[0].labels.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"a.xml: object 'dog' is not in the 1 classes of dataset.names: cat"):
        read_voc(root, names=["cat"])
    with pytest.raises(DataError, match="names a class twice"):
        read_voc(root, names=["cat", "cat"])
    with pytest.raises(DataError, match="set dataset.names"):
        read_voc(write_voc(tmp_path / "empty", {"a": []}))


def test_difficult_objects_are_ignored_unless_wanted(tmp_path: Path) -> None:
    for folder in ("train", "val"):
        write_xml(tmp_path / folder / "a.xml", voc_xml(CAT + voc_object("cat", (3, 3, 9, 9), difficult=1)))
    data, used = read_voc(str(tmp_path)), read_voc(str(tmp_path), use_difficult=True)
    assert data.train.records[0].iscrowd.tolist() == [False, True] == data.val.records[0].iscrowd.tolist()
    assert used.train.records[0].iscrowd.tolist() == [False, False]
    assert used.val.records[0].iscrowd.tolist() == [False, True]
    assert any("1 difficult objects" in note for note in data.notes)


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    boxes = [
        (1, 1, 10, 10),
        (1, 1, 10, 10),
        (9, 1, 3, 5),
        (70, 1, 90, 5),
        ("nan", 1, 2, 3),
        ("x", 1, 2, 3),
        (60, 1, 90, 9),
    ]
    objects = "".join(voc_object("cat", box) for box in boxes) + "<object><name>cat</name></object>"
    write_xml(tmp_path / "a.xml", voc_xml(objects))
    data = read_voc(str(tmp_path))
    np.testing.assert_array_equal(data.train.records[0].boxes_xyxy, [[0, 0, 10, 10], [59, 0, 64, 9]])
    notes = "\n".join(data.notes)
    for said in (
        "2 objects without a bndbox of four",
        "1 repeated objects",
        "1 boxes with a number that",
        "1 boxes of zero or negative",
        "1 boxes outside",
        "1 boxes cut",
    ):
        assert said in notes


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><annotation><filename>&b;</filename></annotation>'


@pytest.mark.parametrize(
    "text, said",
    [
        (BOMB, "declares a document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
        ("<annotation>", "not valid XML: no element found"),
        ("", "not valid XML"),
        ("<annotation>&a;</annotation>", "not valid XML: undefined entity"),
        ('<?xml version="1.0" encoding="no-such"?><annotation/>', "not valid XML"),
        (b"\xff\xd8\xff\xe0 a picture", "not valid XML"),
        (voc_xml(voc_object(" ", (1, 1, 2, 2))), "an object has no name"),
    ],
)
def test_bad_files_are_left_out_and_named(tmp_path: Path, text: str | bytes, said: str) -> None:
    bad = write_xml(tmp_path / "bad.xml", text)
    with pytest.raises(DataError, match=f"none of the 1 train images can be used:\n.*{said}"):
        read_voc(str(tmp_path))
    write_xml(tmp_path / "good.xml", voc_xml(CAT))
    split = read_voc(str(tmp_path)).train
    assert names_of(split) == ["good"]
    (fault,) = split.faults
    assert fault.path == str(bad.with_suffix(".png")) and str(bad) in fault.reason and said in fault.reason


def test_encodings_and_marks_are_those_of_xml(tmp_path: Path) -> None:
    text = voc_xml(voc_object("猫", (1, 1, 10, 10))).replace("><", ">\r\n\t<")
    write_xml(tmp_path / "a.xml", b"\xef\xbb\xbf" + text.encode())
    write_xml(tmp_path / "b.xml", text.encode("utf-16"))
    latin = '<?xml version="1.0" encoding="iso-8859-1"?>' + voc_xml(voc_object("bête", (1, 1, 2, 2)))
    write_xml(tmp_path / "c.xml", latin.encode("latin-1"))
    data = read_voc(str(tmp_path))
    assert data.class_names == ("bête", "猫") and [r.labels.tolist() for r in data.train.records] == [[1], [1], [0]]


def test_sizes_come_from_the_image_where_the_file_has_none(tmp_path: Path) -> None:
    write_xml(tmp_path / "a.xml", voc_xml(CAT, None))
    write_xml(tmp_path / "b.xml", voc_xml(CAT, (0, 0)))
    records = read_voc(str(tmp_path)).train.records
    assert [(record.width, record.height) for record in records] == [(64, 32)] * 2


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dataset.root=.*nowhere is not a folder"):
        read_voc(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"train: no annotations \(.xml\) in"):
        read_voc(str(tmp_path))
    write_voc(tmp_path, BOXES)
    write_lists(tmp_path, train="a\nnot-there\nb\na\n", val="")
    (tmp_path / "JPEGImages" / "b.png").unlink()
    write_image(tmp_path / "JPEGImages" / "not-there.png")
    with pytest.raises(DataError, match="val: no annotations"):
        read_voc(str(tmp_path))
    (tmp_path / "ImageSets/Main/val.txt").unlink()
    split = read_voc(str(tmp_path)).train
    assert names_of(split) == ["a"]
    assert sorted(Path(fault.path).name for fault in split.faults) == ["b.jpg", "not-there.png"]
    assert "No such file" in " ".join(fault.reason for fault in split.faults)
    assert any("1 repeated image entries" in note for note in read_voc(str(tmp_path)).notes)
