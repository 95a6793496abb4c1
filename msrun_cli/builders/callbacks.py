"""What watches a training: metrics, evaluation, checkpoints, and the diagnosis when it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mindspore import nn

from msrun_cli.builders.data import Task
from msrun_cli.builders.training import Training
from msrun_cli.config.schema import ProfileConfig, TrainConfig
from msrun_cli.engine.callbacks.bad_images import BadImageSummary
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.metrics_file import MetricsFile
from msrun_cli.engine.callbacks.progress import ProgressDisplay
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import RowSink, TrainState
from msrun_cli.engine.callbacks.step_clock import StepClock
from msrun_cli.engine.callbacks.stop import EarlyStop
from msrun_cli.engine.checkpoint import CheckpointWriter
from msrun_cli.engine.diagnosis import Diagnosis
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.profiling.session import ProfilerSession
from msrun_cli.profiling.steps import Plan
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.run_folder import RunFolder


def build_diagnosis(run: RunFolder, task: Task, network: nn.Cell, step: TrainStep) -> Diagnosis:
    """For a training that stops because of NaN, Inf or overflow."""
    return Diagnosis(step, network.trainable_params(), run.root, task.files_of)


@dataclass(frozen=True)
class Callbacks:
    """in_order: for Model.train; the others are read by the recipe."""

    in_order: list[Any]
    recorder: StepRecorder
    evaluation: EpochEvaluation
    early_stop: EarlyStop
    saver: CheckpointSaver
    sinks: list[RowSink]

    def catch_up(self) -> None:
        """After a resume: evaluate when an interruption came between an epoch and its evaluation."""
        if self.evaluation.is_overdue():
            self.evaluation.run()
            self.saver.save_epoch()

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        self.saver.writer.finish()


def build_callbacks(
    cfg: TrainConfig,
    run: RunFolder,
    state: TrainState,
    task: Task,
    training: Training,
    evaluate: Callable[[], Any],
    device: Device,
    facts: dict[str, Any],
    diagnose: Diagnosis,
) -> Callbacks:
    """facts: of the task, for the checkpoints. A resumed `state` cuts the metrics file behind its step."""
    sinks = _sinks(cfg, run, state, task, training)
    guard = Guard(cfg.overflow.max_consecutive, training.term_names, diagnose)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, device.graph)
    early_stop = EarlyStop(state, cfg.max_steps)
    monitor = cfg.checkpoint.monitor or task.objective
    evaluation = EpochEvaluation(state, evaluate, cfg.evaluate_every, monitor, sinks)
    keep = cfg.checkpoint
    saver = CheckpointSaver(
        state,
        run.checkpoints,
        training.parameters,
        evaluation,
        KeepPolicy(keep.every, keep.every_steps, keep.keep_last, keep.keep_best),
        CheckpointWriter(getattr(keep, "async")),
        facts,
    )
    bad = task.data.bad_samples
    summary = [BadImageSummary(bad)] if bad is not None else []
    in_order = [recorder, early_stop, *summary, evaluation, saver]
    return Callbacks(in_order, recorder, evaluation, early_stop, saver, sinks)


@dataclass(frozen=True)
class Clocked:
    """The callbacks of a profiled training: those of a training that act in each step, between two clocks."""

    plan: Plan
    clock: StepClock
    state: TrainState
    step: TrainStep
    in_order: list[Any]
    sinks: list[RowSink]

    def close(self) -> None:
        self.clock.close()
        for sink in self.sinks:
            sink.close()


def build_clocked(
    cfg: ProfileConfig,
    run: RunFolder,
    state: TrainState,
    task: Task,
    training: Training,
    session: ProfilerSession | None,
    plan: Plan,
) -> Clocked:
    """Without evaluation and checkpoints, which come once per epoch."""
    clock = StepClock(plan, session)
    sinks = _sinks(cfg, run, state, task, training)
    guard = Guard(cfg.overflow.max_consecutive, training.term_names)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, graph=False)
    return Clocked(plan, clock, state, training.step, [clock.first, recorder, clock.last], sinks)


def _sinks(cfg: TrainConfig, run: RunFolder, state: TrainState, task: Task, training: Training) -> list[RowSink]:
    return [
        MetricsFile(run.metrics_csv, training.term_names, task.metric_names, state.step),
        ProgressDisplay(state, training.term_names, cfg.logger.progress),
    ]
