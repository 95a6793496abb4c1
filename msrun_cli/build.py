"""Configuration nodes -> plain objects. The only module that sees the configuration's structure."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hydra.errors import InstantiationException
from hydra.utils import get_class
from hydra.utils import instantiate as hydra_instantiate
from mindspore import nn
from omegaconf import DictConfig

from msrun_cli.common.errors import ConfigError, DataError, UserError
from msrun_cli.config.rules import default_warmup_epochs
from msrun_cli.config.schema import CheckDataConfig, Dataset, EvalConfig, TrainConfig
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.detection import eval_pipeline, max_boxes_of, train_pipeline
from msrun_cli.data.doctor.checked import CheckedData, detection_view, paths_view
from msrun_cli.data.doctor.examination import CheckOptions
from msrun_cli.data.doctor.listing import folders_of, list_images, read_class_folders
from msrun_cli.data.pictures import Reading
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.records import DetectionData, Split, fingerprint
from msrun_cli.data.samples import epoch_order
from msrun_cli.data.screening import screen
from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.callbacks.bad_images import BadImageSummary
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.metrics_file import MetricsFile
from msrun_cli.engine.callbacks.progress import ProgressDisplay
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import RowSink, TrainState
from msrun_cli.engine.callbacks.stop import EarlyStop
from msrun_cli.engine.checkpoint import (
    AVERAGE_PREFIX,
    Checkpoint,
    CheckpointWriter,
    inference_arrays,
    newest_complete,
    training_parameters,
)
from msrun_cli.engine.diagnosis import Diagnosis
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.predictor import Predictor
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.weight_file import read_weights
from msrun_cli.models.weights import LoadReport, assign_weights
from msrun_cli.optim.ema import ExponentialMovingAverage, NoAverage, copy_parameters
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.reporting.detection import DetectionReport
from msrun_cli.runtime.context import Device, start_device
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.transforms.chain import Chain, Stage

# Keys of the dataset node that belong to the pipeline; the rest are the reader's arguments.
PIPELINE_KEYS = (
    "name",
    "image_size",
    "workers",
    "prefetch",
    "python_multiprocessing",
    "partner_window",
    "cache",
    "cache_limit_gib",
    "reduced_decoding",
    "max_boxes",
    "on_bad_sample",
    "check_images",
)

STAGE_KEYS = ("from_epoch", "until_epoch")  # of a step of train_transforms; the rest are the step's arguments


def instantiate(node: Any, **arguments: Any) -> Any:
    """Call the `_target_` of a node. What it says to users (DataError, ConfigError) comes out as it is."""
    try:
        return hydra_instantiate(node, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, (UserError, ValueError)):
            raise error.__cause__ from None
        raise


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
    )


def build_data(
    dataset: Any, bad_samples_csv: Path | None = None, splits: Sequence[str] = ("train", "val")
) -> DetectionData:
    """Read the annotations of both splits and leave out what is bad in those that will be used (or refuse it).

    bad_samples_csv: where bad samples are listed, when there are any
    """
    arguments = {key: value for key, value in dataset.items() if key not in PIPELINE_KEYS}
    data = instantiate(arguments, _convert_="all")
    bad = BadSamples(dataset.on_bad_sample, bad_samples_csv)
    return screen(data, bad, check_images=dataset.check_images, splits=splits)


def build_train_batches(cfg: TrainConfig, data: DetectionData, start: tuple[int, int] = (0, 0)) -> Batches:
    """Endless shuffled batches of the training split, (images, targets), from (epoch, step) on."""
    dataset = cfg.dataset
    reading = Reading(
        partner_window=dataset.partner_window,
        cache=dataset.cache,
        cache_limit_gib=dataset.cache_limit_gib,
        reduced=dataset.reduced_decoding,
    )
    return _train_batches(cfg, data, start, reading, _loader(dataset))


def build_preview(cfg: TrainConfig, data: DetectionData) -> Batches:
    """The same batches from the first one on, for a look at one: a single reader, nothing measured or kept."""
    reading = Reading(partner_window=cfg.dataset.partner_window, reduced=cfg.dataset.reduced_decoding)
    return _train_batches(cfg, data, (0, 0), reading, LoaderOptions(workers=1, prefetch=1))


def _train_batches(
    cfg: TrainConfig, data: DetectionData, start: tuple[int, int], reading: Reading, loader: LoaderOptions
) -> Batches:
    chain = _build_chain(cfg.train_transforms, cfg.epochs)
    return train_pipeline(
        data.train,
        chain,
        image_size=cfg.image_size,
        batch_size=cfg.batch_size,
        max_boxes=cfg.dataset.max_boxes or max_boxes_of(data.train, chain),
        seed=cfg.seed,
        loader=loader,
        reading=reading,
        first_epoch=start[0],
        first_step=start[1],
        bad=data.bad_samples,
    )


def build_eval_batches(cfg: TrainConfig | EvalConfig, data: DetectionData, split: Split) -> Batches:
    """One pass over a split of the data, (images, index, geometry)."""
    return eval_pipeline(
        split,
        _build_chain(cfg.eval_transforms),
        image_size=cfg.image_size,
        batch_size=cfg.batch_size,
        loader=_loader(cfg.dataset),
        bad=data.bad_samples,
    )


def data_facts(data: DetectionData) -> dict[str, Any]:
    """What a resumed training must find again."""
    return {
        "data": fingerprint(data.train),
        "images": len(data.train.records),
        "classes": list(data.class_names),
    }


def read_resumed(cfg: TrainConfig) -> Checkpoint | None:
    """The checkpoint to go on from; a damaged one is passed over for the one before."""
    return None if cfg.resume is None else newest_complete(Path(cfg.resume))


def build_network(cfg: TrainConfig | EvalConfig, data: DetectionData) -> nn.Cell:
    """The network in float32, as initialised, with a head for the data's classes."""
    return instantiate(cfg.model.network, num_classes=len(data.class_names), _convert_="all")


def load_weights(network: nn.Cell, path: str, *, strict: bool) -> LoadReport:
    """Set the network's parameters from a file.

    strict: a head for another number of classes is an error instead of being left fresh.
    """
    head = () if strict else network.head_prefixes
    return assign_weights(network, inference_arrays(read_weights(path)), path, head)


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


def build_training(cfg: TrainConfig, data: DetectionData, network: nn.Cell, steps_per_epoch: int) -> Training:
    """Loss, optimizer, schedule, loss scale and average around the network: the train step."""
    accumulate = accumulated_batches(cfg)
    # A network of its own for evaluation: the one in training stays in training mode, compiled once.
    eval_network = build_network(cfg, data)
    eval_network.update_parameters_name(AVERAGE_PREFIX)
    average: nn.Cell = NoAverage()
    if cfg.ema.enabled:
        average = ExponentialMovingAverage(network, eval_network, cfg.ema.decay, cfg.ema.tau)
    loss = instantiate(
        cfg.loss,
        num_classes=len(data.class_names),
        image_size=cfg.image_size,
        anchors_pixels=network.anchors_pixels,
        strides=network.strides,
        batch_factor=accumulate,
        _convert_="all",
    )
    # not through _convert_: the parameters are objects, not configuration
    optimizer = instantiate(cfg.optimizer, _partial_=True)(params=network.trainable_params())
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
        clip_value=cfg.clip_value,
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
    data: DetectionData,
    split: Split,
    network: nn.Cell,
    refresh: Callable[[], None] = _nothing,
) -> Callable[[], Any]:
    """A function that calls `refresh`, evaluates the network as it is then and returns the evaluator's result."""
    evaluator = instantiate(cfg.evaluator, _convert_="all")
    decoder = network.decoder()
    predict = Predictor(apply_amp(network, cfg.amp.level, cfg.amp.dtype), decoder, cfg.batch_size)

    def evaluate() -> Any:
        refresh()
        batches = build_eval_batches(cfg, data, split)
        result = evaluator(predict, batches.create_dict_iterator(num_epochs=1, output_numpy=True), split, data)
        if data.bad_samples is not None:
            data.bad_samples.say()
        return result

    return evaluate


def build_report(cfg: TrainConfig | EvalConfig, data: DetectionData, run: RunFolder) -> DetectionReport:
    """Pictures and tables of the task."""
    return DetectionReport(data.class_names, run.plots)


def build_diagnosis(
    cfg: TrainConfig, run: RunFolder, data: DetectionData, network: nn.Cell, step: TrainStep
) -> Diagnosis:
    """For a training that stops because of NaN, Inf or overflow."""

    def files_of(number: int) -> list[str]:
        records = data.train.records
        epoch, position = divmod(number - 1, len(records) // cfg.batch_size)
        order = epoch_order(cfg.seed, epoch, len(records))[position * cfg.batch_size :]
        return [records[index].image_path for index in order[: cfg.batch_size].tolist()]

    return Diagnosis(step, network.trainable_params(), run.root, files_of)


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
    training: Training,
    evaluate: Callable[[], Any],
    device: Device,
    data: DetectionData,
    facts: dict[str, Any],
    diagnose: Diagnosis,
) -> Callbacks:
    """facts: of data_facts, for the checkpoints. A resumed `state` cuts the metrics file behind its step."""
    metric_names = DetectionReport.metric_names
    sinks: list[RowSink] = [
        MetricsFile(run.metrics_csv, training.term_names, metric_names, state.step),
        ProgressDisplay(state, training.term_names, cfg.logger.progress),
    ]
    guard = Guard(cfg.overflow.max_consecutive, training.term_names, diagnose)
    recorder = StepRecorder(state, training.term_names, cfg.logger.every, sinks, guard, device.graph)
    early_stop = EarlyStop(state, cfg.max_steps)
    evaluation = EpochEvaluation(state, evaluate, cfg.evaluate_every, cfg.checkpoint.monitor, sinks)
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
    summary = [BadImageSummary(data.bad_samples)] if data.bad_samples is not None else []
    in_order = [recorder, early_stop, *summary, evaluation, saver]
    return Callbacks(in_order, recorder, evaluation, early_stop, saver, sinks)


def _build_schedule(cfg: TrainConfig, optimizer: nn.Cell, steps_per_epoch: int, accumulate: int) -> WarmupDecay:
    """Epochs of the configuration become updates; a run cut by max_steps decays within its steps."""
    schedule = cfg.schedule
    steps = cfg.epochs * steps_per_epoch
    if cfg.max_steps is not None:
        steps = min(steps, cfg.max_steps)
    total = max(1, steps // accumulate)
    warmup_epochs = schedule.warmup_epochs
    if warmup_epochs is None:
        warmup_epochs = min(default_warmup_epochs(cfg.epochs), total * accumulate / steps_per_epoch / 5)
    return WarmupDecay(
        lr=optimizer.lr,
        momentum=optimizer.momentum,
        total_updates=total,
        warmup_updates=math.ceil(warmup_epochs * steps_per_epoch / accumulate),
        decay=schedule.decay,
        final_factor=schedule.final_factor,
        warmup_bias_lr=schedule.warmup_bias_lr,
        warmup_momentum=schedule.warmup_momentum,
        updates_per_step=steps_per_epoch / accumulate if schedule.step == "epoch" else 1,
    )


def _build_chain(transforms: Any, epochs: int | None = None) -> Chain:
    """epochs: of the run, for steps that are off in the last ones."""
    steps, stages = {}, {}
    for name, node in transforms.items():
        arguments = {} if node is None else dict(node.items())
        first, end = (arguments.pop(key, None) for key in STAGE_KEYS)
        steps[name] = _build_step(name, arguments) if arguments else None
        if end is not None and end < 0:
            end += epochs or 0
        stages[name] = Stage(first or 0, end)
    return Chain(steps, stages)


def _build_step(name: str, arguments: dict[str, Any]) -> Any:
    try:
        return instantiate(arguments, _convert_="all")
    except (UserError, ValueError) as error:
        raise ConfigError(f"transforms step {name}: {error}") from error


def _loader(dataset: Dataset) -> LoaderOptions:
    return LoaderOptions(dataset.workers, dataset.prefetch, dataset.python_multiprocessing)


def build_checked_data(cfg: CheckDataConfig) -> tuple[CheckedData, DataError | None]:
    """The data of `check-data`; where the reader gives up, its error, and the image files without annotations."""
    try:
        if cfg.folder is not None:
            return read_class_folders(cfg.folder), None
        # The reader alone: what training would leave out or refuse is what the checks are for.
        dataset: Any = cfg.dataset
        arguments = {key: value for key, value in dataset.items() if key not in PIPELINE_KEYS}
        return detection_view(instantiate(arguments, _convert_="all")), None
    except DataError as error:
        places = [cfg.folder] if cfg.folder is not None else _texts(cfg.dataset)
        return CheckedData("files", list_images(folders_of(places)), paths_view("val", []), ()), error


def build_check_options(cfg: CheckDataConfig) -> CheckOptions:
    """The settings of the checks, with the anchors of the model if it has any."""
    network = get_class(cfg.model.network._target_)
    anchors = getattr(network, "anchors_pixels", None)
    key = "anchors_pixels"
    return CheckOptions(
        image_size=cfg.image_size,
        batch_size=cfg.batch_size,
        deep=cfg.deep,
        near_duplicates=cfg.near_duplicates,
        workers=cfg.workers,
        tiny_pixels=cfg.tiny_pixels,
        covering=cfg.covering,
        imbalance=cfg.imbalance,
        anchors=None if anchors is None else np.array(anchors, np.float64).reshape(-1, 2),
        anchors_per_level=0 if anchors is None else len(anchors[0]),
        anchor_threshold=cfg.anchor_threshold,
        anchor_key=f"model.network.{key}" if key in inspect.signature(network).parameters else None,
    )


def _texts(node: Any) -> list[str]:
    """Every text in a section and those below it, `_target_` left out."""
    found: list[str] = []
    for key, value in node.items():
        if isinstance(value, str) and key != "_target_":
            found.append(value)
        elif isinstance(value, DictConfig):
            found += _texts(value)
    return found
