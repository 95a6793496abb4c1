"""The sections of a configuration: keys, types, units and ranges. What each command has of them: config.schema.

Limits stand in the field's metadata, where `check` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

    name: str = setting(choices=("detection", "classification"))  # chosen by the model


@dataclass(kw_only=True)
class Dataset:
    """Keys of the pipeline; every other key is an argument of the reader `_target_`. Those that may be absent are for
    detection alone, see config.rules."""

    ARGUMENTS: ClassVar[bool] = True
    _target_: str
    name: str  # part of the run's name
    image_size: int = setting(low=32, multiple=32)  # pixels
    workers: int | str = setting(low=1, words=("auto",))  # parallel readers
    prefetch: int = setting(low=1)  # batches
    python_multiprocessing: bool
    partner_window: int | str | None = setting(low=8, words=("auto",), absent=True)  # pictures; None = all
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
    name: str  # part of the run's name
    task: str = setting(choices=("detection", "classification"))  # what the network is made for
    image_size: int = setting(low=32, multiple=32, absent=True)  # pixels it is made for
    eval_resize: int | None = setting(low=1, absent=True)  # pixels of the short side in an evaluation
    network: Target = setting(package="msrun_cli.models")


@dataclass(kw_only=True)
class Amp:
    level: str = setting(choices=("O0", "O1", "O2", "O3"))  # O0 = float32, O3 = all in dtype; amp=LEVEL sets it
    dtype: str = setting(choices=("float16", "bfloat16"))


@dataclass(kw_only=True)
class LossScale:
    type: str = setting(choices=("none", "fixed", "dynamic"))  # loss_scale=TYPE sets it
    value: float = setting(above=0)  # scale at the start
    factor: float = setting(above=1)  # by which a dynamic scale is divided or multiplied
    window: int = setting(low=1)  # good steps before the scale grows


@dataclass(kw_only=True)
class Overflow:
    max_consecutive: int = setting(low=1)  # steps; that many skipped in a row end the training


@dataclass(kw_only=True)
class Device:
    target: str = setting(choices=("auto", "cpu", "ascend", "gpu"))  # device=TARGET sets it
    mode: str = setting(choices=("graph", "pynative"))
    jit_level: str | None = setting(choices=("O0", "O1", "O2"))
    deterministic: bool
    compile_cache: bool  # not of what save_graphs writes or a data sink feeds
    kernels: str = setting(choices=("auto", "on", "off"))  # our own for a CPU, made by the machine's compiler
    save_graphs: bool
    dvpp: bool  # an Ascend decodes and resizes images
    sink: str = setting(choices=("auto", "on", "off"))
    sink_size: int | str = setting(low=-1, words=("auto",))  # steps; auto = a log interval; -1 = a whole epoch


@dataclass(kw_only=True)
class ParameterGroup:
    """Parameters with a learning rate or a weight decay of their own; a parameter belongs to the last group it fits."""

    pattern: str  # of the parameters' names, such as model.24.*
    lr_scale: float = setting(above=0, absent=True)  # times the learning rate of the schedule
    weight_decay: float | None = setting(low=0, absent=True)  # of the weights; None = optimizer.weight_decay


@dataclass(kw_only=True)
class Optimizer(Target):
    """Keys that every optimizer has; the others are arguments of its `_target_`."""

    layer_decay: float | None = setting(above=0, high=1, absent=True)  # rate of a layer / rate of the next; None = off
    groups: dict[str, ParameterGroup | None] = setting(absent=True)


@dataclass(kw_only=True)
class Schedule:
    decay: str = setting(choices=("linear", "cosine", "step", "one_cycle"))  # schedule=DECAY sets it
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
    enabled: bool  # whether a running average of the weights is evaluated and saved; ema=on or off sets it
    decay: float = setting(low=0, high=1)
    tau: float = setting(above=0)  # updates


@dataclass(kw_only=True)
class Checkpoint:
    every: int = setting(low=0)  # epochs; 0 = never
    every_steps: int | None = setting(low=1)  # batches; None = only at the end of each epoch
    keep_last: int = setting(low=1)  # files
    keep_best: int = setting(low=0)  # files
    async_: bool  # key: async


@dataclass(kw_only=True)
class EarlyStopping:
    patience: int | None = setting(low=1)  # epochs without a better evaluation; None = off
    min_delta: float = setting(low=0)  # in units of save_best_on


@dataclass(kw_only=True)
class Logger:
    every: int = setting(low=1)  # steps
    progress: str = setting(choices=("auto", "rich", "plain"))


@dataclass(kw_only=True)
class Launch:
    kind: str = setting(choices=("none", "local", "cluster"))  # where the processes are
    workers: int = setting(low=1)  # processes per host, one per device
    nodes: int = setting(low=1)  # hosts
    node_rank: int = setting(low=0)  # of this host
    master: str  # address or name of the host with node_rank 0
    port: int | None = setting(low=1024, high=65534)  # None = a free one
    timeout_s: int = setting(low=1)  # seconds
    bind_cores: bool


PARALLEL_MODES = ("none", "data_parallel", "optimizer_sharding", "semi_auto", "auto")


@dataclass(kw_only=True)
class Parallel:
    mode: str = setting(choices=PARALLEL_MODES)  # how devices share the work
    level: str = setting(choices=("level1", "level2", "level3"), absent=True)  # for optimizer_sharding
    threshold_kb: int = setting(low=0, absent=True)  # KB, for optimizer_sharding
    shard_size: int = setting(low=-1, absent=True)  # devices, for optimizer_sharding; -1 = all
    search: str = setting(choices=("recursive_programming", "sharding_propagation"), absent=True)  # for auto


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
