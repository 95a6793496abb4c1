from __future__ import annotations

import hashlib
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from msrun_cli.common.errors import DataError
from msrun_cli.data.images import read_rgb
from msrun_cli.data.shape_pictures import CLASS_NAMES, draw_picture
from msrun_cli.data.shapes import read_shapes

SETTINGS = {"train_images": 6, "val_images": 3, "canvas": 64}


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_dataset_is_generated_once(cache: Path) -> None:
    data = read_shapes(**SETTINGS)
    assert [len(split.records) for split in (data.train, data.val)] == [6, 3]
    assert data.class_names == CLASS_NAMES
    for record in data.train.records:
        assert 1 <= len(record.labels) <= 6
        assert read_rgb(record.image_path, 64, 64).shape == (64, 64, 3)
    (folder,) = cache.iterdir()
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    read_shapes(**SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times
    read_shapes(**SETTINGS, generator_seed=1)
    assert len(list(cache.iterdir())) == 2


def test_the_same_settings_give_the_same_bytes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_shapes(**SETTINGS)
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(cache / "again"))
    read_shapes(**SETTINGS)
    (again,) = (cache / "again").iterdir()
    assert digest(cache / again.name) == digest(again) and len(digest(again)) == 11


def test_train_and_val_hold_different_pictures(cache: Path) -> None:
    data = read_shapes(**SETTINGS)
    contents = {Path(r.image_path).read_bytes() for split in (data.train, data.val) for r in split.records}
    assert len(contents) == 9


def test_processes_that_start_together_agree(cache: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        lengths = pool.map(_generate, range(2))
    assert lengths == [6, 6]
    assert [path.name.startswith("shapes-") for path in cache.iterdir()] == [True]


def _generate(_: int) -> int:
    return len(read_shapes(**SETTINGS).train.records)


def test_an_interrupted_generation_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("msrun_cli.data.shapes.draw_picture", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_shapes(**SETTINGS)
    assert list(cache.iterdir()) == []


def test_wrong_settings_and_an_unwritable_cache_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"dataset.train_images=0 .*dataset.canvas=8 "):
        read_shapes(train_images=0, canvas=8)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="MSRUN_CACHE_DIR"):
        read_shapes(**SETTINGS)


def test_pictures_hold_what_their_boxes_say() -> None:
    shapes, sides = [], []
    for index in range(60):
        picture, boxes, labels = draw_picture(np.random.default_rng(index), 96)
        assert picture.shape == (96, 96, 3) and picture.dtype == np.uint8
        assert 1 <= len(labels) == len(boxes) <= 6
        assert (boxes[:, :2] >= 0).all() and (boxes[:, :2] + boxes[:, 2:] <= 96).all() and (boxes[:, 2:] > 2).all()
        shapes.extend(labels.tolist())
        sides.extend((boxes[:, 2:].max(axis=1) / 96).tolist())
    assert set(shapes) == set(range(len(CLASS_NAMES)))
    assert 0.2 < np.median(sides) < 0.45
