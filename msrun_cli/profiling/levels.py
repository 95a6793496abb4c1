"""Levels of mixed precision side by side: speed, memory, and how far the loss is from that of the first level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msrun_cli.profiling.trials import Trial, gain_of, outcome_of


def compare_levels(
    levels: Sequence[str], run: Callable[..., Trial], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row per level, each measured in a process of its own on the same weights and the same constant batch.

    level, step_ms, images_per_s, peak_rss_mib, peak_device_mib, compile_s; loss and loss_after: of the first and of a
    later step, the same one at all levels, None = not finite; loss_difference, loss_difference_after: relative to the
    first level's; gain, gain_low, gain_high, outcome: of its speed; error: why it failed.
    """
    unique = list(dict.fromkeys(levels))
    say(f"comparing amp={', '.join(unique)}, each in a process of its own ...")
    trials = []
    for level in unique:
        trials.append(run(f"amp={level}", f"amp={level}", "profile.what=step"))
        say(f"  amp={level}: {trials[-1].error or 'measured'}")
    lengths = [len(trial.document["losses"]) for trial in trials if trial.document is not None]
    later = min(lengths, default=1) - 1
    rows = [_row(level, trial, later) for level, trial in zip(unique, trials, strict=True)]
    first = trials[0]
    for row, trial in zip(rows, trials, strict=True):
        if row["error"] is None and first.document is not None:
            for key in ("loss", "loss_after"):
                row[key.replace("loss", "loss_difference")] = _relative(row[key], rows[0][key])
            gain = gain_of(first.speeds, trial.speeds)
            row |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
            row["outcome"] = None if trial is first else outcome_of(gain)
    return rows


def _row(level: str, trial: Trial, later: int) -> dict[str, Any]:
    document = trial.document
    if document is None:
        return {"level": level, "error": trial.error}
    memory, losses = document["memory"], document["losses"]
    return {
        "level": level,
        "error": None,
        "step_ms": document["step"]["step_ms"],
        "images_per_s": document["images_per_s"],
        "compile_s": document["compile_s"],
        "peak_rss_mib": memory["peak_rss_mib"],
        "peak_device_mib": memory["peak_device_mib"],
        "loss": losses[0],
        "loss_after": losses[later],
        "after_steps": later,
    }


def _relative(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else (value - reference) / abs(reference)
