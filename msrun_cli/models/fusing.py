"""Batch normalisation and the activation behind it as one kernel, in networks that are trained on a CPU."""

from __future__ import annotations

from pathlib import Path

from mindspore import nn

from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.children import replace_child
from msrun_cli.models.yolov5.layers import SiLU

NAMES = {nn.ReLU: "ReLU", SiLU: "SiLU"}  # of the kernels' activations


def fuse_norms(network: nn.Cell, library: Path) -> int:
    """Let each BatchNorm2d that is trained use a kernel of `library`, in place; returns how many do.

    A cell class says in `activates` which child is the activation that alone reads a BatchNorm: ((name of the
    BatchNorm, name of the activation), ...). The activation moves into the BatchNorm; an identity stands in its place.
    The network has to compute its normalisation in float32.
    """
    norms = 0
    for _, cell in list(network.cells_and_names()):
        children = dict(cell.name_cells())
        activations = dict(getattr(cell, "activates", ()))
        for name, norm in children.items():
            # not one that looks at other devices, or that freezing has set to its running statistics
            if type(norm) is not BatchNorm2d or norm.use_batch_statistics is not None:
                continue
            place = activations.get(name)
            activation = children.get(place)
            if type(activation) in NAMES:
                norm.use_kernel(library, activation, NAMES[type(activation)])
                replace_child(cell, place, nn.Identity())
            else:
                norm.use_kernel(library, nn.Identity(), "")
            norms += 1
    return norms
