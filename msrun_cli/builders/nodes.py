"""Reading configuration nodes: calling their `_target_`, and keys that a file may lack."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate as hydra_instantiate

from msrun_cli.common.errors import UserError

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
    "class_gain",
    "sgd_lr",
)


def instantiate(node: Any, **arguments: Any) -> Any:
    """Call the `_target_` of a node. What it says to users (DataError, ConfigError) comes out as it is."""
    try:
        return hydra_instantiate(node, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, (UserError, ValueError)):
            raise error.__cause__ from None
        raise


def read_dataset(dataset: Any) -> Any:
    """What the reader of a dataset node gives: `class_names`, `train`, `val`, `notes`."""
    arguments = {key: value for key, value in dataset.items() if key not in PIPELINE_KEYS}
    return instantiate(arguments, _convert_="all")


def optional(node: Any, key: str, default: Any) -> Any:
    """The value of a key that a file may lack."""
    return node[key] if key in node else default
