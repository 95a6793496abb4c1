"""Steps of the library Albumentations (Buslaev et al., arXiv:1809.06839), an optional dependency."""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from typing import Any

import numpy as np

from msrun_cli.common.errors import ConfigError
from msrun_cli.transforms.sample import Context, Sample


class Albumentations:
    """Apply transforms of the library in order.

    steps: a list of {name: class of albumentations, arguments: {...}}; boxes follow where the class moves pixels, what
        is left of a box outside the picture is cut off, and boxes below one pixel of area are dropped
    Randomness comes from the context as everywhere. Raises ConfigError when the library is not installed, or has no
    such class or argument.
    """

    def __init__(self, *, steps: list[dict[str, Any]]) -> None:
        self.steps = [dict(step) for step in steps]
        self._threads = threading.local()
        self._chain()  # faults show at once

    def __call__(self, sample: Sample, context: Context) -> Sample:
        chain = self._chain()
        chain.set_random_seed(int(context.rng.integers(2**32)))
        result = chain(
            image=sample.drawn(context.out).copy(),
            bboxes=sample.boxes_xyxy.astype(np.float64),
            labels=np.asarray(sample.labels),
        )
        boxes_xyxy = np.asarray(result["bboxes"], np.float32).reshape(-1, 4)
        labels = np.asarray(result["labels"], np.int64).reshape(-1)
        return Sample(np.ascontiguousarray(result["image"]), boxes_xyxy, labels, margin=sample.margin)

    def _chain(self) -> Any:
        """One per thread: it holds its generator."""
        if not hasattr(self._threads, "chain"):
            library = _library()
            boxes = library.BboxParams(format="pascal_voc", label_fields=["labels"], clip=True, min_area=1.0)
            self._threads.chain = library.Compose([_built(library, step) for step in self.steps], bbox_params=boxes)
        return self._threads.chain


def _library() -> Any:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask the network for newer versions
    try:
        library = importlib.import_module("albumentations")
    except ImportError as error:
        raise ConfigError(
            f"a step of train_transforms needs the library albumentations, which cannot be loaded ({error}). "
            "Install it with: pip install 'msrun-cli[albumentations]'. Or remove the step."
        ) from error
    if not hasattr(library.Compose, "set_random_seed"):
        raise ConfigError(
            f"albumentations {library.__version__} cannot be seeded. Install: pip install 'msrun-cli[albumentations]'."
        )
    return library


def _built(library: Any, step: dict[str, Any]) -> Any:
    name, arguments = str(step.get("name")), step.get("arguments") or {}
    if set(step) - {"name", "arguments"}:
        raise ConfigError(f"albumentations step {step}: keys are name and arguments.")
    kind = getattr(library, name, None)
    if not isinstance(kind, type) or not issubclass(kind, library.BasicTransform):
        raise ConfigError(f'albumentations {library.__version__} has no transform "{name}".')
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*not valid for transform.*")
            return kind(**arguments)
    except (TypeError, ValueError, UserWarning) as error:
        raise ConfigError(f"albumentations {name}: {' '.join(str(error).split())}") from error
