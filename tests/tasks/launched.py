"""Jobs of two processes on tiny data, and what they leave."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import environment

from msrun_cli.engine.checkpoint import read_checkpoint

TASKS = Path(__file__).resolve().parent
# Nine pictures for validation: not divisible by two.
SETTINGS = (
    "model=custom", "model.network.cell._target_=small_networks.Small", "dataset=imagefolder", "device=cpu",
    "image_size=32", "epochs=2", "logger.every=1", "optimizer.lr=0.1", "schedule.warmup_epochs=0", "dataset.workers=1",
    "checkpoint.every=1", "evaluate_every=1",
)  # fmt: skip
WITH_NORM = "+model.network.cell.norm=true"


def own_environment() -> dict[str, str]:
    found = environment(MSRUN_TARGET_PREFIXES="small_networks")
    found["PYTHONPATH"] = os.pathsep.join([found["PYTHONPATH"], str(TASKS)])
    return found


def run(command: str, *words: str, cwd: Path, timeout: int = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "msrun_cli", command, *words],
        cwd=cwd, env=own_environment(), capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


@contextmanager
def started(*words: str, cwd: Path, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A training in a process group of its own, whose standard output can be read; ended at the latest here."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "msrun_cli", "train", *words],
        cwd=cwd, env=own_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read standard output until a line holds the text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f'"{text}" never came: {process.stderr.read() if process.stderr else ""}')


def of_job(run_folder: Path) -> dict[str, int]:
    """Living processes of the job that writes there: "0", "1", ... or "scheduler" -> process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            pairs = [item.split("=", 1) for item in (entry / "environ").read_text(errors="replace").split("\0")]
        except (OSError, NotADirectoryError):
            continue
        values = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
        if values.get("MSRUN_RUN_FOLDER") == str(run_folder):
            found["scheduler" if values.get("MS_ROLE") == "MS_SCHED" else values["RANK_ID"]] = int(entry.name)
    return found


def nothing_left(run_folder: Path, seconds: float = 2) -> bool:
    end = time.monotonic() + seconds
    while of_job(run_folder) and time.monotonic() < end:
        time.sleep(0.1)
    return not of_job(run_folder)


def losses(run_folder: Path) -> list[float]:
    """Of each logged step."""
    with (run_folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file) if row["kind"] == "step"]


def metrics(run_folder: Path) -> list[tuple[str, ...]]:
    """Of each evaluation."""
    with (run_folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "epoch"]
    return [(row["step"], row["top1"], row["top5"], row["mean_class_accuracy"]) for row in rows]


def said_by(rank: int, run_folder: Path) -> tuple[list[str], list[str]]:
    """What a rank printed: the losses of its steps, and the metrics of its evaluations, as texts."""
    text = (run_folder / "logs" / f"worker_{rank}.log").read_text(encoding="utf-8")
    return re.findall(r"  step \d+/\d+ .*  loss (\S+)", text), re.findall(r"evaluated in \S+ s: (.*)", text)


def parameters(run_folder: Path) -> dict:
    """Arrays of last.ckpt by name, with the optimizer's state."""
    return read_checkpoint(run_folder / "checkpoints" / "last.ckpt").arrays
