"""The train step alone: the same batch again and again, nothing else running."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np

from msrun_cli.engine.callbacks.state import as_array
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.profiling.memory import peak_rss_mib
from msrun_cli.profiling.session import ProfilerSession
from msrun_cli.profiling.steps import Plan, Progress, StepTime


@dataclass
class ConstantRun:
    """compile_s: of the first step, less what a later one takes; losses: of every step, from the first on;
    times, profiled: of the plan's timed and operator steps, without waiting and logging; peak_mib: of the process,
    before MindSpore's profiler.
    """

    compile_s: float = 0.0
    losses: list[float] = field(default_factory=list)
    times: list[StepTime] = field(default_factory=list)
    profiled: list[StepTime] = field(default_factory=list)
    peak_mib: float = 0.0


def run_constant(
    step: TrainStep, batch: Sequence[np.ndarray], plan: Plan, session: ProfilerSession | None = None
) -> ConstantRun:
    """Compile and run the plan's steps. The weights change as in a training."""
    tensors = [ms.Tensor(array) for array in batch]
    run = ConstantRun()
    first = _timed(step, tensors, run)
    progress = Progress(plan)
    while progress.kind != "done":
        kind = progress.kind
        measured = _timed(step, tensors, run)
        if kind == "timed":
            run.times.append(measured)
        elif kind == "operators":
            run.profiled.append(measured)
        following = progress.step_done(time.perf_counter())
        if session is not None and kind == "operators" and following != kind:
            session.stop()
        if following == "operators" and kind != following:
            run.peak_mib = peak_rss_mib()
            if session is not None:
                session.start()
    run.peak_mib = run.peak_mib or peak_rss_mib()
    later = min((measured.total for measured in run.times), default=0.0)
    run.compile_s = max(0.0, first.total - later) / 1000
    return run


def _timed(step: TrainStep, tensors: list[Any], run: ConstantRun) -> StepTime:
    began = time.perf_counter()
    outputs = step(*tensors)
    called = time.perf_counter()
    run.losses.append(float(as_array(outputs[0])))
    return StepTime(0.0, 1000 * (called - began), 1000 * (time.perf_counter() - called), 0.0)
