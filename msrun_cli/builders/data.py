"""The data of a run, and the object that knows what differs between the tasks."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import get_class

from msrun_cli.builders.nodes import instantiate, optional, read_dataset
from msrun_cli.common.errors import ConfigError, DataError, UserError
from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.pictures import Reading
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.data.screening import screen
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.ranks import Ranks
from msrun_cli.transforms.chain import Chain, Stage
from msrun_cli.vision.classification import Classification
from msrun_cli.vision.detection import Detection

# What differs between the tasks; they have the same methods.
Task = Detection | Classification

log = logging.getLogger("msrun")

STAGE_KEYS = ("from_epoch", "until_epoch")  # of a step of train_transforms; the rest are the step's arguments


def build_data(dataset: Any, bad_samples_csv: Path | None = None, splits: Sequence[str] = ("train", "val")) -> Any:
    """Read the annotations of both splits, say what there is, and leave out (or refuse) what is bad in those that will
    be used.

    bad_samples_csv: where bad samples are listed, when there are any
    Gives what the task is about: a DetectionData or an ImageFolderData.
    """
    bad = BadSamples(dataset.on_bad_sample, bad_samples_csv)
    data = screen(read_dataset(dataset), bad, check_images=dataset.check_images, splits=splits)
    for note in data.notes:
        log.info("%s", note)
    return data


def require_same_data(facts: dict[str, Any], ranks: Ranks) -> None:
    """Raises DataError on a rank that trains on other data than rank 0, which would count other steps."""
    own = [str(facts[name]) for name in ("images", "classes", "data")]
    first = ranks.gather((np.array(own),))[0][0].tolist()
    if own == first:
        return
    what = f"{first[0]} images there, {own[0]} here" if own[0] != first[0] else "the labels or classes differ"
    raise DataError(
        f"rank {ranks.rank} (host {platform.node()}) sees other training data than rank 0: {what}. Every host needs "
        "the same files under dataset.root; look in the log of this rank for images that were left out."
    )


def build_task(cfg: TrainConfig | EvalConfig, data: Any, device: Device) -> Task:
    """The object that knows what differs between detection and classification."""
    dataset = cfg.dataset
    return get_class(cfg.task._target_)(
        data,
        build_chain(optional(cfg, "train_transforms", {}), optional(cfg, "epochs", None)),
        build_chain(cfg.eval_transforms),
        image_size=cfg.image_size,
        batch_size=cfg.batch_size,
        seed=cfg.seed,
        loader=LoaderOptions(dataset.workers, dataset.prefetch, dataset.python_multiprocessing),
        dvpp=device.dvpp,
        shard=device.ranks.shard,
        **(_detection_settings(dataset) if cfg.task.name == "detection" else {}),
    )


def _detection_settings(dataset: Any) -> dict[str, Any]:
    reading = Reading(
        partner_window=optional(dataset, "partner_window", None),
        cache=optional(dataset, "cache", "none"),
        cache_limit_gib=optional(dataset, "cache_limit_gib", None),
        reduced=optional(dataset, "reduced_decoding", False),
    )
    return {"reading": reading, "max_boxes": optional(dataset, "max_boxes", None)}


def build_chain(transforms: Any, epochs: int | None = None) -> Chain:
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
