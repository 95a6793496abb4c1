"""Batch normalisation folded into the convolution before it, for networks that are only evaluated.

With fixed statistics BatchNorm is a scale and a shift per channel (Ioffe and Szegedy 2015, algorithm 2):
gamma * (Wx - mean) / sqrt(variance + eps) + beta = (W * factor) x + (beta - mean * factor), factor = gamma /
sqrt(variance + eps). The folded network has a bias in place of each BatchNorm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from msrun_cli.models.children import replace_child


class Bias(nn.Cell):
    """x (B, C, H, W) + bias (C,)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = Parameter(Tensor(np.zeros(channels, np.float32)), requires_grad=False)
        self.add = ops.BiasAdd()

    def construct(self, x):
        return self.add(x, self.bias)


class Folding:
    """Keeps `folded` a folded copy of `source`.

    A cell class says in `folds` which of its children are a convolution without bias and the BatchNorm that alone
    reads its output: ((name of the convolution, name of the BatchNorm), ...). Without any, networks are left alone.

    source: the network with its statistics
    folded: a network of the same structure, which this changes: each BatchNorm that is named becomes a Bias. Its
        weights are those of the source after `refresh`.
    """

    def __init__(self, source: nn.Cell, folded: nn.Cell) -> None:
        pairs = zip(list(_pairs(source)), list(_pairs(folded)), strict=True)
        self.folds: list[tuple[nn.Conv2d, nn.BatchNorm2d, nn.Conv2d, Bias]] = []
        for (_, _, conv, norm), (parent, name, folded_conv, _) in pairs:
            bias = Bias(norm.num_features)
            replace_child(parent, name, bias)
            self.folds.append((conv, norm, folded_conv, bias))
        folded_away = {id(item) for conv, norm, _, _ in self.folds for item in (conv.weight, *norm.get_parameters())}
        set_here = {id(item) for _, _, conv, bias in self.folds for item in (conv.weight, bias.bias)}
        self.copies = list(
            zip(
                (item for item in source.get_parameters() if id(item) not in folded_away),
                (item for item in folded.get_parameters() if id(item) not in set_here),
                strict=True,
            )
        )

    def refresh(self) -> None:
        """Bring the folded network up to date with the source."""
        for conv, norm, folded_conv, bias in self.folds:
            gamma, beta, mean, variance = (
                item.asnumpy().astype(np.float64)
                for item in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
            )
            factor = gamma / np.sqrt(variance + norm.eps)
            _set(folded_conv.weight, conv.weight.asnumpy() * factor.reshape(-1, 1, 1, 1))
            _set(bias.bias, beta - mean * factor)
        for value, copy in self.copies:
            copy.set_data(value.value().copy())


def is_foldable(network: nn.Cell) -> bool:
    return next(_pairs(network), None) is not None


def _pairs(network: nn.Cell) -> Iterator[tuple[nn.Cell, str, nn.Conv2d, nn.BatchNorm2d]]:
    """Of each pair that may be folded: its parent, the name of the BatchNorm there, convolution and BatchNorm."""
    for _, cell in network.cells_and_names():
        children = cell.name_cells()
        for conv, norm in getattr(cell, "folds", ()):
            yield cell, norm, children[conv], children[norm]


def _set(parameter: Parameter, value: np.ndarray) -> None:
    parameter.set_data(Tensor(value.astype(np.float32)))
