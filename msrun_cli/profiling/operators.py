"""Operators that ran in some training steps: their phases, sums, and how long the device was busy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

PHASES = ("forward", "backward", "update")
UNKNOWN = "-"
# Beginnings of the names that graph compilation gives to operators of the train step's cells. What stands in the train
# step itself (norm of the gradient, clipping, counters, copies of statistics) is part of the update.
_SCOPES = (
    ("Gradients/", "backward"),
    ("Default/forward-", "forward"),
    ("Default/optimizer-", "update"),
    ("Default/average-", "update"),
    ("Default/schedule-", "update"),
    ("Default/loss_scale-", "update"),
    ("Default/reducer-", "update"),
)
_SUFFIXES = ("Grad", "GradV2", "BackpropInput", "BackpropFilter", "GradExt")


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One execution. start_us: on the profiler's clock; name: with its scopes, where the compiler keeps them."""

    name: str
    type: str
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Row:
    """Sums over some executions. ms, count: per step; share: of the time of all operators, 0..1."""

    name: str
    type: str
    phase: str
    count: float
    ms: float
    share: float

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "phase": self.phase,
            "count": round(self.count, 2),
            "ms": round(self.ms, 4),
            "share": round(self.share, 5),
        }


@dataclass(frozen=True)
class OperatorSummary:
    """busy_ms: per step, time in which at least one operator ran; phases_ms: per step, adds up to operators_ms.

    split: "scopes" when names told the phases; "types" when, as in PyNative mode, they have no scopes: phases_ms is {}
        then, and a row's phase is "backward" or "-"
    """

    steps: int
    busy_ms: float
    operators_ms: float
    phases_ms: dict[str, float]
    split: str
    by_type: list[Row]
    by_name: list[Row]

    def as_json(self, top: int) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "busy_ms": round(self.busy_ms, 3),
            "operators_ms": round(self.operators_ms, 3),
            "phases_ms": {name: round(value, 3) for name, value in self.phases_ms.items()},
            "split": self.split,
            "by_type": [row.as_json() for row in self.by_type],
            "by_name": [row.as_json() for row in self.by_name[:top]],
        }


def summarize_operators(runs: Sequence[OperatorRun], steps: int) -> OperatorSummary | None:
    """None when nothing ran. steps: how many steps `runs` are of."""
    if not runs or steps < 1:
        return None
    ordered = sorted(runs, key=lambda run: run.start_us)
    phases, split = phases_of(ordered)
    total_us = sum(run.duration_us for run in ordered) or 1.0
    sums = dict.fromkeys(PHASES if split == "scopes" else (), 0.0)
    for run, phase in zip(ordered, phases, strict=True):
        if phase in sums:
            sums[phase] += run.duration_us
    per_step = 1 / 1000 / steps
    return OperatorSummary(
        steps=steps,
        busy_ms=busy_us(ordered) * per_step,
        operators_ms=total_us * per_step,
        phases_ms={phase: value * per_step for phase, value in sums.items()},
        split=split,
        by_type=_rows(((run, phase, run.type) for run, phase in zip(ordered, phases, strict=True)), steps, total_us),
        by_name=_rows(((run, phase, run.name) for run, phase in zip(ordered, phases, strict=True)), steps, total_us),
    )


def phases_of(ordered: Sequence[OperatorRun]) -> tuple[list[str], str]:
    """The phase of each execution, and whether "scopes" of names or "types" told it. ordered: by start.

    The compiler takes some operators apart into nameless ones ("Expand/..."): they count to the phase of the named
    operator that ran before them.
    """
    scoped = [_by_scope(run.name) for run in ordered]
    if not any(phase in ("forward", "backward") for phase in scoped):
        return [_by_type(run.type) for run in ordered], "types"
    phases, current = [], "update"  # a step begins with the schedule and copies
    for phase in scoped:
        current = phase or current
        phases.append(current)
    return phases, "scopes"


def busy_us(ordered: Iterable[OperatorRun]) -> float:
    """Microseconds in which at least one of them ran; they may overlap. ordered: by start."""
    busy, end = 0.0, float("-inf")
    for run in ordered:
        busy += max(0.0, run.end_us - max(run.start_us, end))
        end = max(end, run.end_us)
    return busy


def _by_scope(name: str) -> str | None:
    for start, phase in _SCOPES:
        if name.startswith(start):
            return phase
    return "update" if name.startswith("Default/") and name.count("/") == 1 else None


def _by_type(kind: str) -> str:
    return "backward" if kind.endswith(_SUFFIXES) else UNKNOWN


def _rows(runs: Iterable[tuple[OperatorRun, str, str]], steps: int, total_us: float) -> list[Row]:
    """Sums by the last of each triple, the longest first; the phase is the one in which it takes most time."""
    sums: dict[str, list[float]] = {}
    phases: dict[str, dict[str, float]] = {}
    types: dict[str, str] = {}
    for run, phase, key in runs:
        entry = sums.setdefault(key, [0.0, 0.0])
        entry[0] += 1
        entry[1] += run.duration_us
        spent = phases.setdefault(key, {})
        spent[phase] = spent.get(phase, 0.0) + run.duration_us
        types[key] = run.type
    rows = [
        Row(
            name=key,
            type=types[key],
            phase=max(phases[key], key=phases[key].__getitem__),
            count=count / steps,
            ms=microseconds / 1000 / steps,
            share=microseconds / total_us,
        )
        for key, (count, microseconds) in sums.items()
    ]
    return sorted(rows, key=lambda row: -row.ms)
