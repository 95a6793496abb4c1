"""What a resumed run takes over, says and refuses, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config import resume


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "运行 1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "运行 1" / "checkpoints" / "last.ckpt").write_bytes(b"")
    (tmp_path / "运行 1" / "config.yaml").write_text("freeze: [a.*]\nepochs: 3\noptimizer: {lr: 0.1}\n")
    return tmp_path / "运行 1"


def take_over(run: Path, overrides: list[str], **values) -> list[str]:
    config = OmegaConf.create(
        {
            "resume": str(run / "checkpoints" / "last.ckpt"),
            "epochs": 3,
            "freeze": [],
            "optimizer": {"lr": 0.1},
            **values,
        }
    )
    return resume.take_over(config, overrides)[3]


def test_changes_are_said(run):
    assert "epochs=9 (was 3)" in take_over(run, ["epochs=9"], epochs=9)[0]
    assert take_over(run, []) == []


def test_what_is_frozen_stays_so(run):
    with pytest.raises(ConfigError, match=r"freeze=\[b.\*\] does not go with resume.*freeze=\[a.\*\].*weights="):
        take_over(run, ["freeze=[b.*]"], freeze=["b.*"])
    assert take_over(run, ["freeze=[a.*]"], freeze=["a.*"]) == []
