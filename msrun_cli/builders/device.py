"""The device of a run."""

from __future__ import annotations

from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.data_sink import steps_per_sink
from msrun_cli.runtime.context import Device, start_device
from msrun_cli.runtime.run_folder import RunFolder


def build_device(cfg: TrainConfig | EvalConfig, run: RunFolder) -> Device:
    device = cfg.device
    return start_device(
        target=device.target,
        mode=device.mode,
        jit_level=device.jit_level,
        deterministic=device.deterministic,
        save_graphs=device.save_graphs,
        dvpp=device.dvpp,
        sink=device.sink,
        sink_size=device.sink_size,
        amp_level=cfg.amp.level,
        amp_dtype=cfg.amp.dtype,
        seed=cfg.seed,
        compiler_dir=run.compiler,
        parallel=cfg.parallel,
    )


def build_sink(cfg: TrainConfig, device: Device, state: TrainState, goal: int) -> int | None:
    """Steps per data sink on the way from the state's step to `goal`; None = batches are fed one by one."""
    if not device.sink:
        return None
    return steps_per_sink(device.sink_size, cfg.logger.every, state.steps_per_epoch, state.step, goal)
