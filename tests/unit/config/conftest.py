"""A task that needs no MindSpore, and `call`, which runs the program with it inside this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from msrun_cli.config import bridge

ROOT = Path(__file__).resolve().parents[3]

FAKE_TASK = """
import json
from pathlib import Path
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from msrun_cli.common.errors import DataError, Interrupted
from msrun_cli.config.inherit import run_record

SEEN = []

def train(config):
    SEEN.append(config)
    folder = Path(HydraConfig.get().runtime.output_dir)
    if config.seed == 13:
        raise DataError("images are missing")
    if config.seed == 14:
        raise RuntimeError("a bug")
    if config.seed == 15:
        raise Interrupted("stopped", 2)
    if config.seed == 16:
        import time
        (folder / "started").touch()
        time.sleep(60)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config, resolve=True))
    (folder / "overrides.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(run_record(config))))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "best.ckpt").touch()
    (folder / "return_value.json").write_text(json.dumps({"objective": config.optimizer.lr}))

def evaluate(config):
    SEEN.append(config)
"""

FAKE_PROGRAM = """
import sys
from msrun_cli.config import bridge

bridge.TRAIN = bridge.Command("train", "fake_task:train", (__file__,))
bridge.EVAL = bridge.Command("eval", "fake_task:evaluate", (__file__,))

from msrun_cli.cli.dispatch import main

sys.exit(main())
"""


@dataclass
class Result:
    code: int
    out: str
    err: str
    configs: list


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """call("train", "epochs=3", cfg="job") -> Result; the working directory is tmp_path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake_task.py").write_text(FAKE_TASK)
    (tmp_path / "fake_program.py").write_text(FAKE_PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.delitem(sys.modules, "fake_task", raising=False)
    program = (str(tmp_path / "fake_program.py"),)
    commands = {
        "train": bridge.Command("train", "fake_task:train", program),
        "eval": bridge.Command("eval", "fake_task:evaluate", program),
        "profile": bridge.Command("profile", "fake_task:train", program),
    }

    def run(command: str, *overrides: str, **flags: object) -> Result:
        code = bridge.run(commands[command], list(overrides), bridge.Flags(**flags))  # type: ignore[arg-type]
        out, err = capfd.readouterr()
        seen = sys.modules["fake_task"].SEEN if "fake_task" in sys.modules else []
        return Result(code, out, err, seen)

    return run
