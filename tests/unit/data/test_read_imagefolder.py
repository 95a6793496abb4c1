"""What counts as a picture of a class, and the sentences for folders that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from class_folders import CLASSES, write_class_folders, write_picture

from msrun_cli.common.errors import ConfigError, DataError
from msrun_cli.data.imagefolder import read_imagefolder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "图像 data", train=4, val=2)


def test_classes_are_the_sorted_folders(root):
    data = read_imagefolder(str(root))
    assert data.class_names == CLASSES
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert [Path(path).name for path in data.val.paths] == [f"{name}{i}.jpg" for name in CLASSES for i in range(2)]
    assert any("12 pictures of 3 classes" in note for note in data.notes)


def test_without_val_evaluation_uses_train_and_says_so(root):
    shutil.rmtree(root / "val")
    data = read_imagefolder(str(root))
    assert data.val.paths == data.train.paths and data.val.name == "val"
    assert any("no val folder" in note for note in data.notes)


def test_val_alone_is_for_evaluation(root):
    shutil.rmtree(root / "train")
    data = read_imagefolder(str(root))
    assert len(data.val.paths) == 6 and not data.train.paths
    assert any("evaluation only" in note for note in data.notes)


@pytest.mark.parametrize("name", ["valid", "validation"])
def test_other_names_of_val(root, name):
    (root / "val").rename(root / name)
    assert len(read_imagefolder(str(root)).val.paths) == 6


def test_named_folders(root):
    (root / "val").rename(root / "holdout")
    assert len(read_imagefolder(str(root), val="holdout").val.paths) == 6
    with pytest.raises(DataError, match="no folder .*holdup.*Folders there: holdout, train"):
        read_imagefolder(str(root), val="holdup")


def test_missing_and_extra_classes_are_named(root):
    (root / "val" / "bees").rename(root / "val" / "flies")
    with pytest.raises(DataError, match="lacks bees and has flies"):
        read_imagefolder(str(root))


def test_other_files_are_counted_or_an_error(root):
    (root / "train" / "ants" / "notes.txt").write_text("text")
    (root / "train" / "ants" / "moving.gif").write_bytes(b"GIF89a")
    (root / "train" / "README").write_text("text")
    data = read_imagefolder(str(root))
    assert len(data.train.paths) == 12
    (note,) = [note for note in data.notes if "no pictures" in note]
    assert "3 files" in note and "notes.txt" in note and "moving.gif" in note and "README" in note
    with pytest.raises(DataError, match="3 files are no pictures.*on_bad_sample=skip"):
        read_imagefolder(str(root), on_bad_sample="error")


def test_nested_folders_count_for_their_class_and_links_are_followed(root, tmp_path):
    write_picture(root / "train" / "bees" / "2024" / "may" / "x.PNG".lower(), 9)
    write_picture(tmp_path / "elsewhere" / "y.JPG".lower(), 9)
    (root / "train" / "wasps" / "link").symlink_to(tmp_path / "elsewhere")
    data = read_imagefolder(str(root))
    assert data.train.labels.tolist() == [0] * 4 + [1] * 5 + [2] * 5
    assert any("2 pictures lie deeper" in note for note in data.notes)


def test_upper_case_suffixes_are_pictures(root):
    path = root / "train" / "ants" / "ants0.jpg"
    path.rename(path.with_name("ANTS0.JPG"))
    assert len(read_imagefolder(str(root)).train.paths) == 12


def test_folders_that_cannot_be_used(root, tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        read_imagefolder(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="neither train/ nor val/.*Folders there: ants, bees, wasps"):
        read_imagefolder(str(root / "train"))
    (root / "train" / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no picture"):
        read_imagefolder(str(root))
    (tmp_path / "bare" / "train").mkdir(parents=True)
    write_picture(tmp_path / "bare" / "train" / "a.jpg", 1)
    with pytest.raises(DataError, match="no class folders"):
        read_imagefolder(str(tmp_path / "bare"))
    with pytest.raises(DataError, match="one class only .*ants"):
        read_imagefolder(str(write_class_folders(tmp_path / "one", classes=("ants",))))


@pytest.mark.parametrize("setting", [{"normalize_on": "gpu"}, {"on_bad_sample": "maybe"}])
def test_unknown_values(root, setting):
    with pytest.raises(ConfigError, match="must be"):
        read_imagefolder(str(root), **setting)
