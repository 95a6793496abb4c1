"""Trying a setting: a short profile with it, in a process of its own, compared with one without it.

MindSpore fixes the device and its graphs per process, and memory of one trial would stay with the next.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.profiling.document import FILE, read_document
from msrun_cli.profiling.proposals import FAILED, FASTER, SLOWER, UNCLEAR, Proposal

LEAST_GAIN = 0.03  # less is no reason to change a setting
_TIMEOUT_S = 900
_GRACE_S = 20
_RESAMPLES = 2000
# Key that the choice of a group is about: an older override of it would win over the choice.
_WITHIN = {"amp": "amp.level", "loss_scale": "loss_scale.type"}


@dataclass(frozen=True)
class Trial:
    """What a process measured: its document, or why there is none. folder: its run folder, with output.log."""

    folder: Path
    document: dict[str, Any] | None
    error: str | None = None

    @property
    def speeds(self) -> list[float]:
        """Images per second of each timed step."""
        if self.document is None:
            return []
        step = self.document.get("step") or {}
        size = self.document["settings"]["batch_size"]
        return [1000 * size / total for total in step.get("totals_ms", []) if total > 0]


SHORT = ("profile.data_seconds=1", "profile.operators=false", "profile.try=false", "profile.amp=[]")


class TrialRunner:
    """Runs `msrun profile` with the words of this job and some more.

    words: overrides of the profiled job; options: such as --config-dir; folder: trials get folders below it
    """

    def __init__(self, words: Sequence[str], options: Sequence[str], folder: Path) -> None:
        self.words, self.options, self.folder = list(words), list(options), folder

    def run(self, name: str, *overrides: str) -> Trial:
        folder = self.folder / _file_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        place = str(folder).replace("\\", "\\\\").replace('"', '\\"')
        words = [*combined(self.words, [*SHORT, *overrides]), f'hydra.run.dir="{place}"', "hydra.mode=RUN"]
        command = [sys.executable, "-m", "msrun_cli", "profile", *self.options, *words]
        output = folder / "output.log"
        code = run_process(command, output)
        if code != 0:
            return Trial(folder, None, f"exit code {code}: {_last_line(output)}")
        return Trial(folder, read_document(folder / FILE))


def combined(words: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """`words` with `overrides`: what they set again is left out before, hydra's place and mode too."""
    replaced = {_key(text) for text in overrides}
    replaced |= {_WITHIN[key] for key in replaced if key in _WITHIN}
    kept = [text for text in words if _key(text) not in replaced and not text.startswith(("hydra.run", "hydra.mode"))]
    return [*kept, *overrides]


def run_process(command: Sequence[str], output: Path, timeout_s: float = _TIMEOUT_S) -> int:
    """Exit code; what it prints goes to `output`. It has a session of its own and ends when this process is stopped."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            file.write(f"\nerror: not done after {timeout_s:.0f} s\n".encode())
            return 124
        finally:
            if process.poll() is None:
                _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The whole session, its data workers included."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)
            return
        except (subprocess.TimeoutExpired, ProcessLookupError):
            continue


@dataclass(frozen=True)
class Gain:
    """Ratio of two speeds with its 95 % interval."""

    value: float
    low: float
    high: float


def gain_of(without: Sequence[float], with_it: Sequence[float], noise: float = 0.0) -> Gain:
    """Ratio of the medians; the interval comes from drawing both samples anew, widened by `noise`.

    without, with_it: images per second of single steps, at least one each. noise: by how much two equal measurements
    differed (0.05 = 5 %), which single steps of one process cannot show.
    """
    rng = np.random.default_rng(0)
    a, b = np.asarray(without, float), np.asarray(with_it, float)
    medians = [np.median(rng.choice(values, (_RESAMPLES, len(values))), axis=1) for values in (a, b)]
    low, high = np.quantile(medians[1] / medians[0], [0.025, 0.975])
    value = float(np.median(b) / np.median(a))
    return Gain(value, float(low) / (1 + noise), float(high) * (1 + noise))


def outcome_of(gain: Gain) -> str:
    """Only what is surely faster and by enough is called so."""
    if gain.low > 1 and gain.value >= 1 + LEAST_GAIN:
        return FASTER
    return SLOWER if gain.high < 1 else UNCLEAR


def difference(first: Sequence[float], second: Sequence[float]) -> float:
    """By how much the medians of two equal measurements differ, 0.05 = 5 %."""
    if not first or not second:
        return 0.0
    a, b = sorted([float(np.median(first)), float(np.median(second))])
    return b / a - 1 if a > 0 else 0.0


def judged(proposal: Proposal, trial: Trial, without: Sequence[float], noise: float) -> Proposal:
    """The proposal with what its trial showed."""
    speeds = trial.speeds
    if not speeds or not without:
        return proposal.tried(outcome=FAILED, error=trial.error or "it measured no steps")
    gain = gain_of(without, speeds, noise)
    return proposal.tried(
        outcome=outcome_of(gain),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        images_per_s=float(np.median(speeds)),
    )


def try_all(
    proposals: Sequence[Proposal], run: Callable[..., Trial], baseline: Sequence[float], say: Callable[[str], None]
) -> tuple[list[Proposal], float]:
    """Measure each proposal, the settings as they are once more, and the faster ones together.

    run: as TrialRunner.run; baseline: images per second of the profiled steps. Gives the judged proposals and by how
    much the two measurements of the settings as they are differ.
    """
    say(f"trying {len(proposals)} settings, each in a process of its own ...")
    trials = []
    for proposal in proposals:
        trials.append(_told(run, proposal, say))
    again = run("as_it_is")
    noise = difference(baseline, again.speeds)
    without = [*baseline, *again.speeds]
    found = [judged(proposal, trial, without, noise) for proposal, trial in zip(proposals, trials, strict=True)]
    faster = [proposal for proposal in found if proposal.outcome == FASTER]
    if len(faster) > 1:
        together = Proposal(
            tuple(text for proposal in faster for text in proposal.overrides),
            "those that were faster, together",
            "; ".join(dict.fromkeys(proposal.caveat for proposal in faster if proposal.caveat)) or None,
        )
        found.append(judged(together, _told(run, together, say), without, noise))
    return found, noise


def _told(run: Callable[..., Trial], proposal: Proposal, say: Callable[[str], None]) -> Trial:
    began = time.perf_counter()
    trial = run(proposal.name, *proposal.overrides)
    say(f"  {proposal.name}: {trial.error or 'measured'} ({time.perf_counter() - began:.0f} s)")
    return trial


def best_overrides(proposals: Sequence[Proposal]) -> tuple[str, ...]:
    """Those to paste: the fastest of the tried ones that were faster; () = none was."""
    faster = [proposal for proposal in proposals if proposal.outcome == FASTER]
    return max(faster, key=lambda proposal: proposal.gain or 0.0).overrides if faster else ()


def paste_line(words: Sequence[str], overrides: Sequence[str]) -> str | None:
    """The command that trains with them; None = there are none. words: those of the profiled training."""
    return shlex.join(["msrun", "train", *combined(words, overrides)]) if overrides else None


def _key(text: str) -> str:
    return text.partition("=")[0].lstrip("+~")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w=.-]+", "_", name)


def _last_line(path: Path) -> str:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return "no output"
    errors = [line for line in lines if line.startswith("error:")]
    found = errors or [line for line in lines if line]
    return found[-1].removeprefix("error: ")[:300] if found else "no output"
