"""Kill a training again and again, go on each time, and compare with one that nobody disturbed.

    .venv/bin/python scripts/soak_resume.py --kills 30

Every second kill is SIGKILL, the others SIGTERM, each at a random moment after the first step. The last line is JSON:
kills; lost: checkpoints that did not load afterwards, or a last.ckpt that was there before and is not; different: rows
of metrics.csv whose loss differs from the undisturbed run's in any bit; rows: how many were compared.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msrun_cli.common.errors import CheckpointError
from msrun_cli.runtime.process import prepare_process

COMMON = ("dataset.train_images=32", "dataset.val_images=8", "batch_size=8", "image_size=64", "logger.every=3")
STEPS_PER_EPOCH = 4
EXACT = ("kind", "epoch", "step", "loss", "box", "obj", "cls", "lr", "grad_norm", "map50_95")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--mode", default="graph", choices=("graph", "pynative"))
    options = parser.parse_args()
    prepare_process()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(soak(Path(folder), options.kills, options.seed, options.mode)))


def soak(folder: Path, kills: int, seed: int, mode: str) -> dict[str, int]:
    epochs = max(3, kills)  # about one kill an epoch
    words = [
        *COMMON,
        f"epochs={epochs}",
        f"device.mode={mode}",
        "device.deterministic=true",
        "checkpoint.every_steps=3",
    ]
    subprocess.run(command(*words, f"hydra.run.dir={folder / 'whole'}"), check=True, stdout=subprocess.DEVNULL)
    broken = folder / "broken"
    rng = random.Random(seed)
    done = lost = 0
    start = [*words, f"hydra.run.dir={broken}"]
    while done < kills:
        number = signal.SIGKILL if done % 2 == 0 else signal.SIGTERM
        if not killed(command(*start), rng.uniform(0, 2.5), number):
            break  # it was through before the kill
        done += 1
        lost += unreadable(broken / "checkpoints")
        lost += start == [f"resume={broken}"] and not (broken / "checkpoints" / "last.ckpt").exists()
        print(f"kill {done}: {number.name}, {last_step(broken)} of {epochs * STEPS_PER_EPOCH} steps", file=sys.stderr)
        if (broken / "checkpoints" / "last.ckpt").exists():
            start = [f"resume={broken}"]
    subprocess.run(command(*start), check=True, stdout=subprocess.DEVNULL)
    whole, again = rows(folder / "whole"), rows(broken)
    different = sum(a != b for a, b in zip(whole, again, strict=False)) + abs(len(whole) - len(again))
    return {"kills": done, "lost": lost, "different": different, "rows": len(whole)}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "msrun_cli", "train", *words]


def killed(words: list[str], delay_s: float, number: signal.Signals) -> bool:
    """Run until a random moment after the first logged step; False when the run ended by itself."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "step " in line and "loss " in line:
            break
    time.sleep(delay_s)
    ended = process.poll() is not None
    if not ended:
        os.killpg(process.pid, number)
    process.stdout.read()
    return process.wait() != 0 or not ended


def unreadable(folder: Path) -> int:
    from msrun_cli.engine.checkpoint import read_checkpoint

    count = 0
    for path in folder.glob("[!.]*.ckpt"):
        try:
            read_checkpoint(path)
        except CheckpointError as error:
            print(error, file=sys.stderr)
            count += 1
    return count


def last_step(run: Path) -> int:
    found = rows(run)
    return int(found[-1]["step"]) if found else 0


def rows(run: Path) -> list[dict[str, str]]:
    """Columns of metrics.csv that do not depend on the clock."""
    try:
        with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
            return [{name: row[name] for name in EXACT} for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    main()
