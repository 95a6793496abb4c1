"""Gradient checkpointing (Chen et al. 2016): blocks that are computed again in the backward pass instead of kept."""

from __future__ import annotations

from mindspore import nn


def recompute_blocks(network: nn.Cell) -> list[str]:
    """Mark the network's blocks, in place; returns their names. Use it behind `engine.amp.apply_amp`.

    Blocks are the outermost cells with a number in their name and parameters, such as `model.3` or `layer2.0`; in a
    network without numbers the cells at the top that have parameters. The last one is left out: it is the first that
    the backward pass needs.
    The running statistics of BatchNorm move in each pass, so whoever trains must set them back to those of the first
    one, as `engine.train_step.TrainStep` does.
    """
    root = getattr(network, "weight_prefix", "")
    numbered: dict[str, nn.Cell] = {}
    top: dict[str, nn.Cell] = {}
    for name, cell in network.cells_and_names():
        if not name.startswith(root) or not any(True for _ in cell.get_parameters()):
            continue
        inside = name.removeprefix(root)
        if inside.split(".")[-1].isdigit() and not any(part.isdigit() for part in inside.split(".")[:-1]):
            numbered[name] = cell
        elif inside and "." not in inside:
            top[name] = cell
    names = list(numbered or top)[:-1]
    for name in names:
        (numbered or top)[name].recompute()
    return names
