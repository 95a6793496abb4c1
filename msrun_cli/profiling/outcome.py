"""Everything that one profile found out, and the document that is made of it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from msrun_cli.profiling.operators import OperatorSummary
from msrun_cli.profiling.pipeline import DataProfile
from msrun_cli.profiling.proposals import Proposal, Settings
from msrun_cli.profiling.raw_tables import RawProfile
from msrun_cli.profiling.steps import StepSummary, StepTime, summarize
from msrun_cli.profiling.verdict import Facts, Verdict

BREAKDOWN = ("wait", "host", "forward", "backward", "update", "step", "logging")  # "step": where phases are not known


@dataclass
class StepProfile:
    """Of the train step. times: of the timed steps; profiled: of those under MindSpore's profiler; alone: on a constant
    batch with nothing else running.

    free_images_per_s: of steps that do not wait for an asynchronous device; sunk: of steps whose batches the device
    fetches, each entry the mean of one sink; losses: of the steps on the constant batch, from the fresh weights on
    """

    batch_size: int
    times: list[StepTime] = field(default_factory=list)
    profiled: list[StepTime] = field(default_factory=list)
    alone: list[StepTime] = field(default_factory=list)
    sunk: list[StepTime] = field(default_factory=list)
    free_images_per_s: float | None = None
    compile_s: float | None = None
    planned_steps: int = 0
    losses: list[float] = field(default_factory=list)
    operators: OperatorSummary | None = None
    raw: RawProfile | None = None
    peak_rss_mib: float | None = None
    peak_device_mib: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Images per second of single steps."""
        return [1000 * self.batch_size / time.total for time in self.sunk or self.times if time.total > 0]

    @property
    def summary(self) -> StepSummary:
        return summarize(self.times, self.batch_size)

    @property
    def images_per_s(self) -> float:
        """As a training gets them: sunk where batches are sunk, without waiting for the device after each step."""
        if self.sunk:
            return summarize(self.sunk, self.batch_size).images_per_s
        return self.free_images_per_s or self.summary.images_per_s

    @property
    def busy_share(self) -> float | None:
        """Of call + device, in which operators ran. A ratio within the steps under the profiler, which it slows."""
        if self.operators is None or not self.profiled:
            return None
        work = statistics.fmean(time.work for time in self.profiled)
        return min(1.0, self.operators.busy_ms / work) if work > 0 else None

    @property
    def phase_shares(self) -> dict[str, float]:
        if self.operators is None or not self.operators.operators_ms:
            return {}
        return {name: ms / self.operators.operators_ms for name, ms in self.operators.phases_ms.items()}

    @property
    def communication_share(self) -> float | None:
        """Of the step in which an Ascend only communicates, from its step trace."""
        trace = self.raw.ascend.step_trace if self.raw is not None and self.raw.ascend is not None else None
        if trace is None:
            return None
        only = trace.get("communication_not_overlapped", 0.0)
        whole = trace.get("computing", 0.0) + only + trace.get("free", 0.0)
        return only / whole if whole else None

    def breakdown(self, time: StepTime) -> dict[str, float]:
        """Milliseconds of one step by what is done: the phases share the device's time as under the profiler."""
        busy = time.work * (1.0 if self.busy_share is None else self.busy_share)
        phases = {name: busy * share for name, share in self.phase_shares.items()} or {"step": busy}
        return {"wait": time.wait, "host": time.work - busy, **phases, "logging": time.logging}

    def mean_breakdown(self) -> dict[str, float]:
        single = [self.breakdown(time) for time in self.times]
        return {name: statistics.fmean(parts[name] for parts in single) for name in single[0]}


def facts_of(steps: StepProfile, data: DataProfile | None, device: str) -> Facts:
    summary = steps.summary
    return Facts(
        parts=summary.parts_ms,
        images_per_s=steps.images_per_s,
        batch_size=steps.batch_size,
        device=device,
        busy_share=steps.busy_share,
        communication_share=steps.communication_share,
        phases=steps.phase_shares,
        alone_ms=statistics.median(time.work for time in steps.alone) if steps.alone and data is not None else None,
        beside_ms=statistics.median(time.work for time in steps.times),
        reading_ms=None if data is None else steps.batch_size * data.stages.cpu_ms,
        compile_s=steps.compile_s,
        planned_s=steps.planned_steps * steps.batch_size / steps.images_per_s if steps.images_per_s else None,
        data_images_per_s=None if data is None else data.images_per_s,
    )


@dataclass
class Outcome:
    """about: words for the document that say what was profiled (settings, device, versions, overrides)."""

    about: dict[str, Any]
    settings: Settings
    what: str
    data: DataProfile | None = None
    steps: StepProfile | None = None
    facts: Facts | None = None
    verdict: Verdict | None = None
    proposals: list[Proposal] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    noise: float | None = None
    levels: list[dict[str, Any]] = field(default_factory=list)
    paste: str | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self, top: int) -> dict[str, Any]:
        """The document of profile.json (docs/profile.md)."""
        return {
            **self.about,
            "what": self.what,
            "seconds": round(self.seconds, 1),
            **(_steps_json(self.steps, top) if self.steps is not None else _NO_STEPS),
            "device_idle": None if self.facts is None else round(self.facts.idle_share, 4),
            "planned_s": None if self.facts is None else _round(self.facts.planned_s, 1),
            "data": None if self.data is None else self.data.as_json(),
            "verdict": None if self.verdict is None else self.verdict.as_json(),
            "proposals": [proposal.as_json() for proposal in self.proposals],
            "advice": self.advice,
            "noise": _round(self.noise, 4),
            "amp": self.levels,
            "paste": self.paste,
            "notes": self.notes,
        }


_NO_STEPS: dict[str, Any] = dict.fromkeys(
    ("step", "images_per_s", "alone", "sunk", "compile_s", "losses", "memory", "operators", "ascend", "raw")
)


def _steps_json(steps: StepProfile, top: int) -> dict[str, Any]:
    raw = steps.raw
    return {
        "step": {
            **steps.summary.as_json(),
            "breakdown_ms": {name: round(value, 3) for name, value in steps.mean_breakdown().items()},
            "totals_ms": [round(time.total, 3) for time in steps.sunk or steps.times],
            "timeline_ms": [
                {name: round(value, 3) for name, value in steps.breakdown(time).items()} for time in steps.times
            ],
        },
        "images_per_s": round(steps.images_per_s, 3),
        "alone": summarize(steps.alone, steps.batch_size).as_json() if steps.alone else None,
        "sunk": summarize(steps.sunk, steps.batch_size).as_json() if steps.sunk else None,
        "compile_s": _round(steps.compile_s, 2),
        "losses": [float(f"{loss:.7g}") if math.isfinite(loss) else None for loss in steps.losses],
        "memory": {
            "peak_rss_mib": _round(steps.peak_rss_mib, 1),
            "peak_device_mib": _round(steps.peak_device_mib, 1),
            "operators_mib": _round(None if raw is None else raw.memory_mib, 1),
        },
        "operators": None if steps.operators is None else steps.operators.as_json(top),
        "ascend": None if raw is None or raw.ascend is None else raw.ascend.as_json(),
        "raw": None if raw is None else {"folder": str(raw.folder), "trace": str(raw.trace) if raw.trace else None},
    }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
