"""Kernels of our own in networks that are trained on a CPU: for BatchNorm with its activation and for convolutions."""

from __future__ import annotations

from pathlib import Path

from mindspore import nn

from msrun_cli.kernels.operators import Convolution
from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.children import replace_child
from msrun_cli.models.yolov5.layers import SiLU

LARGE_MAP_PIXELS = 300  # height x width of an output from which the kernel for convolutions pays
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


def use_convolutions(network: nn.Cell, library: Path) -> int:
    """Let convolutions of more than a pixel use the gradient of `library`, in place; returns how many do.

    Those that a cell class names in `folds` (models/folding.py): another's network may want more of a convolution than
    its output. Parameters stay the same objects with the same names. The network has to compute in float32.
    """
    count = 0
    for _, cell in list(network.cells_and_names()):
        children = cell.name_cells()
        for name, _ in getattr(cell, "folds", ()):
            if type(children[name]) is nn.Conv2d and _fits(children[name]):
                replace_child(cell, name, KernelConv2d(children[name], library))
                count += 1
    return count


def _fits(conv: nn.Conv2d) -> bool:
    """One square kernel over all channels, moved and padded alike in both directions."""
    plain = conv.group == 1 and conv.pad_mode == "pad" and not conv.has_bias and set(conv.dilation) == {1}
    alike = all(len(set(sides)) == 1 for sides in (conv.kernel_size, conv.stride, _padding(conv)))
    return plain and alike and conv.kernel_size[0] > 1


def _padding(conv: nn.Conv2d) -> tuple[int, ...]:
    return (conv.padding,) * 4 if isinstance(conv.padding, int) else tuple(conv.padding)


class KernelConv2d(nn.Cell):
    """`conv` with the gradient of a kernel where its output is large."""

    def __init__(self, conv: nn.Conv2d, library: Path) -> None:
        super().__init__()
        self.weight = conv.weight
        self.size, self.stride, self.padding = conv.kernel_size[0], conv.stride[0], _padding(conv)[0]
        self.plain = conv.conv2d
        self.convolution = Convolution(library, conv.out_channels, self.size, self.stride, self.padding)

    def construct(self, x):
        if self._side(x.shape[2]) * self._side(x.shape[3]) >= LARGE_MAP_PIXELS:
            return self.convolution(x, self.weight)
        return self.plain(x, self.weight)

    def _side(self, side):
        return (side + 2 * self.padding - self.size) // self.stride + 1
