"""A training that breaks in a later epoch ends with its cause, and the checkpoints from before are as they were."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from command import msrun, only_run
from test_classification import SMALL, write_folders

from msrun_cli.engine.checkpoint import read_checkpoint
from msrun_cli.engine.diagnosis import BATCH_FILE


def hashes(run: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (run / "checkpoints").glob("*.ckpt")}


def test_a_loss_of_nan_in_a_later_epoch(tmp_path):
    """Two good epochs of six steps; the next one has a learning rate that destroys the network in its first step."""
    root = write_folders(tmp_path / "data")
    words = (*SMALL, f"dataset.root={root}", "batch_size=2", "loss_scale=none", "overflow.max_consecutive=3")
    done = msrun("train", *words, "epochs=2", "evaluate_every=1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(tmp_path / "outputs" / "train")
    before = hashes(run)
    assert {"best.ckpt", "last.ckpt", "last_2.ckpt"} <= set(before)

    absurd = ("epochs=4", "optimizer.lr=1e39", "schedule.warmup_epochs=0")
    done = msrun("train", f"resume={run}", *absurd, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Training stopped at step 16" in done.stderr and "the last 3 steps were skipped" in done.stderr
    assert "The loss itself is not finite" in done.stderr
    assert "first bad one on this way is" in done.stderr and "its images are" in done.stderr
    assert (run / BATCH_FILE).is_file()

    assert hashes(run) == before
    for name in before:
        checkpoint = read_checkpoint(run / "checkpoints" / name)
        assert checkpoint.state["step"] in (6, 12)
        assert [key for key, array in checkpoint.arrays.items() if not np.isfinite(array).all()] == []
