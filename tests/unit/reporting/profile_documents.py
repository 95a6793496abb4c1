"""Documents of profiles, made of constructed measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msrun_cli.data.stage_times import StageTimes
from msrun_cli.profiling.operators import OperatorRun, summarize_operators
from msrun_cli.profiling.outcome import Outcome, StepProfile, facts_of
from msrun_cli.profiling.pipeline import DataProfile
from msrun_cli.profiling.proposals import FASTER, SLOWER, Proposal, Settings, propose
from msrun_cli.profiling.raw_tables import RawProfile
from msrun_cli.profiling.steps import Spread, StepTime
from msrun_cli.profiling.verdict import judge

SETTINGS = Settings("CPU", True, False, "O0", "none", 8, 800, 1, 10, 2, False, 2, cache="none")
ABOUT: dict[str, Any] = {
    "msrun": "0.1.0",
    "mindspore": "2.10.0",
    "device": {"target": "CPU", "mode": "graph", "cores": 2, "processor": "a <processor>", "host": "here"},
    "settings": {
        "model": "yolov5n",
        "dataset": "shapes",
        "task": "detection",
        "batch_size": 8,
        "image_size": 160,
        "amp": "O0",
        "workers": 2,
    },
    "overrides": ["model=yolov5n", 'dataset.root="/中 <b>"'],
}
DATA = DataProfile(
    95.0, Spread(80, 70, 95), 12, 2, False, 2, 2, {1: 60.0, 2: 100.0},
    StageTimes({"decode": 9.0, "[mosaic]": 5.0, "boxes, copy, rest": 1.0}, 16.0, 64),
)  # fmt: skip


def steps(raw: Path | None = None) -> StepProfile:
    """Eight steps of about 100 ms, 30 of them waiting; two under the profiler, of whose 70 ms operators run for 56."""
    times = [StepTime(30 + wobble, 65, 1, 4) for wobble in (0, 2, -2, 1, -1, 3, -3, 0)]
    runs = []
    for start in (0, 100_000):
        runs += [
            OperatorRun("Default/forward-ScaledLoss/network-Net/0-Conv/Conv2D-op0", "Conv2D", start, 20_000),
            OperatorRun("Gradients/Default/forward-ScaledLoss/x/ConvGrad-op0", "ConvGrad", start + 20_000, 30_000),
            OperatorRun("Default/optimizer-SGD/ApplyMomentum-op3", "ApplyMomentum", start + 50_000, 6_000),
        ]
    return StepProfile(
        8,
        times=times,
        profiled=[StepTime(30, 70, 0, 0)] * 2,
        alone=[StepTime(0, 62, 1, 0)] * 5,
        compile_s=15.0,
        planned_steps=1000,
        losses=[2.0, 1.5],
        operators=summarize_operators(runs, 2),
        raw=None if raw is None else RawProfile(raw, memory_mib=80.0),
        peak_rss_mib=1200.0,
    )


def document(*, tried: bool = False, raw: Path | None = None, what: str = "both", **changes: Any) -> dict[str, Any]:
    """As profile.json holds it."""
    outcome = Outcome({**ABOUT, **changes}, SETTINGS, what, seconds=42.0)
    if what != "step":
        outcome.data = DATA
    if what != "data":
        outcome.steps = steps(raw)
        outcome.facts = facts_of(outcome.steps, outcome.data, "CPU")
        outcome.verdict = judge(outcome.facts)
        outcome.proposals = propose(outcome.verdict, outcome.facts, SETTINGS, outcome.data)
        outcome.advice = ["Look at the <disk>."]
    if tried:
        outcome.proposals = [
            Proposal(("dataset.workers=2",), "why", None, FASTER, 1.21, 1.15, 1.27, 96.0),
            Proposal(("batch_size=16",), "why", "caveat", SLOWER, 0.8, 0.75, 0.85, 64.0),
            Proposal(("amp=O2",), "why", None, "failed", error="exit code 1: no [kernel]"),
        ]
        outcome.noise, outcome.paste = 0.02, "msrun train model=yolov5n dataset.workers=2"
        outcome.levels = LEVELS
    return outcome.as_json(top=15)


_LEVEL = {
    "error": None,
    "step_ms": {"median": 70.0, "p10": 68.0, "p90": 75.0},
    "images_per_s": 114.0,
    "compile_s": 12.0,
    "peak_rss_mib": 1000.0,
    "peak_device_mib": None,
    "loss": 2.0,
    "loss_after": 1.5,
    "after_steps": 9,
    "loss_difference": 0.0,
    "loss_difference_after": 0.0,
    "gain": 1.0,
    "gain_low": 1.0,
    "gain_high": 1.0,
}
LEVELS: list[dict[str, Any]] = [
    {"level": "O0", **_LEVEL, "outcome": None},
    {"level": "O2", **_LEVEL, "loss_difference": 0.0012, "outcome": FASTER, "gain": 1.3},
    {"level": "O3", "error": "exit code 1: no [kernel]"},
]
