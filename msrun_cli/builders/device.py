"""The device of a run and the graphs compiled for it."""

from __future__ import annotations

import logging
import os
from typing import Any

from omegaconf import OmegaConf

from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.data_sink import steps_per_sink
from msrun_cli.environment.run_start import run_facts
from msrun_cli.runtime.context import Device, start_device
from msrun_cli.runtime.graph_cache import GraphCache
from msrun_cli.runtime.process import ONEDNN_ISA
from msrun_cli.runtime.run_folder import RunFolder

log = logging.getLogger("msrun")

# Keys that no graph depends on.
NOT_IN_GRAPHS = ("checkpoint", "logger", "name", "output_dir", "resume", "weights")


def build_device(cfg: TrainConfig | EvalConfig, run: RunFolder, trains: bool = True) -> Device:
    """trains: whether the run makes training steps, which are what kernels of our own are for."""
    device = cfg.device
    return start_device(
        target=device.target,
        mode=device.mode,
        jit_level=device.jit_level,
        deterministic=device.deterministic,
        kernels=device.kernels if trains else "off",
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


def build_graph_cache(
    cfg: TrainConfig | EvalConfig, run: RunFolder, device: Device, facts: dict[str, Any]
) -> GraphCache | None:
    """None where nothing is compiled. facts: of the data, as far as a graph depends on them."""
    if not device.graph:
        return None
    folder = run.compiler / f"graphs_{device.ranks.rank}"
    if not cfg.device.compile_cache or cfg.device.save_graphs:  # which writes what the compiler does
        return GraphCache(None, folder)
    if device.sink:
        log.info("device.compile_cache has no effect on graphs that a data sink feeds (device.sink)")
        return GraphCache(None, folder)
    config = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(config, dict)
    parts = {
        "config": {str(key): value for key, value in config.items() if key not in NOT_IN_GRAPHS},
        "facts": facts,
        "device": device.target,
        "ranks": [device.ranks.rank, device.ranks.count],
        "onednn": os.environ.get(ONEDNN_ISA),
        "kernels": str(device.kernels),
        "cann": run_facts("ascend").get("cann_version") if device.target == "Ascend" else None,
    }
    return GraphCache(parts, folder)
