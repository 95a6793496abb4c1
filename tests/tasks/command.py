"""Runs the real command in a process of its own, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

# A few generated images and a small picture: seconds instead of minutes.
TINY = ("dataset.train_images=32", "dataset.val_images=8", "batch_size=8", "image_size=64")


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1", **extra}


def msrun(*words: str, cwd: Path, timeout: int = 300, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `msrun WORDS` in the folder `cwd`."""
    return subprocess.run(
        [sys.executable, "-m", "msrun_cli", *words],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def only_run(parent: Path) -> Path:
    """The one run folder below `parent` (outputs/<task>)."""
    found = [path.parent for path in parent.glob("*/*/config.yaml")]
    assert len(found) == 1, found
    return found[0]


def return_value(run: Path) -> dict:
    return json.loads((run / "return_value.json").read_text(encoding="utf-8"))
