"""Dependencies and scripts: every dependency is pinned within its bounds, and the scripts say what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("scripts/setup_env.sh", "scripts/test.sh", "scripts/test_versions.sh", "scripts/demo.sh", ".ci/run")


def pins(python: str) -> dict[str, str]:
    """Version by canonical name for a Python such as "3.11"; each line of constraints.txt must be one exact pin."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        assert re.fullmatch(r"==[0-9.a-z]+", str(requirement.specifier)) and requirement.url is None, line
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice for Python {python}"
            found[name] = str(requirement.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12"])
def test_every_dependency_is_pinned_within_its_bounds(python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = pins(python)
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text} does not allow {version}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_valid_and_executable(script: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert os.access(ROOT / script, os.X_OK)


def test_setup_says_which_python_is_missing(tmp_path: Path) -> None:
    checkout = tmp_path / "path with spaces"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup_env.sh", checkout / "scripts")
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    done = subprocess.run(
        ["bash", str(checkout / "scripts/setup_env.sh")],
        env={"PATH": os.environ["PATH"], "MSRUN_PYTHON": "/nowhere/python3"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "MSRUN_PYTHON is /nowhere/python3" in done.stderr and "Python 3.10, 3.11 or 3.12" in done.stderr
    assert not (checkout / ".venv").exists()


def run_versions(environments: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts/test_versions.sh"), *words],
        env={"PATH": os.environ["PATH"], "MSRUN_VERSIONS_DIR": str(environments)},
        cwd="/",
        capture_output=True,
        text=True,
    )


def test_a_version_without_python_is_a_failure_unless_that_is_allowed(tmp_path: Path) -> None:
    done = run_versions(tmp_path, "3.99:2.10")
    assert done.returncode == 1
    assert re.search(r"^3\.99 +2\.10 +not run: no python3\.99 on PATH or in pyenv$", done.stdout, re.MULTILINE)
    assert run_versions(tmp_path, "--allow-missing", "3.99:2.10").returncode == 0


@pytest.mark.parametrize("word", ["3.11", "2.7.2", "--all", "3.11:", "3.11:2.7.2 3.12:2.10"])
def test_versions_refuses_what_is_no_pair(tmp_path: Path, word: str) -> None:
    done = run_versions(tmp_path, word)
    assert done.returncode == 2 and f'"{word}" is no pair of versions' in done.stderr
