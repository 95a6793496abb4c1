"""The library of kernels is made once, and where that fails the reason is told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from msrun_cli.common.errors import DeviceError
from msrun_cli.kernels import library as module
from msrun_cli.kernels.library import kernel_library


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "a cache 缓存"
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def fake_compiler(folder: Path, script: str) -> str:
    path = folder / "fake++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_made_once_and_found_again(library, cache, monkeypatch):
    first = kernel_library("on")
    made = first.stat().st_mtime_ns
    monkeypatch.setattr(module, "COMPILERS", ())  # a compiler is no longer needed
    assert kernel_library("auto") == first and first.stat().st_mtime_ns == made
    assert [path.name for path in (cache / "kernels").iterdir()] == [first.name]


def test_a_library_from_a_path_with_spaces_and_chinese_characters_is_used(library, cache, tmp_path):
    made = kernel_library("on")
    code = (
        "import sys, numpy as np, mindspore as ms; from pathlib import Path\n"
        "from msrun_cli.kernels.operators import square_sum\n"
        "print(square_sum(Path(sys.argv[1]))(ms.Tensor(np.full((2, 3), 2.0, np.float32)))[0])"
    )
    root = Path(module.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code, str(made)], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == "24.0", result.stderr


def test_off_makes_nothing(cache):
    assert kernel_library("off") is None and not cache.exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'cc1plus: error: bad value native for -march' >&2; exit 1", "bad value native"),
        ("exit 3", "failed: ?"),
        ('while [ $# -gt 1 ]; do shift; done; echo no library > "$1"', "cannot be loaded"),
    ],
    ids=["an error", "no words", "something else"],
)
def test_a_compiler_that_fails_is_told_or_done_without(script, words, cache, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "msrun")
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, script))
    assert kernel_library("auto") is None and words in caplog.text
    with pytest.raises(DeviceError, match="device.kernels=on") as caught:
        kernel_library("on")
    assert words in str(caught.value) and "device.kernels=auto" in str(caught.value)
    assert not [path for path in cache.rglob(".*")]


def test_without_a_compiler(cache, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "msrun")
    monkeypatch.setattr(module, "COMPILERS", ("no-such-compiler",))
    assert kernel_library("auto") is None and "there is no C++ compiler" in caplog.text
    monkeypatch.setenv("CXX", "clang-99")
    with pytest.raises(DeviceError, match="CXX=clang-99 is not there"):
        kernel_library("on")


def test_a_compiler_that_hangs_is_stopped(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(module, "COMPILE_TIMEOUT_S", 0.2)
    with pytest.raises(DeviceError, match="had not finished after 0.2 s"):
        kernel_library("on")


def test_a_cache_that_cannot_be_written(library, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "msrun")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "file"))
    assert kernel_library("auto") is None and "cannot be written" in caplog.text


def test_a_cache_that_may_not_be_entered(cache, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "msrun")

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", forbidden)
    assert kernel_library("auto") is None and "Permission denied" in caplog.text
    with pytest.raises(DeviceError, match="Permission denied"):
        kernel_library("on")


def test_places_from_which_mindspore_takes_none(cache, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "msrun")
    monkeypatch.setenv("MS_CUSTOM_AOT_WHITE_LIST", str(tmp_path / "elsewhere"))
    assert kernel_library("auto") is None and "MS_CUSTOM_AOT_WHITE_LIST forbids" in caplog.text
    monkeypatch.delenv("MS_CUSTOM_AOT_WHITE_LIST")
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "a:b"))
    assert kernel_library("auto") is None and "colon" in caplog.text


@pytest.mark.parametrize("what", ["library", "folder"])
def test_a_library_that_others_could_have_written_is_not_loaded(what, library, cache, caplog):
    caplog.set_level(logging.INFO, "msrun")
    made = kernel_library("on")
    (made if what == "library" else made.parent).chmod(0o777)
    assert kernel_library("auto") is None and "can be written by all" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_library_of_another_user_is_not_loaded(library, cache):
    made = kernel_library("on")
    os.chown(made, 12345, -1)
    with pytest.raises(DeviceError, match="another user's"):
        kernel_library("on")


def test_another_processor_gets_a_library_of_its_own(library, cache, monkeypatch):
    first = kernel_library("on")
    monkeypatch.setattr(module, "_abilities", lambda: ["flags : other"])
    assert kernel_library("on") != first


def test_only_the_newest_are_kept(library, cache, monkeypatch):
    folder = cache / "kernels"
    folder.mkdir(parents=True)
    for index in range(module.LIBRARIES_KEPT + 3):
        path = folder / f"old{index}.so"
        path.touch()
        os.utime(path, (index, index))
    made = kernel_library("on")
    left = {path.name for path in folder.iterdir()}
    assert made.name in left and len(left) == module.LIBRARIES_KEPT and "old0.so" not in left
