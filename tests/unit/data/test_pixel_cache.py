from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from msrun_cli.common.errors import DataError
from msrun_cli.data.pixel_cache import GIB, PixelCache, free_memory, open_cache

SHAPES = np.array([(4, 6), (3, 3), (5, 2)])


def picture(index: int) -> np.ndarray:
    height, width = SHAPES[index]
    return np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture(params=["ram", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> PixelCache:
    return PixelCache(SHAPES, 10**6, None if request.param == "ram" else tmp_path / "a b 数据" / "x.pixels")


def test_pictures_come_back_as_they_were(cache: PixelCache) -> None:
    assert not any(index in cache for index in range(4))
    for index in (2, 0, 1):
        np.testing.assert_array_equal(cache.keep(index, picture(index)), picture(index))
    for index in range(3):
        assert index in cache
        np.testing.assert_array_equal(cache[index], picture(index))
        assert not cache[index].flags.writeable


def test_what_does_not_fit_is_used_but_not_kept(tmp_path: Path) -> None:
    cache = PixelCache(SHAPES, 4 * 6 * 3 + 3 * 3 * 3 + 1)
    assert (cache.count, cache.total, cache.bytes) == (2, 3, 99)
    last = picture(2)
    assert cache.keep(2, last) is last and 2 not in cache
    assert PixelCache(SHAPES, 0).count == 0 and PixelCache(SHAPES[:0], 100).count == 0


def test_a_picture_of_another_size_is_not_kept(cache: PixelCache) -> None:
    wrong = np.zeros((6, 4, 3), np.uint8)
    assert cache.keep(0, wrong) is wrong and 0 not in cache


def test_the_next_run_finds_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.pixels"
    first = PixelCache(SHAPES, 10**6, path)
    first.keep(1, picture(1))
    at_once = PixelCache(SHAPES, 10**6, path)  # a second run meanwhile: nothing is known to be on the disk yet
    assert 1 not in at_once
    at_once.keep(0, picture(0))
    del first
    later = PixelCache(SHAPES, 10**6, path)
    assert [index in later for index in range(3)] == [False, True, False]
    np.testing.assert_array_equal(later[1], picture(1))


def test_a_run_that_is_killed_leaves_no_half_picture(tmp_path: Path) -> None:
    script = (
        "import os, sys, numpy as np; from pathlib import Path; from msrun_cli.data.pixel_cache import PixelCache\n"
        "cache = PixelCache(np.array([(40, 60)] * 3), 10**6, Path(sys.argv[1]))\n"
        "cache.keep(0, np.full((40, 60, 3), 9, np.uint8)); os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "x.pixels"
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=Path(__file__).parents[3], check=False)
    assert path.is_file() and 0 not in PixelCache(np.array([(40, 60)] * 3), 10**6, path)


def test_an_index_without_its_pixels_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.pixels"
    cache = PixelCache(SHAPES, 10**6, path)
    cache.keep(0, picture(0))
    del cache
    path.unlink()
    assert 0 not in PixelCache(SHAPES, 10**6, path)


def test_a_full_disk_ends_the_caching_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = PixelCache(SHAPES, 10**6, tmp_path / "x.pixels")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with caplog.at_level(logging.WARNING, "msrun"):
        for index in (0, 1):
            np.testing.assert_array_equal(cache.keep(index, picture(index)), picture(index))
            assert index not in cache
    (message,) = [record.getMessage() for record in caplog.records]
    assert "No space left" in message and "dataset.cache=disk" in message


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"dataset.cache=disk: .*MSRUN_CACHE_DIR"):
        PixelCache(SHAPES, 10**6, tmp_path / "file" / "x.pixels")


def opened(kind: str, files: list[str], limit: float | None = None, setting: tuple = ()) -> PixelCache | None:
    return open_cache(kind, "train", SHAPES, limit, lambda: files, setting)


def test_the_size_is_said_beforehand(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "msrun"):
        assert opened("none", []) is None
        opened("ram", [], limit=100 / GIB)
        opened("ram", [])
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("dataset.cache=ram: 2 of 3 train pictures fit, 0.00 GiB")
    assert "3 of 3" in second and "half of" in second
    assert 0 < free_memory()


def test_a_limit_beyond_the_memory_is_warned_of(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("msrun_cli.data.pixel_cache.free_memory", lambda: 50)
    with caplog.at_level(logging.WARNING, "msrun"):
        opened("ram", [], limit=1.0)
    assert "dataset.cache_limit_gib=1" in caplog.records[-1].getMessage()


def test_a_disk_cache_belongs_to_files_and_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "a.jpg"
    file.write_bytes(b"1")
    names = [str(file), str(tmp_path / "missing.jpg")]

    def kept() -> set[str]:
        return {path.name for path in (tmp_path / "cache" / "pixels").glob("*.pixels")}

    opened("disk", names)
    opened("disk", names)
    assert len(kept()) == 1
    opened("disk", names, setting=(640,))
    assert len(kept()) == 2
    file.write_bytes(b"12")
    opened("disk", names)
    assert len(kept()) == 3
