"""What `check-data` looks at, and its settings."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from hydra.utils import get_class
from omegaconf import DictConfig

from msrun_cli.builders.nodes import read_dataset
from msrun_cli.common.errors import DataError
from msrun_cli.config.schema import CheckDataConfig
from msrun_cli.data.doctor.checked import CheckedData, detection_view, paths_view
from msrun_cli.data.doctor.examination import CheckOptions
from msrun_cli.data.doctor.listing import folders_of, list_images, read_class_folders

_CLASS_FOLDERS = "msrun_cli.data.imagefolder.read_imagefolder"


def build_checked_data(cfg: CheckDataConfig) -> tuple[CheckedData, DataError | None]:
    """The data of `check-data`; where the reader gives up, its error, and the image files without annotations."""
    try:
        if cfg.folder is not None:
            return read_class_folders(cfg.folder), None
        dataset: Any = cfg.dataset
        if dataset._target_ == _CLASS_FOLDERS:
            # Not by its reader, which passes over files that are no pictures and stops at classes that differ.
            return read_class_folders(dataset.root, dataset.train, dataset.val), None
        # The reader alone: what training would leave out or refuse is what the checks are for.
        return detection_view(read_dataset(dataset)), None
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
