"""Networks of other people as image classifiers: any `nn.Cell` by its dotted path, and the networks of MindCV."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from mindspore import nn

from msrun_cli.common.errors import ConfigError
from msrun_cli.models.normalize import MEAN, STD, NormalizeImage


class CustomClassifier(nn.Cell):
    """construct: images uint8 (B, H, W, 3) RGB -> what `cell` makes of float32 (B, 3, H, W): logits (B, num_classes).

    Args:
        num_classes: passed to `cell` by that name.
        cell: makes the network; called with num_classes=... .
        head: beginnings of parameter names, inside the cell, that depend on the number of classes; they stay fresh
            when weights of another number of classes are loaded.
        mean, std: of the channels, on the 0..255 scale.

    Raises:
        ConfigError: `cell` makes no nn.Cell.
    """

    weight_prefix = "cell."  # weight files have the names that the cell has alone

    def __init__(
        self,
        num_classes: int,
        cell: Callable[..., nn.Cell],
        head: Sequence[str] = (),
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
    ) -> None:
        super().__init__()
        self.normalize = NormalizeImage(mean, std)
        if not callable(cell) or isinstance(cell, nn.Cell):
            raise ConfigError(
                "model.network.cell must have _partial_: true, since the number of classes is only known later."
            )
        try:
            self.cell = cell(num_classes=num_classes)
        except TypeError as error:
            raise ConfigError(f"model.network.cell cannot be made with num_classes={num_classes}: {error}.") from error
        if not isinstance(self.cell, nn.Cell):
            raise ConfigError(f"model.network.cell made a {type(self.cell).__name__}, which is no mindspore.nn.Cell.")
        self.head_prefixes = tuple(f"{self.weight_prefix}{name}" for name in head)

    def construct(self, images):
        return self.cell(self.normalize(images))


def mindcv_classifier(
    num_classes: int, network: str, mean: Sequence[float] = MEAN, std: Sequence[float] = STD
) -> CustomClassifier:
    """A network of MindCV by its name there, such as resnet50; fresh, since nothing is downloaded.

    Raises:
        ConfigError: MindCV is not installed, or has no network of that name.
    """
    try:
        mindcv = importlib.import_module("mindcv")
    except ImportError as error:
        raise ConfigError(
            f"model=mindcv needs the package mindcv, which cannot be imported ({error}). "
            "Install it with: pip install 'msrun-cli[mindcv]'"
        ) from error
    if not mindcv.is_model(network):
        near = ", ".join(mindcv.list_models(f"*{network[:6]}*")[:8])
        raise ConfigError(f"MindCV has no network {network!r}.{f' Similar: {near}.' if near else ''} Set model.name.")

    def make(num_classes: int) -> nn.Cell:
        return mindcv.create_model(network, num_classes=num_classes, pretrained=False)

    return CustomClassifier(num_classes, make, ("classifier", "fc", "head"), mean, std)
