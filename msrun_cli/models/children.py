"""Exchanging the cells inside a cell."""

from __future__ import annotations

from mindspore import nn


def replace_child(parent: nn.Cell, name: str, child: nn.Cell) -> None:
    """Put `child` where the child `name` is. Names of parameters stay as they are."""
    parent._cells[name] = child
    if isinstance(parent, nn.SequentialCell):
        parent.cell_list = list(parent.cells())  # what SequentialCell calls
