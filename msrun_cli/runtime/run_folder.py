"""The folder of one run: what was asked, what was resolved, where it ran, what came out."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msrun_cli import __version__
from msrun_cli.common.errors import ConfigError
from msrun_cli.common.files import write_json, write_text
from msrun_cli.runtime.process import ONEDNN_ISA

PACKAGES = (
    "mindspore",
    "numpy",
    "opencv-python",
    "pycocotools",
    "hydra-core",
    "omegaconf",
    "typer",
    "rich",
    "matplotlib",
)


@dataclass(frozen=True)
class RunFolder:
    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def plots(self) -> Path:
        return self.root / "plots"

    @property
    def compiler(self) -> Path:
        return self.root / "compiler"

    @property
    def logs(self) -> Path:
        """What the processes of a launched job printed."""
        return self.root / "logs"

    @property
    def metrics_csv(self) -> Path:
        return self.root / "metrics.csv"

    @property
    def bad_samples_csv(self) -> Path:
        return self.root / "bad_samples.csv"

    @property
    def log(self) -> Path:
        return self.root / "train.log"

    def write_result(self, result: dict[str, Any]) -> None:
        """return_value.json: the objective and the final metrics, what sweeps and scripts read."""
        write_json(self.root / "return_value.json", result)


def open_run_folder(
    root: str | Path, config_yaml: str, overrides_yaml: str, checks: dict[str, Any] | None = None
) -> RunFolder:
    """Create the folder with config.yaml, overrides.yaml and environment.json.

    checks: what `check-env` found, for environment.json

    Raises:
        ConfigError: the folder cannot be written.
    """
    folder = RunFolder(Path(root))
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        write_text(folder.root / "config.yaml", config_yaml)
        write_text(folder.root / "overrides.yaml", overrides_yaml)
        write_environment(folder.root / "environment.json", checks)
    except OSError as error:
        raise ConfigError(
            f"The run folder {folder.root} cannot be written ({error.strerror}). Set output_dir to a folder "
            f"that you own."
        ) from error
    return folder


def write_environment(path: Path, checks: dict[str, Any] | None) -> None:
    """The facts of this machine, and what `check-env` found on it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, environment_facts() | {"checks": checks or {}})


def environment_facts() -> dict[str, Any]:
    """Versions and machine, for reproducing a run and for reports."""
    return {
        "msrun": __version__,
        "command": shlex.join(sys.argv),
        "working_directory": os.getcwd(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        ONEDNN_ISA: os.environ.get(ONEDNN_ISA),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
