"""What watches a training: metrics, evaluation, checkpoints, and the diagnosis when it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mindspore import nn
from omegaconf import OmegaConf

from msrun_cli.builders.data import Task
from msrun_cli.builders.training import Training
from msrun_cli.config.schema import ProfileConfig, TrainConfig
from msrun_cli.engine.callbacks.bad_images import BadImageSummary
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.early_stopping import EarlyStopping
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.metrics_file import MetricsFile
from msrun_cli.engine.callbacks.progress import ProgressDisplay
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import RowSink, TrainState
from msrun_cli.engine.callbacks.step_clock import StepClock
from msrun_cli.engine.callbacks.stop_requests import StopRequests
from msrun_cli.engine.checkpoint import CheckpointWriter, put_together
from msrun_cli.engine.diagnosis import Diagnosis
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.profiling.session import ProfilerSession
from msrun_cli.profiling.steps import Plan
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.graph_cache import GraphCache
from msrun_cli.runtime.run_folder import RunFolder


def build_diagnosis(run: RunFolder, task: Task, network: nn.Cell, step: TrainStep) -> Diagnosis:
    """For a training that stops because of NaN, Inf or overflow."""
    return Diagnosis(step, network.trainable_params(), run.root, task.files_of, task.shard[0])


@dataclass(frozen=True)
class Callbacks:
    """in_order: for Model.train; the others are read by the recipe."""

    in_order: list[Any]
    recorder: StepRecorder
    evaluation: EpochEvaluation
    stop_requests: StopRequests
    early_stopping: EarlyStopping | None
    saver: CheckpointSaver
    sinks: list[RowSink]

    def catch_up(self) -> None:
        """After a resume: evaluate when an interruption came between an epoch and its evaluation."""
        if self.evaluation.is_overdue():
            self.evaluation.run()
            if self.early_stopping is not None:
                self.early_stopping.judge()
            self.saver.save_epoch()

    def close(self) -> None:
        try:
            for sink in self.sinks:
                sink.close()
        finally:
            self.saver.writer.finish()


def build_callbacks(
    cfg: TrainConfig,
    run: RunFolder,
    state: TrainState,
    task: Task,
    training: Training,
    evaluate: Callable[..., Any],
    device: Device,
    facts: dict[str, Any],
    diagnose: Diagnosis,
    graphs: GraphCache | None = None,
) -> Callbacks:
    """facts: of the task, for the checkpoints. graphs: None = nothing is compiled. A resumed `state` cuts the metrics
    file behind its step."""
    ranks = device.ranks
    sinks = _sinks(cfg, run, state, task, training, device)
    guard = Guard(cfg.overflow.max_consecutive, training.term_names, diagnose)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, graphs, device.sink)
    stop_requests = StopRequests(state, cfg.max_steps)
    if ranks.count > 1:
        stop_requests = StopRequests(state, cfg.max_steps, ranks.largest, cfg.logger.every)
    evaluation = EpochEvaluation(state, evaluate, cfg.evaluate_every, sinks)
    stopping = cfg.early_stopping
    early_stopping = None
    if stopping.patience is not None:
        early_stopping = EarlyStopping(state, evaluation, stopping.patience, stopping.min_delta)
    keep = cfg.checkpoint
    gathered = None
    if cfg.parallel.mode not in ("none", "data_parallel"):  # the compiler splits parameters
        gathered = partial(put_together, training.step, training.parameters)
    saver = CheckpointSaver(
        state,
        run.checkpoints,
        training.parameters,
        evaluation,
        KeepPolicy(keep.every, keep.every_steps, keep.keep_last, keep.keep_best),
        CheckpointWriter(getattr(keep, "async")),
        {**facts, "config": OmegaConf.to_container(cfg, resolve=True)},
        training.agree,
        ranks.is_first,
        gathered,
    )
    bad = task.data.bad_samples
    summary = [BadImageSummary(bad)] if bad is not None else []
    judge = [early_stopping] if early_stopping is not None else []
    in_order = [recorder, stop_requests, *summary, evaluation, *judge, saver]
    return Callbacks(in_order, recorder, evaluation, stop_requests, early_stopping, saver, sinks)


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
    device: Device,
    session: ProfilerSession | None,
    plan: Plan,
) -> Clocked:
    """Without evaluation and checkpoints, which come once per epoch."""
    clock = StepClock(plan, session)
    sinks = _sinks(cfg, run, state, task, training, device)
    guard = Guard(cfg.overflow.max_consecutive, training.term_names)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, graphs=None)
    return Clocked(plan, clock, state, training.step, [clock.first, recorder, clock.last], sinks)


def _sinks(
    cfg: TrainConfig, run: RunFolder, state: TrainState, task: Task, training: Training, device: Device
) -> list[RowSink]:
    ranks = device.ranks
    progress = cfg.logger.progress if ranks.count == 1 else "plain"  # what a rank prints goes through a file
    sinks: list[RowSink] = [ProgressDisplay(state, training.term_names, progress)]
    if ranks.is_first:
        sinks.insert(0, MetricsFile(run.metrics_csv, training.term_names, task.metric_names, state.step))
    return sinks
