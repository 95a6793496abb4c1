"""What a configuration may hold: keys, types, units and ranges.

The classes describe the composed configuration and are never instantiated; recipes use them as type hints of the
DictConfig they get. Limits stand in the field's metadata, where `check` reads them.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


def setting(
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    multiple: int | None = None,
    choices: tuple[str, ...] | None = None,
    package: str | None = None,
    complete: bool = False,
    path: bool = False,
    words: tuple[str, ...] = (),
    absent: bool = False,
) -> Any:
    """A field with limits: low <= value <= high, value > above, a multiple of `multiple`, one of `choices`.

    package: where the `_target_` of this node must live; complete: all its required arguments stand in the YAML
    (otherwise the builder supplies some); path: a file name, in which `~` is expanded; words: texts that are allowed
    beside numbers, such as "auto"; absent: the key may be left out of the YAML.
    """
    limits: dict[str, Any] = {"low": low, "above": above, "high": high, "multiple": multiple, "choices": choices}
    limits |= {"package": package, "complete": complete, "path": path, "words": words, "absent": absent}
    return field(metadata=limits)


@dataclass(kw_only=True)
class Target:
    """A node that is built by calling `_target_` with all other keys as arguments."""

    ARGUMENTS: ClassVar[bool] = True
    _target_: str


@dataclass(kw_only=True)
class Step(Target):
    """A step of a chain; in training it is on in the epochs from_epoch <= epoch < until_epoch, counted from 0."""

    from_epoch: int | None = setting(low=0, absent=True)  # None = from the first
    until_epoch: int | None = setting(absent=True)  # None = to the last; -10 = all but the last ten


@dataclass(kw_only=True)
class Task(Target):
    """What differs between detection and classification; the model chooses it."""

    name: str = setting(choices=("detection", "classification"))


@dataclass(kw_only=True)
class Dataset:
    """Keys of the pipeline; every other key is an argument of the reader `_target_`. Those that may be absent are for
    detection alone, see config.rules."""

    ARGUMENTS: ClassVar[bool] = True
    _target_: str
    name: str
    image_size: int = setting(low=32, multiple=32)  # pixels
    workers: int | str = setting(low=1, words=("auto",))  # parallel readers
    prefetch: int = setting(low=1)  # batches
    python_multiprocessing: bool
    partner_window: int | None = setting(low=8, absent=True)  # pictures; None = all
    cache: str = setting(choices=("none", "ram", "disk"), absent=True)
    cache_limit_gib: float | None = setting(above=0, absent=True)  # GiB; None = from what is free
    reduced_decoding: bool = setting(absent=True)
    max_boxes: int | None = setting(low=1, absent=True)  # boxes per image; None = from the data
    on_bad_sample: str = setting(choices=("skip", "error"))
    check_images: bool
    class_gain: float = setting(above=0, absent=True)  # weight of the class term in the loss
    sgd_lr: float = setting(above=0, absent=True)  # learning rate of optimizer=sgd


@dataclass(kw_only=True)
class Model:
    name: str
    task: str = setting(choices=("detection", "classification"))
    image_size: int = setting(low=32, multiple=32, absent=True)  # pixels it is made for
    eval_resize: int | None = setting(low=1, absent=True)  # pixels of the short side in an evaluation
    network: Target = setting(package="msrun_cli.models")


@dataclass(kw_only=True)
class Amp:
    level: str = setting(choices=("O0", "O1", "O2", "O3"))
    dtype: str = setting(choices=("float16", "bfloat16"))


@dataclass(kw_only=True)
class LossScale:
    type: str = setting(choices=("none", "fixed", "dynamic"))
    value: float = setting(above=0)
    factor: float = setting(above=1)
    window: int = setting(low=1)  # good steps before the scale grows


@dataclass(kw_only=True)
class Overflow:
    max_consecutive: int = setting(low=1)  # steps; that many skipped in a row end the training


@dataclass(kw_only=True)
class Device:
    target: str = setting(choices=("auto", "cpu", "ascend", "gpu"))
    mode: str = setting(choices=("graph", "pynative"))
    jit_level: str | None = setting(choices=("O0", "O1", "O2"))
    deterministic: bool
    save_graphs: bool
    dvpp: bool  # an Ascend decodes and resizes images
    sink: str = setting(choices=("auto", "on", "off"))
    sink_size: int = setting(low=-1)  # steps; -1 = a whole epoch


@dataclass(kw_only=True)
class Schedule:
    decay: str = setting(choices=("linear", "cosine", "step", "one_cycle"))
    step: str = setting(choices=("epoch", "update"))  # how often the decay goes down
    milestones: list[float] = setting(above=0, high=1, absent=True)  # fractions of the run, for decay=step
    gamma: float = setting(above=0, high=1, absent=True)  # factor at each milestone, for decay=step
    start_factor: float = setting(low=0, high=1, absent=True)  # first learning rate / lr, for decay=one_cycle
    final_factor: float = setting(low=0, high=1)  # learning rate at the end / lr
    warmup_epochs: float | None = setting(low=0)  # epochs; None = min(3, epochs / 5)
    warmup_bias_lr: float | None = setting(low=0)  # None = that of the weights
    warmup_momentum: float | None = setting(low=0, high=1)  # None = constant


@dataclass(kw_only=True)
class Ema:
    enabled: bool
    decay: float = setting(low=0, high=1)
    tau: float = setting(above=0)  # updates


@dataclass(kw_only=True)
class Checkpoint:
    every: int = setting(low=0)  # epochs; 0 = never
    every_steps: int | None = setting(low=1)  # batches; None = only at the end of each epoch
    keep_last: int = setting(low=1)  # files
    keep_best: int = setting(low=0)  # files
    async_: bool  # key: async
    monitor: str | None = setting(choices=("map50_95", "map50", "map75", "top1", "top5", "mean_class_accuracy"))


@dataclass(kw_only=True)
class Logger:
    every: int = setting(low=1)  # steps
    progress: str = setting(choices=("auto", "rich", "plain"))


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
    optimizer: Target = setting(package="msrun_cli.optim")
    schedule: Schedule
    ema: Ema
    checkpoint: Checkpoint
    evaluator: Target = setting(package="msrun_cli.evaluation")
    logger: Logger
    epochs: int = setting(low=1)
    batch_size: int = setting(low=1)  # images per device and step
    image_size: int = setting(low=32, multiple=32)  # pixels
    seed: int = setting(low=0, high=2**32 - 1)
    weights: str | None = setting(path=True)
    resume: str | None = setting(path=True)
    output_dir: str = setting(path=True)
    name: str
    max_steps: int | None = setting(low=1)  # batches
    accumulate: int | None = setting(low=1)  # batches per update; None = from nbs
    nbs: int | None = setting(low=1)  # images; None = weight decay is not scaled
    clip_norm: float | None = setting(above=0)  # None = off
    clip_value: float | None = setting(above=0)  # None = off
    evaluate_every: int = setting(low=0)  # epochs; 0 = only at the end


@dataclass(kw_only=True)
class Profile:
    what: str = setting(choices=("both", "data", "step"))
    steps: int = setting(low=5)
    warmup: int = setting(low=1)  # steps
    seconds: float = setting(above=0)
    data_seconds: float = setting(low=1)
    operators: bool
    operator_steps: int = setting(low=1)
    top: int = setting(low=1)  # rows
    try_: bool  # key: try
    amp: list[str] = setting(choices=("O0", "O1", "O2", "O3"))


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
    checkpoint: str | None = setting(path=True)
    weights: str | None = setting(path=True)
    split: str = setting(choices=("val", "train"))
    batch_size: int = setting(low=1)  # images per step
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
