"""What a profile measures and compares, from the configuration of a training."""

from __future__ import annotations

import math
import os
import platform
from typing import Any

import mindspore as ms
from hydra.core.hydra_config import HydraConfig

from msrun_cli import __version__
from msrun_cli.builders.data import Task
from msrun_cli.builders.nodes import optional
from msrun_cli.builders.training import accumulated_batches
from msrun_cli.config.inherit import recorded_overrides
from msrun_cli.config.schema import ProfileConfig
from msrun_cli.data.pixel_cache import free_memory
from msrun_cli.profiling.proposals import Settings
from msrun_cli.profiling.steps import MIN_STEPS, Plan
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.run_folder import RunFolder, environment_facts

_OWN = ("profile.", "hydra.", "output_dir=", "name=")  # overrides that a training does not need


def build_plan(cfg: ProfileConfig, device: Device, *, constant: bool) -> Plan:
    """constant: for the constant batch, which is timed shortly when a training is timed as well.

    Several ranks make the same number of steps, whatever their clocks say: in each they wait for one another.
    """
    wanted = cfg.profile
    seconds = wanted.seconds if device.ranks.count == 1 else math.inf
    if constant and wanted.what == "both":
        return Plan(1, 0, min(wanted.steps, 10), 0, seconds / 3)
    asynchronous = device.target != "CPU" and not constant
    return Plan(
        warmup=wanted.warmup,
        free=wanted.steps if asynchronous else 0,
        timed=wanted.steps,
        operators=wanted.operator_steps if wanted.operators else 0,
        seconds=seconds,
    )


def build_sunk_plan(cfg: ProfileConfig, device: Device, sink_size: int) -> Plan:
    """A "step" of it is one sink."""
    seconds = cfg.profile.seconds if device.ranks.count == 1 else math.inf
    return Plan(1, 0, max(MIN_STEPS, math.ceil(cfg.profile.steps / sink_size)), 0, seconds)


def build_settings(cfg: ProfileConfig, task: Task, device: Device) -> Settings:
    dataset = cfg.dataset
    workers = dataset.workers if isinstance(dataset.workers, int) else 0  # auto: the pipeline tells
    return Settings(
        device=device.target,
        graph=device.graph,
        sink=device.sink,
        amp_level=cfg.amp.level,
        loss_scale=cfg.loss_scale.type,
        batch_size=cfg.batch_size,
        train_images=task.facts()["images"],
        accumulate=accumulated_batches(cfg),
        log_every=cfg.logger.every,
        workers=workers,
        processes=dataset.python_multiprocessing,
        prefetch=dataset.prefetch,
        jit_level=cfg.device.jit_level,
        cache=optional(dataset, "cache", None),
        reduced_decoding=optional(dataset, "reduced_decoding", None),
        free_mib=free_memory() / 2**20,
    )


def build_about(cfg: ProfileConfig, run: RunFolder, device: Device) -> dict[str, Any]:
    """What was profiled, for the document."""
    return {
        "msrun": __version__,
        "mindspore": ms.__version__,
        "device": {
            "target": device.target,
            "mode": "graph" if device.graph else "pynative",
            "cores": os.cpu_count(),
            "processor": environment_facts()["processor"],
            "host": platform.node(),
        },
        "settings": {
            "model": cfg.model.name,
            "dataset": cfg.dataset.name,
            "task": cfg.task.name,
            "batch_size": cfg.batch_size,
            "image_size": cfg.image_size,
            "amp": cfg.amp.level,
            "loss_scale": cfg.loss_scale.type,
            "workers": cfg.dataset.workers,
            "prefetch": cfg.dataset.prefetch,
            "python_multiprocessing": cfg.dataset.python_multiprocessing,
            "accumulate": accumulated_batches(cfg),
            "sink": device.sink,
            "jit_level": cfg.device.jit_level,
            "epochs": cfg.epochs,
        },
        "overrides": recorded_overrides(run.root),  # a rank has no Hydra to ask
    }


def job_words() -> list[str]:
    """Overrides of this job. Only inside a job."""
    return [str(text) for text in HydraConfig.get().overrides.task]


def training_words() -> list[str]:
    """Those of them that `msrun train` takes, and the folder of configurations that they are from."""
    own = [text for text in job_words() if not text.lstrip("+~").startswith(_OWN)]
    return [*_config_dir(), *own]


def job_options() -> list[str]:
    """Options of the command line that choose another configuration, for a process that profiles the same."""
    name = HydraConfig.get().job.config_name
    return [*(["--config-name", str(name)] if name not in (None, "profile") else []), *_config_dir()]


def _config_dir() -> list[str]:
    sources = HydraConfig.get().runtime.config_sources
    return [
        word for source in sources if source.provider == "command-line" for word in ("--config-dir", str(source.path))
    ]
