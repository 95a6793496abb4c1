"""The wheel holds everything, and what it installs trains outside the checkout."""

from __future__ import annotations

import configparser
import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "conf", "msrun_cli", "hydra_plugins")

pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools 77: pip install -e .[dev]")
pytest.importorskip("build", reason="building needs the package build: pip install -e .[dev]")


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Standard output of the command; the test fails with both outputs when the exit code is not 0."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean | environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build/ or egg-info is left in (or taken from) the checkout."""
    source = tmp_path_factory.mktemp("source tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)  # with __pycache__, as in a used checkout
        else:
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", source, cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a fresh environment with the wheel; the dependencies are those of this environment."""
    home = tmp_path_factory.mktemp("fresh environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    # Paths from a .pth file come last and their own .pth files are not read: an editable install stays invisible.
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def test_every_yaml_file_of_conf_is_inside(names: set[str]) -> None:
    expected = {f"msrun_cli/conf/{path.relative_to(ROOT / 'conf')}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert len(expected) > 20
    assert {name for name in names if name.endswith(".yaml")} == expected


def test_every_module_is_inside_and_nothing_else(names: set[str]) -> None:
    expected = {
        str(path.relative_to(ROOT)) for top in ("msrun_cli", "hydra_plugins") for path in (ROOT / top).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == expected
    tables = {str(path.relative_to(ROOT)) for path in (ROOT / "msrun_cli" / "environment").glob("*.json")}
    assert len(tables) == 2 and {name for name in names if name.endswith(".json")} == tables
    kernels = {str(path.relative_to(ROOT)) for path in (ROOT / "msrun_cli" / "kernels" / "source").iterdir()}
    assert len(kernels) >= 4 and kernels <= names
    rest = {name for name in names - kernels if not name.endswith((".py", ".yaml", ".json"))}
    assert all(".dist-info/" in name for name in rest), rest


def test_hydra_plugins_is_a_namespace(names: set[str]) -> None:
    assert any(name.startswith("hydra_plugins/msrun_launcher/") for name in names)
    assert "hydra_plugins/__init__.py" not in names


def test_entry_points_and_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")).removesuffix(
            "METADATA"
        )
        entry_points = configparser.ConfigParser()
        entry_points.read_string(archive.read(f"{info}entry_points.txt").decode())
        metadata = email.message_from_string(archive.read(f"{info}METADATA").decode())
        license_text = archive.read(f"{info}licenses/LICENSE")
    main = "msrun_cli.cli.dispatch:main"
    assert dict(entry_points["console_scripts"]) == {"msrun": main, "msrun-cli": main}
    assert set(metadata["Requires-Python"].split(",")) == {">=3.10", "<3.13"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert license_text == (ROOT / "LICENSE").read_bytes()


def test_configuration_is_found_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    for program in ("msrun", "msrun-cli"):
        assert "yolov5n" in run(installed / program, "train", "--cfg", "job", cwd=tmp_path)
    where = run(installed / "python", "-c", "import msrun_cli; print(msrun_cli.__file__)", cwd=tmp_path)
    assert str(installed.parent) in where


def test_installed_program_trains(installed: Path, tmp_path: Path) -> None:
    command = (installed / "msrun", "train", "debug=fast", "max_steps=2", "output_dir=runs")
    run(*command, cwd=tmp_path, MSRUN_CACHE_DIR=str(tmp_path / "cache"))
    (result,) = (tmp_path / "runs").rglob("return_value.json")
    assert "map50_95" in json.dumps(json.loads(result.read_text()))
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("runs", "cache")]
    assert shutil.which("g++") is None or list((tmp_path / "cache" / "kernels").glob("*.so"))
