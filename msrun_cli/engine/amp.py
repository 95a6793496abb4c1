"""Mixed precision levels, applied to the network only: the loss, the optimizer and the loss scale stay float32.

O0  everything float32.
O1  convolutions and dense layers in half precision, their outputs back in float32.
O2  everything in half precision but normalisation layers; outputs float32.
O3  everything in half precision; outputs float32.

Parameters stay float32 at every level and are cast where they are used.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from msrun_cli.models.children import replace_child

LEVELS = ("O0", "O1", "O2", "O3")
DTYPES = {"float16": ms.float16, "bfloat16": ms.bfloat16}
HALF_PRECISION_CELLS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Conv2dTranspose, nn.Dense)


def apply_amp(network: nn.Cell, level: str, dtype: str) -> nn.Cell:
    """The network at `level`. Use the returned cell: O2 and O3 wrap the network.

    level: one of LEVELS; dtype: one of DTYPES. O1 is done cell by cell here, since MindSpore's rewriting of
    the source writes
    files into the working directory and fails on networks that it cannot parse.
    """
    if level == "O0":
        return network
    half = DTYPES[dtype]
    if level == "O1":
        _cast_cells(network, half)
        return network
    return ms.amp.auto_mixed_precision(network, level, half)


def _cast_cells(cell: nn.Cell, half) -> None:
    for name, child in list(cell.name_cells().items()):
        if isinstance(child, HALF_PRECISION_CELLS):
            replace_child(cell, name, _HalfPrecision(child, half))
        else:
            _cast_cells(child, half)


class _HalfPrecision(nn.Cell):
    """A cell computed in half precision whose output is float32 again."""

    def __init__(self, cell: nn.Cell, half) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell.to_float(half)

    def construct(self, x):
        return ops.cast(self.cell(x), ms.float32)
