"""What counts as a picture of a class, and the sentences for folders that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from class_folders import CLASSES, write_class_folders, write_picture

from msrun_cli.common.errors import ConfigError, DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.imagefolder import fingerprint, read_imagefolder
from msrun_cli.data.screening import screen


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


def test_other_files_are_counted_or_an_error(root, tmp_path):
    (root / "train" / "ants" / "notes.txt").write_text("text")
    (root / "train" / "ants" / "moving.gif").write_bytes(b"GIF89a")
    (root / "train" / "README").write_text("text")
    (root / "train" / "wasps" / "empty.jpg").write_bytes(b"")
    data = read_imagefolder(str(root))
    assert len(data.train.paths) == 13
    with pytest.raises(DataError, match=r"4 of the 22 images are bad .*(.|\n)*README(.|\n)*on_bad_sample=skip"):
        screen(data, BadSamples("error"), check_images=True)
    screened = screen(data, BadSamples("skip", tmp_path / "bad.csv"), check_images=True)
    assert len(screened.train.paths) == len(screened.train.labels) == 12 and not screened.train.faults
    assert any("4 of 16 images are bad" in note for note in screened.notes)
    listed = (tmp_path / "bad.csv").read_text()
    assert all(name in listed for name in ("notes.txt", "moving.gif", "README", "empty.jpg"))


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


def test_unknown_values(root):
    with pytest.raises(ConfigError, match="must be"):
        read_imagefolder(str(root), normalize_on="gpu")


def test_the_fingerprint_knows_names_and_labels_but_not_folders(root, tmp_path):
    first = fingerprint(read_imagefolder(str(root)).train)
    shutil.copytree(root, tmp_path / "moved")
    assert fingerprint(read_imagefolder(str(tmp_path / "moved")).train) == first
    (tmp_path / "moved" / "train" / "ants" / "ants0.jpg").rename(tmp_path / "moved" / "train" / "bees" / "ants0.jpg")
    assert fingerprint(read_imagefolder(str(tmp_path / "moved")).train) != first


def test_a_screened_train_split_is_also_its_val(root):
    shutil.rmtree(root / "val")
    (root / "train" / "ants" / "ants1.jpg").write_bytes(b"no picture")
    data = screen(read_imagefolder(str(root)), BadSamples("skip"), check_images=True)
    assert data.val.name == "val" and data.val.paths == data.train.paths and len(data.train.paths) == 11
    assert len([note for note in data.notes if "bad and left out" in note]) == 1
