"""What a configuration may hold, by command; its sections stand in config.sections.

The classes describe the composed configuration and are never instantiated; recipes use them as type hints of the
DictConfig they get.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, fields
from typing import Any

from msrun_cli.config.sections import (
    Amp,
    Checkpoint,
    Dataset,
    Device,
    EarlyStopping,
    Ema,
    Launch,
    Logger,
    LossScale,
    Model,
    Optimizer,
    Overflow,
    Parallel,
    Profile,
    Schedule,
    Step,
    Target,
    Task,
    setting,
)


@dataclass(kw_only=True)
class TrainConfig:
    task: Task = setting(package="msrun_cli.vision")
    dataset: Dataset = setting(package="msrun_cli.data", complete=True)
    train_transforms: dict[str, Step | None] = setting(package="msrun_cli.transforms", complete=True)
    eval_transforms: dict[str, Step | None] = setting(package="msrun_cli.transforms", complete=True)
    model: Model
    loss: Target = setting(package="msrun_cli.losses")
    amp: Amp
    loss_scale: LossScale
    overflow: Overflow
    device: Device
    optimizer: Optimizer = setting(package="msrun_cli.optim")
    schedule: Schedule
    ema: Ema
    checkpoint: Checkpoint
    evaluator: Target = setting(package="msrun_cli.evaluation")
    fold_batch_norm: bool  # in what is evaluated
    logger: Logger
    launch: Launch
    parallel: Parallel
    epochs: int = setting(low=1)  # passes over the training images
    batch_size: int = setting(low=1)  # images per device and step
    image_size: int = setting(low=32, multiple=32)  # pixels
    seed: int = setting(low=0, high=2**32 - 1)  # of first weights, order of images and augmentation
    weights: str | None = setting(path=True)
    freeze: list[str]  # patterns of parameter names that are not trained
    resume: str | None = setting(path=True)
    output_dir: str = setting(path=True)
    name: str
    max_steps: int | None = setting(low=1)  # batches
    accumulate: int | None = setting(low=1)  # batches per update; None = from nbs
    nbs: int | None = setting(low=1)  # images; None = weight decay is not scaled
    clip_norm: float | None = setting(above=0)  # None = off
    clip_value: float | None = setting(above=0)  # None = off
    recompute: bool
    sync_batch_norm: bool
    evaluate_every: int = setting(low=0)  # epochs; 0 = only at the end
    save_best_on: str | None  # a metric of the task, or loss; see config.task_rules
    early_stopping: EarlyStopping


@dataclass(kw_only=True)
class ProfileConfig(TrainConfig):
    profile: Profile


@dataclass(kw_only=True)
class EvalConfig:
    task: Task = setting(package="msrun_cli.vision")
    dataset: Dataset = setting(package="msrun_cli.data", complete=True)
    eval_transforms: dict[str, Step | None] = setting(package="msrun_cli.transforms", complete=True)
    model: Model
    amp: Amp
    device: Device
    evaluator: Target = setting(package="msrun_cli.evaluation")
    fold_batch_norm: bool  # in what is evaluated
    launch: Launch
    parallel: Parallel
    checkpoint: str | None = setting(path=True)
    weights: str | None = setting(path=True)
    split: str = setting(choices=("val", "train"))
    batch_size: int = setting(low=1)  # images per device and step
    image_size: int = setting(low=32, multiple=32)  # pixels
    seed: int = setting(low=0, high=2**32 - 1)
    output_dir: str = setting(path=True)
    name: str


@dataclass(kw_only=True)
class CheckDataConfig:
    task: Task = setting(package="msrun_cli.vision")
    dataset: Dataset = setting(package="msrun_cli.data", complete=True)
    model: Model
    folder: str | None = setting(path=True)
    batch_size: int = setting(low=1)  # images
    image_size: int = setting(low=32, multiple=32)  # pixels
    save: str | None = setting(path=True)
    json: bool
    strict: bool
    deep: bool
    near_duplicates: bool
    workers: int | None = setting(low=1)
    tiny_pixels: float = setting(low=0)  # pixels at image_size
    covering: float = setting(above=0, high=1)  # part of the image
    imbalance: float = setting(low=1)  # commonest to rarest class
    anchor_threshold: float = setting(above=1)  # ratio of sides
    seed: int = setting(low=0, high=2**32 - 1)


ROOTS: dict[str, type] = {
    "train": TrainConfig,
    "eval": EvalConfig,
    "check-data": CheckDataConfig,
    "profile": ProfileConfig,
}


def _key(name: str) -> str:
    """`async_` stands for the key `async`, which Python does not allow as a field's name; `_target_` is itself."""
    return name if name.startswith("_") else name.rstrip("_")


def hints(schema: type) -> dict[str, Any]:
    """Types of the fields of a schema class by key, without its class variables."""
    resolved = typing.get_type_hints(schema)
    return {_key(item.name): resolved[item.name] for item in fields(schema)}


def limits(schema: type) -> dict[str, dict[str, Any]]:
    return {_key(item.name): dict(item.metadata) for item in fields(schema)}


def split_optional(hint: Any) -> tuple[Any, bool]:
    """(type without None, whether None is allowed)."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        return rest[0], len(rest) < len(typing.get_args(hint))
    return hint, False
