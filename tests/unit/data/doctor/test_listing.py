from __future__ import annotations

from pathlib import Path

import pytest
from odd_images import encoded

from msrun_cli.common.errors import DataError
from msrun_cli.data.doctor.listing import folders_of, list_images, read_class_folders


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(".jpg"))
    return path


@pytest.mark.parametrize("val", ["val", "valid", "test"])
def test_class_folders(tmp_path: Path, val: str) -> None:
    for name in ("train/猫/1.jpg", "train/猫/deep/2.jpg", "train/dog/3.txt", "train/.hidden/4.jpg", "train/dog/.5.jpg"):
        touch(tmp_path / name)
    touch(tmp_path / val / "bird" / "6.jpg")
    touch(tmp_path / "train" / "loose.jpg")
    data = read_class_folders(str(tmp_path))
    assert data.class_names == ("bird", "dog", "猫") and data.task == "classification"
    assert [Path(item.image_path).name for item in data.train.records] == ["3.txt", "1.jpg", "2.jpg"]
    assert data.train.classes.tolist() == [1, 2, 2] and data.val.classes.tolist() == [0]
    assert any("1 files beside the class folders left out" in note for note in data.notes)


def test_class_folders_without_val_or_train(tmp_path: Path) -> None:
    touch(tmp_path / "train" / "a" / "1.jpg")
    data = read_class_folders(str(tmp_path))
    assert len(data.val.records) == 0 and any("no val folder" in note for note in data.notes)
    with pytest.raises(DataError, match="no folder train"):
        read_class_folders(str(tmp_path / "train"))
    touch(tmp_path / "c" / "val" / "a" / "1.jpg")
    only_val = read_class_folders(str(tmp_path / "c"))
    assert len(only_val.train.records) == 0 and len(only_val.val.records) == 1
    assert any("no train folder" in note for note in only_val.notes)
    with pytest.raises(DataError, match="no folder training"):
        read_class_folders(str(tmp_path / "c"), train="training")
    (tmp_path / "b" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="one for each class"):
        read_class_folders(str(tmp_path / "b"))


def test_images_below_what_the_settings_name(tmp_path: Path) -> None:
    touch(tmp_path / "set" / "images" / "train" / "a.jpg")
    touch(tmp_path / "set" / "images" / "train" / "note.txt")
    (tmp_path / "set" / "images" / "train" / "link.png").symlink_to("nowhere")
    data_yaml = tmp_path / "data.yaml"
    data_yaml.write_text("path: set\ntrain: images/train\nval: [images/none]\nnames: [a]\n")
    folders = folders_of([str(data_yaml), "no such folder", "yolo"])
    assert folders == [str(tmp_path / "set" / "images" / "train")]
    assert [Path(item.image_path).name for item in list_images(folders).records] == ["a.jpg", "link.png"]
    data_yaml.write_text("[1, 2")
    assert folders_of([str(data_yaml)]) == [str(tmp_path)]
    assert len(list_images([]).records) == 0


def test_split_folders_of_other_names(tmp_path: Path) -> None:
    for name in ("a/cat/1.jpg", "b/cat/2.jpg", "b/cat/3.jpg"):
        touch(tmp_path / name)
    data = read_class_folders(str(tmp_path), train="a", val="b")
    assert (len(data.train.records), len(data.val.records)) == (1, 2)
    with pytest.raises(DataError, match="no folder nowhere"):
        read_class_folders(str(tmp_path), train="a", val="nowhere")
    with pytest.raises(DataError, match="no folder c"):
        read_class_folders(str(tmp_path), train="c")
