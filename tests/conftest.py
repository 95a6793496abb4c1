"""Settings that must stand before MindSpore is imported, and the folder of real data."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

_CACHE = tempfile.TemporaryDirectory(prefix="msrun-test-cache-")

# oneDNN is many times slower with AVX-512 than with AVX2 in some wheels, see runtime/mindspore_versions.py.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
os.environ.setdefault("GLOG_v", "3")
os.environ["MSRUN_CACHE_DIR"] = _CACHE.name

# A shell ignores SIGINT in what it starts in the background, and programs inherit that: tests of Ctrl-C would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of kernels; the test is skipped where it cannot be made."""
    from msrun_cli.kernels.library import kernel_library

    found = kernel_library("auto")
    if found is None:
        pytest.skip("no C++ compiler for the kernels")
    return found


@pytest.fixture(params=["operators", "kernels"])
def kernels(request: pytest.FixtureRequest) -> Path | None:
    """With MindSpore's operators, and with the library of kernels."""
    return None if request.param == "operators" else request.getfixturevalue("library")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with coco128/, bccd/, reference/ ...; the test is skipped where there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("MSRUN_TEST_DATA") or default)
    if not folder.is_dir():
        pytest.skip(f"no test data in {folder}: set MSRUN_TEST_DATA to their folder")
    return folder
