"""The train step with all that is around the network, and the evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore import nn

from msrun_cli.builders.data import Task
from msrun_cli.builders.network import build_network
from msrun_cli.builders.nodes import instantiate, optional
from msrun_cli.builders.optimizer import build_optimizer
from msrun_cli.config.rules import default_warmup_epochs
from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.checkpoint import AVERAGE_PREFIX, training_parameters
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.predictor import Predictor
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.folding import Folding, is_foldable
from msrun_cli.models.fusing import fuse_norms, use_convolutions
from msrun_cli.models.recompute import recompute_blocks
from msrun_cli.optim.ema import ExponentialMovingAverage, NoAverage, copy_parameters
from msrun_cli.optim.schedule import OneCycle, WarmupDecay
from msrun_cli.optim.sgd import SGD
from msrun_cli.runtime.graph_cache import GraphCache
from msrun_cli.runtime.ranks import Ranks, SharedStatistics

ALONE = Ranks()

log = logging.getLogger("msrun")


@dataclass(frozen=True)
class Training:
    """step: the cell that Model.train drives; eval_network: what is evaluated, after `refresh` has brought it up to
    date; parameters: what a checkpoint holds; agree: brings what ranks keep for themselves to one value.
    """

    step: TrainStep
    eval_network: nn.Cell
    refresh: Callable[[], None]
    parameters: list[Any]
    term_names: tuple[str, ...]
    agree: Callable[[], None]


def build_training(
    cfg: TrainConfig,
    task: Task,
    network: nn.Cell,
    steps_per_epoch: int,
    ranks: Ranks = ALONE,
    kernels: Path | None = None,
) -> Training:
    """Loss, optimizer, schedule, loss scale and average around the network: the train step.

    kernels: library with kernels for this processor
    """
    accumulate = accumulated_batches(cfg, ranks.count)
    # A network of its own for evaluation: the one in training stays in training mode, compiled once.
    eval_network = build_network(cfg, task.data.class_names)
    eval_network.update_parameters_name(AVERAGE_PREFIX)
    average: nn.Cell = NoAverage()
    if cfg.ema.enabled:
        average = ExponentialMovingAverage(network, eval_network, cfg.ema.decay, cfg.ema.tau, kernels)
    # arguments as a call of its own: they are objects, not configuration
    loss = instantiate(cfg.loss, _partial_=True, _convert_="all")(**task.loss_arguments(network, accumulate))
    optimizer = build_optimizer(cfg, network, accumulate * ranks.count)
    if kernels is not None:
        use_kernels(cfg.amp.level, network, optimizer, kernels)
    scale = cfg.loss_scale
    amp_network = apply_amp(network, cfg.amp.level, cfg.amp.dtype)
    if cfg.recompute:
        blocks = recompute_blocks(network)
        names = f" ({blocks[0]} ... {blocks[-1]})" if blocks else ": this network has one part only"
        log.info("recompute: %d blocks run again in the backward pass%s", len(blocks), names)
    step = TrainStep(
        amp_network,
        loss,
        optimizer,
        _build_schedule(cfg, optimizer, steps_per_epoch, accumulate),
        make_loss_scale(scale.type, scale.value, scale.factor, scale.window),
        average,
        clip_norm=cfg.clip_norm,
        accumulate=accumulate,
        clip_value=cfg.clip_value,
        recomputed=cfg.recompute,
        kernels=kernels,
    )
    kept = training_parameters(network, *([eval_network] if cfg.ema.enabled else []), step)
    agree = SharedStatistics(kept, ranks)

    def refresh() -> None:
        agree()
        if not cfg.ema.enabled:
            copy_parameters(network, eval_network)

    return Training(step, eval_network, refresh, kept, loss.term_names, agree)


def use_kernels(amp_level: str, network: nn.Cell, optimizer: nn.Cell, library: Path) -> None:
    """Where they fit: SGD, and what a network computes in float32."""
    if isinstance(optimizer, SGD):
        optimizer.use_kernels(library)
    if amp_level in ("O0", "O1"):
        fuse_norms(network, library)
    if amp_level == "O0":
        use_convolutions(network, library)


def accumulated_batches(cfg: TrainConfig, ranks: int = 1) -> int:
    """Batches per update: as set, or from the nominal batch size."""
    if cfg.accumulate is not None:
        return cfg.accumulate
    together = cfg.batch_size * ranks
    return max(1, round((cfg.nbs or together) / together))


def _nothing() -> None:
    """The network is up to date."""


def build_evaluation(
    cfg: TrainConfig | EvalConfig,
    task: Task,
    split: Any,
    network: nn.Cell,
    refresh: Callable[[], None] = _nothing,
    ranks: Ranks = ALONE,
    graphs: GraphCache | None = None,
) -> Callable[..., Any]:
    """A function that calls `refresh`, evaluates the network as it is then and returns the evaluator's result.

    Each rank evaluates its share of the images; all get the result over all images. The function may be given another
    one to call after each batch with the images done and the images there are.
    """
    evaluator = instantiate(cfg.evaluator, _convert_="all")
    evaluated, fold = network, _nothing
    if cfg.fold_batch_norm and is_foldable(network):
        evaluated = build_network(cfg, task.data.class_names)
        fold = Folding(network, evaluated).refresh
    decoder = task.decoder(evaluated)
    predict = Predictor(apply_amp(evaluated, cfg.amp.level, cfg.amp.dtype), decoder, cfg.batch_size, graphs)

    def evaluate(progress: Callable[[int, int], None] | None = None) -> Any:
        refresh()
        fold()
        batches: Any = ()  # a rank may be left without any image of a small split
        if len(split.records) > ranks.rank:
            batches = task.eval_batches(split).create_dict_iterator(num_epochs=1, output_numpy=True)
        gather = ranks.gather if ranks.count > 1 else None
        result = evaluator(predict, batches, split, task.data, progress=progress, gather=gather)
        if task.data.bad_samples is not None:
            task.data.bad_samples.say()
        return result

    return evaluate


def _build_schedule(cfg: TrainConfig, optimizer: nn.Cell, steps_per_epoch: int, accumulate: int) -> nn.Cell:
    """Epochs of the configuration become updates; a run cut by max_steps decays within its steps."""
    schedule = cfg.schedule
    steps = cfg.epochs * steps_per_epoch
    if cfg.max_steps is not None:
        steps = min(steps, cfg.max_steps)
    total = max(1, steps // accumulate)
    warmup_epochs = schedule.warmup_epochs
    if warmup_epochs is None:
        # a run that max_steps cuts short warms up in the same part of what is left
        warmup_epochs = default_warmup_epochs(total * accumulate / steps_per_epoch, schedule.decay)
    common = {
        "lr": optimizer.lr,
        "momentum": optimizer.momentum,
        "total_updates": total,
        "warmup_updates": math.ceil(warmup_epochs * steps_per_epoch / accumulate),
        "final_factor": schedule.final_factor,
        "warmup_momentum": schedule.warmup_momentum,
    }
    if schedule.decay == "one_cycle":
        return OneCycle(**common, start_factor=schedule.start_factor)
    return WarmupDecay(
        **common,
        decay=schedule.decay,
        warmup_bias_lr=schedule.warmup_bias_lr,
        updates_per_step=steps_per_epoch / accumulate if schedule.step == "epoch" else 1,
        milestones=[round(part * total) for part in optional(schedule, "milestones", [])],
        gamma=optional(schedule, "gamma", 1.0),
    )
