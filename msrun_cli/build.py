"""Configuration nodes -> plain objects. The only module that sees the configuration's structure."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from mindspore import nn

from msrun_cli.common.errors import DataError, UserError
from msrun_cli.config.rules import default_warmup_epochs
from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.metrics_file import MetricsFile
from msrun_cli.engine.callbacks.progress import ProgressDisplay
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import RowSink, TrainState
from msrun_cli.engine.callbacks.stop import EarlyStop
from msrun_cli.engine.checkpoint import AVERAGE_PREFIX, inference_arrays, stored_class_names, training_parameters
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.predictor import Predictor
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.weight_file import read_weights
from msrun_cli.models.weights import LoadReport, assign_weights
from msrun_cli.optim.ema import ExponentialMovingAverage, NoAverage, copy_parameters
from msrun_cli.optim.schedule import OneCycle, WarmupDecay
from msrun_cli.runtime.context import Device, start_device
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.vision.classification import Classification
from msrun_cli.vision.detection import Detection

log = logging.getLogger("msrun")

# What differs between the tasks; they have the same methods.
Task = Detection | Classification

# Keys of the dataset node that belong to the pipeline; the rest are the reader's arguments.
PIPELINE_KEYS = (
    "name",
    "image_size",
    "workers",
    "prefetch",
    "python_multiprocessing",
    "max_boxes",
    "class_gain",
    "sgd_lr",
)
TASK_KEYS = ("max_boxes",)  # of these, what a task's batches take, where the dataset has it


def build_device(cfg: TrainConfig | EvalConfig, run: RunFolder) -> Device:
    device = cfg.device
    return start_device(
        target=device.target,
        mode=device.mode,
        jit_level=device.jit_level,
        deterministic=device.deterministic,
        save_graphs=device.save_graphs,
        sink=device.sink,
        sink_size=device.sink_size,
        dvpp=device.dvpp,
        amp_level=cfg.amp.level,
        amp_dtype=cfg.amp.dtype,
        seed=cfg.seed,
        compiler_dir=run.compiler,
    )


def build_data(dataset: Any) -> Any:
    """Read what both splits hold: `class_names`, `train`, `val`, `notes`."""
    arguments = {key: value for key, value in dataset.items() if key not in PIPELINE_KEYS}
    return _made(arguments, _convert_="all")


def build_task(cfg: TrainConfig | EvalConfig, data: Any, device: Device) -> Task:
    """The object that knows what differs between detection and classification."""
    dataset = cfg.dataset
    return get_class(cfg.task._target_)(
        data,
        _build_steps(_optional(cfg, "train_transforms", {})),
        _build_steps(cfg.eval_transforms),
        image_size=cfg.image_size,
        batch_size=cfg.batch_size,
        seed=cfg.seed,
        loader=LoaderOptions(dataset.workers, dataset.prefetch, dataset.python_multiprocessing),
        dvpp=device.dvpp,
        **{key: getattr(dataset, key) for key in TASK_KEYS if _optional(dataset, key, None) is not None},
    )


def build_network(cfg: TrainConfig | EvalConfig, class_names: Sequence[str]) -> nn.Cell:
    """The network in float32, as initialised, with a head for these classes."""
    return _made(cfg.model.network, num_classes=len(class_names), _convert_="all")


def load_weights(network: nn.Cell, path: str, *, strict: bool) -> LoadReport:
    """Set the network's parameters from a file.

    strict: a head for another number of classes is an error instead of being left fresh.
    """
    head = () if strict else getattr(network, "head_prefixes", ())
    return assign_weights(network, inference_arrays(read_weights(path)), path, head)


def check_class_names(path: str, class_names: Sequence[str]) -> None:
    """Say when a checkpoint was trained on classes of other names: their order decides what is counted as right.

    Raises:
        DataError: the same names in another order.
    """
    stored = stored_class_names(path)
    if stored is None or stored == list(class_names):
        return
    place = next((i for i, pair in enumerate(zip(stored, class_names, strict=False)) if pair[0] != pair[1]), 0)
    here = class_names[place] if place < len(class_names) else "missing"
    text = f'{path} was trained on other class names: class {place} is "{stored[place]}" there and "{here}" here.'
    if sorted(stored) == sorted(class_names):
        raise DataError(f"{text} They are the same in another order. Bring the data's classes into that order.")
    log.warning("%s Classes are compared by their position.", text)


@dataclass(frozen=True)
class Training:
    """step: the cell that Model.train drives; eval_network: what is evaluated, after `refresh` has brought it up to
    date; parameters: what a checkpoint holds.
    """

    step: TrainStep
    eval_network: nn.Cell
    refresh: Callable[[], None]
    parameters: list[Any]
    term_names: tuple[str, ...]


def build_training(cfg: TrainConfig, task: Task, network: nn.Cell, steps_per_epoch: int) -> Training:
    """Loss, optimizer, schedule, loss scale and average around the network: the train step."""
    accumulate = accumulated_batches(cfg)
    # A network of its own for evaluation: the one in training stays in training mode, compiled once.
    eval_network = build_network(cfg, task.data.class_names)
    eval_network.update_parameters_name(AVERAGE_PREFIX)
    average: nn.Cell = NoAverage()
    if cfg.ema.enabled:
        average = ExponentialMovingAverage(network, eval_network, cfg.ema.decay, cfg.ema.tau)
    # arguments as a call of its own: they are objects, not configuration
    loss = _made(cfg.loss, _partial_=True, _convert_="all")(**task.loss_arguments(network, accumulate))
    # not through _convert_: the parameters are objects, not configuration
    optimizer = _made(cfg.optimizer, _partial_=True)(params=network.trainable_params())
    if cfg.nbs is not None:
        optimizer.weight_decay *= cfg.batch_size * accumulate / cfg.nbs
    scale = cfg.loss_scale
    step = TrainStep(
        apply_amp(network, cfg.amp.level, cfg.amp.dtype),
        loss,
        optimizer,
        _build_schedule(cfg, optimizer, steps_per_epoch, accumulate),
        make_loss_scale(scale.type, scale.value, scale.factor, scale.window),
        average,
        clip_norm=cfg.clip_norm,
        accumulate=accumulate,
    )
    if cfg.ema.enabled:
        return Training(step, eval_network, _nothing, training_parameters(network, eval_network, step), loss.term_names)
    refresh = partial(copy_parameters, network, eval_network)
    return Training(step, eval_network, refresh, training_parameters(network, step), loss.term_names)


def accumulated_batches(cfg: TrainConfig) -> int:
    """Batches per update: as set, or from the nominal batch size."""
    if cfg.accumulate is not None:
        return cfg.accumulate
    return max(1, round((cfg.nbs or cfg.batch_size) / cfg.batch_size))


def _nothing() -> None:
    """The average is always up to date."""


def build_evaluation(
    cfg: TrainConfig | EvalConfig,
    task: Task,
    split: Any,
    network: nn.Cell,
    refresh: Callable[[], None] = _nothing,
) -> Callable[[], Any]:
    """A function that calls `refresh`, evaluates the network as it is then and returns the evaluator's result."""
    evaluator = _made(cfg.evaluator, _convert_="all")
    decoder = task.decoder(network)
    predict = Predictor(apply_amp(network, cfg.amp.level, cfg.amp.dtype), decoder, cfg.batch_size)

    def evaluate() -> Any:
        refresh()
        batches = task.eval_batches(split).create_dict_iterator(num_epochs=1, output_numpy=True)
        return evaluator(predict, batches, split, task.data)

    return evaluate


@dataclass(frozen=True)
class Callbacks:
    """in_order: for Model.train; the others are read by the recipe."""

    in_order: list[Any]
    recorder: StepRecorder
    evaluation: EpochEvaluation
    early_stop: EarlyStop
    saver: CheckpointSaver
    sinks: list[RowSink]


def build_callbacks(
    cfg: TrainConfig,
    run: RunFolder,
    state: TrainState,
    task: Task,
    training: Training,
    evaluate: Callable[[], Any],
    device: Device,
) -> Callbacks:
    sinks: list[RowSink] = [
        MetricsFile(run.metrics_csv, training.term_names, task.metric_names),
        ProgressDisplay(state, training.term_names, cfg.logger.progress),
    ]
    guard = Guard(cfg.loss_scale.max_skipped, training.term_names)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, device.graph)
    early_stop = EarlyStop(state, cfg.max_steps)
    monitor = cfg.checkpoint.monitor or task.objective
    evaluation = EpochEvaluation(state, evaluate, cfg.evaluate_every, monitor, sinks)
    keep = cfg.checkpoint
    names = task.data.class_names
    saver = CheckpointSaver(state, run.checkpoints, training.parameters, names, evaluation, keep.every, keep.best)
    return Callbacks([recorder, early_stop, evaluation, saver], recorder, evaluation, early_stop, saver, sinks)


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
        milestones=[round(part * total) for part in _optional(schedule, "milestones", [])],
        gamma=_optional(schedule, "gamma", 1.0),
    )


def _build_steps(transforms: Any) -> dict[str, Any]:
    """Steps by name; null = switched off."""
    return {name: None if node is None else _made(node, _convert_="all") for name, node in transforms.items()}


def _optional(node: Any, key: str, default: Any) -> Any:
    """The value of a key that a file may lack."""
    return node[key] if key in node else default


def _made(node: Any, **arguments: Any) -> Any:
    """Hydra's instantiate; an error for users comes out as it is and not wrapped into one of Hydra's."""
    try:
        return instantiate(node, **arguments)
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UserError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from None
