"""The train step under the clocks: on a constant batch, in a training, under MindSpore's profiler."""

from __future__ import annotations

import logging
import math

from mindspore.train import Model

from msrun_cli.builders.callbacks import Clocked, build_clocked
from msrun_cli.builders.data import Task
from msrun_cli.builders.network import build_network, freeze_parameters, load_weights, synchronize
from msrun_cli.builders.profile import build_plan, build_sunk_plan
from msrun_cli.builders.training import Training, build_training
from msrun_cli.config.schema import ProfileConfig
from msrun_cli.data.pipeline import Batches
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.constant_batch import run_constant
from msrun_cli.profiling.memory import peak_device_mib, peak_rss_mib
from msrun_cli.profiling.operators import summarize_operators
from msrun_cli.profiling.outcome import StepProfile
from msrun_cli.profiling.raw_tables import find_raw_profile, read_raw_profile
from msrun_cli.profiling.session import ProfilerSession
from msrun_cli.profiling.steps import StepTime
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.run_folder import RunFolder

log = logging.getLogger("msrun")


def profile_steps(
    cfg: ProfileConfig, run: RunFolder, task: Task, device: Device, batches: Batches | None
) -> StepProfile:
    """batches: to train on; None = the constant batch is all there is."""
    preview = task.preview()
    steps_per_epoch = preview.get_dataset_size()
    batch = next(preview.create_tuple_iterator(num_epochs=1, output_numpy=True))
    network = build_network(cfg, task.data.class_names)
    if cfg.weights is not None:
        log.info("weights %s: %s", cfg.weights, load_weights(network, cfg.weights, strict=False))
    synchronize(cfg, network, device.target)
    freeze_parameters(cfg, network)
    training = build_training(cfg, task, network, steps_per_epoch, device.ranks, device.kernels)
    device.ranks.broadcast(training.parameters)
    training.step.set_train(True)
    images_per_step = cfg.batch_size * device.ranks.count
    state = TrainState(cfg.epochs, steps_per_epoch, images_per_step)
    folder = run.root / "profiler"
    if device.ranks.count > 1:
        folder = folder / f"rank_{device.ranks.rank}"
    session = ProfilerSession(folder, device.target == "Ascend") if cfg.profile.operators else None

    log.info("compiling the training graph ..." if device.graph else "first steps ...")
    alone = run_constant(
        training.step, batch, build_plan(cfg, device, constant=True), session if batches is None else None
    )
    found = StepProfile(
        images_per_step,
        times=alone.times,
        profiled=alone.profiled,
        alone=alone.times,
        compile_s=alone.compile_s if device.graph else None,
        planned_steps=min(state.total_steps, cfg.max_steps or state.total_steps),
        losses=alone.losses,
        peak_rss_mib=alone.peak_mib,
    )
    if batches is not None:
        plan = build_plan(cfg, device, constant=False)
        _profile_training(build_clocked(cfg, run, state, task, training, device, session, plan), batches, found)
    if batches is not None and device.sink:
        found.sunk = _sunk_times(cfg, run, task, training, device, state)
        found.notes.append("The parts of a step are of batches fed one by one; images/s are of sunk ones.")
    found.peak_device_mib = peak_device_mib(device.target)
    if session is not None:
        _read_operators(session, found)
    return found


def _profile_training(clocked: Clocked, batches: Batches, found: StepProfile) -> None:
    """The loop of `msrun train`, between two clocks."""
    plan, clock = clocked.plan, clocked.clock
    log.info("training for up to %d steps, timed ...", plan.steps)
    epochs = 1 + math.ceil(plan.steps / clocked.state.steps_per_epoch)
    try:
        Model(clocked.step).train(epochs, batches, clocked.in_order, dataset_sink_mode=False)
    finally:
        clocked.close()
    found.times, found.profiled = clock.times, clock.profiled
    found.peak_rss_mib = clock.peak_mib or peak_rss_mib()
    if clock.free_steps:
        found.free_images_per_s = clock.free_steps * found.batch_size / clock.free_s


def _sunk_times(
    cfg: ProfileConfig, run: RunFolder, task: Task, training: Training, device: Device, state: TrainState
) -> list[StepTime]:
    """Steps whose batches the device fetches, seen some at a time: each entry is the mean of one sink."""
    size = min(10, state.steps_per_epoch)
    plan = build_sunk_plan(cfg, device, size)
    clocked = build_clocked(cfg, run, state, task, training, device, None, plan)
    log.info("training with sunk data, timed ...")
    try:
        Model(training.step).train(
            plan.steps, task.train_batches(), clocked.in_order, dataset_sink_mode=True, sink_size=size
        )
    finally:
        clocked.close()
    return [measured.divided(size) for measured in clocked.clock.times]


def _read_operators(session: ProfilerSession, found: StepProfile) -> None:
    folder = find_raw_profile(session.folder)
    if session.error is not None or folder is None:
        found.notes.append(f"There are no operators: {session.error or 'the profiler left no folder'}.")
        return
    found.raw = read_raw_profile(folder)
    found.notes += found.raw.notes
    found.operators = summarize_operators(found.raw.runs, len(found.profiled))
    if found.peak_device_mib is None and found.raw.ascend is not None:
        found.peak_device_mib = found.raw.ascend.memory_mib
