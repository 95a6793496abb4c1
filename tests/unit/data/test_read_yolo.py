from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coco_folders import write_image

from msrun_cli.common.errors import DataError
from msrun_cli.data.coco import read_coco
from msrun_cli.data.yolo import read_yolo
from msrun_cli.data.yolo_labels import label_path

NAMES = "names: [cat, dog]\n"


def write_yolo(root: Path, labels: dict[str, str | None], yaml: str = "train: images/train\n" + NAMES) -> str:
    """An image of 100x50 for each of `labels`, and its text unless that is None."""
    for name, text in labels.items():
        write_image(root / "images" / "train" / f"{name}.png", 100, 50)
        if text is not None:
            path = root / "labels" / "train" / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    (root / "data.yaml").write_text(yaml)
    return str(root / "data.yaml")


def test_boxes_and_polygons(tmp_path: Path) -> None:
    text = "\ufeff0\t0.5 0.5\t0.2 0.4\r\n\r\n1 0.1 0.2 0.3 0.2 0.2 0.6\r\n"
    data = read_yolo(write_yolo(tmp_path, {"a": text}))
    record = data.train.records[0]
    np.testing.assert_allclose(record.boxes_xyxy, [[40, 15, 60, 35], [10, 10, 30, 30]], rtol=1e-6)
    assert record.labels.tolist() == [0, 1] and not record.iscrowd.any()
    assert (record.width, record.height) == (100, 50)
    assert data.class_names == ("cat", "dog") and data.category_ids == (0, 1)
    assert any("evaluating on train" in note for note in data.notes)
    assert data.val.annotation_file is None


@pytest.mark.parametrize(
    "line, said",
    [
        ("2 0.5 0.5 0.1 0.1", r"class 2 is not in the 2 classes .*0\.\.1"),
        ("-1 0.5 0.5 0.1 0.1", "class -1"),
        ("0.5 0.5 0.5 0.1 0.1", "class 0.5"),
        ("cat 0.5 0.5 0.1 0.1", "not a number"),
        ("0 0.5 0.5 0.1", "4 numbers. A box has 5"),
        ("0 0.5 0.5 0.1 0.1 0.9", "6 numbers"),
        ("0 50 25 20 20", "look like pixels"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = write_yolo(tmp_path, {"a": f"0 0.5 0.5 0.1 0.1\n{line}\n"})
    with pytest.raises(DataError, match=f"a.txt, line 2: .*{said}"):
        read_yolo(path)


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    text = (
        "0 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1 0.1\n1 0.5 0.5 0 0.1\n1 nan 0.5 0.1 0.1\n1 1.5 0.5 0.1 0.1\n0 1 1 0.2 0.2\n"
    )
    path = write_yolo(tmp_path, {"a": text, "b": "", "c": None})
    data = read_yolo(path)
    assert [len(record.labels) for record in data.train.records] == [2, 0, 0]
    notes = "\n".join(data.notes)
    for said in (
        "1 repeated label lines",
        "1 boxes of zero",
        "1 boxes with a number",
        "1 boxes outside",
        "1 boxes cut",
        "2 images without boxes kept",
        "1 images without a label file",
    ):
        assert said in notes
    assert len(read_yolo(path, keep_empty=False).train.records) == 1


def test_list_files_and_lists_of_sources(tmp_path: Path) -> None:
    yaml = "path: .\ntrain: [images/train, more.txt]\nval: val.txt\nnames: {1: dog, 0: cat}\nnc: 2\n"
    path = write_yolo(tmp_path, {"a": "0 0.5 0.5 0.1 0.1", "b": "1 0.5 0.5 0.1 0.1"}, yaml)
    write_image(tmp_path / "other" / "c.jpg")
    (tmp_path / "other" / "c.txt").write_text("0 0.5 0.5 0.5 0.5")
    (tmp_path / "more.txt").write_text(f"./images/train/a.png\r\n{tmp_path}/other/c.jpg\r\n")
    (tmp_path / "val.txt").write_text("images/train/b.png\n")
    data = read_yolo(path)
    assert [Path(record.image_path).name for record in data.train.records] == ["a.png", "b.png", "c.jpg"]
    assert [record.labels.tolist() for record in data.train.records] == [[0], [1], [0]]
    assert [Path(record.image_path).name for record in data.val.records] == ["b.png"]
    assert data.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    "yaml, said",
    [
        ("train: nowhere\n" + NAMES, "nowhere does not exist"),
        ("train: labels\n" + NAMES, "no images in"),
        ("train: images/train\nnames: [a]\nnc: 2\n", "nc=2, but names lists 1"),
        ("train: images/train\nnames: {0: a, 2: b}\n", "without gaps"),
        ("train: images/train\n", "names must be a list"),
        (NAMES, "neither train nor val"),
        ("train: [\n", "not valid YAML"),
        ("- 1\n", "must hold keys"),
    ],
)
def test_wrong_data_files_are_named(tmp_path: Path, yaml: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_yolo(write_yolo(tmp_path, {"a": "0 0.5 0.5 0.1 0.1"}, yaml))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data_yaml=.*No such file"):
        read_yolo(str(tmp_path / "data.yaml"))
    path = write_yolo(tmp_path, {"a": ""}, "train: list.txt\n" + NAMES)
    (tmp_path / "list.txt").write_text("images/train/y.png\nimages/train/z.png\n")
    with pytest.raises(DataError, match="2 of the 2 train images do not exist:\n.*y.png\n.*z.png"):
        read_yolo(path)
    (tmp_path / "list.txt").write_text("images/train/a.png\nimages/train/z.png\n")
    split = read_yolo(path).train
    assert len(split.records) == 1 and [str(fault) for fault in split.faults] == [
        f"{tmp_path}/images/train/z.png: it does not exist"
    ]
    (tmp_path / "labels/train/a.txt").unlink()
    (tmp_path / "list.txt").write_text("images/train/a.png\n")
    with pytest.raises(DataError, match="none of the 1 train images has a label file:\n.*labels/train/a.txt"):
        read_yolo(path)


def test_only_the_last_images_folder_becomes_labels() -> None:
    assert label_path("/images/x/images/train/a.b.jpg") == "/images/x/labels/train/a.b.txt"
    assert label_path("/my-images/a.jpg") == "/my-images/a.txt"


@pytest.mark.parametrize("name", ["coco128", "bccd"])
def test_both_formats_give_the_same_boxes(shared_data: Path, name: str) -> None:
    yolo = read_yolo(str(shared_data / name / f"{name}.yaml"))
    coco = read_coco(str(shared_data / name))
    of_file = {Path(record.image_path).name: record for record in yolo.train.records}
    assert yolo.class_names == coco.class_names
    for record in coco.train.records:
        same = of_file[Path(record.image_path).name]
        assert (same.width, same.height) == (record.width, record.height)
        wanted = np.column_stack([record.labels, record.boxes_xyxy])[~record.iscrowd]
        found = np.column_stack([same.labels, same.boxes_xyxy])
        distance = np.abs(wanted[:, None] - found[None]).max(axis=2)
        assert wanted.shape == found.shape
        assert distance.min(axis=0, initial=9).max(initial=0) < 0.01 > distance.min(axis=1, initial=9).max(initial=0)
