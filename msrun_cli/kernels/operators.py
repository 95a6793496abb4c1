"""The kernels of the library as operators and cells of MindSpore, for graph mode and PyNative, float32 only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops.signature import make_sig, sig_rw

ACTIVATIONS = ("", "ReLU", "SiLU")


class BatchNorm(nn.Cell):
    """Batch normalisation in training and the activation behind it.

    construct(x, gamma, beta, running_mean, running_variance) -> (y, mean, scale, new running mean, new running
    variance): x, y (B, C, H, W), the rest (C,); scale is 1 / sqrt(variance + eps). Has a gradient for x, gamma, beta.

    Args:
        activation: one of ACTIVATIONS.
        eps: is added to the variance.
        new_share: weight of this batch in the running statistics, 0..1.
    """

    def __init__(self, library: Path, activation: str, eps: float, new_share: float) -> None:
        super().__init__()
        assert activation in ACTIVATIONS
        self.settings = Tensor(np.array([eps, new_share], np.float32))
        self.kernel = _operator(library, f"BatchNorm{activation}", _forward_shapes, 5)
        self.gradient = _operator(library, f"BatchNorm{activation}Grad", _gradient_shapes, 3)

    def construct(self, x, gamma, beta, running_mean, running_variance):
        return self.kernel(x, gamma, beta, running_mean, running_variance, self.settings)

    def bprop(self, x, gamma, beta, running_mean, running_variance, out, dout):
        dx, dgamma, dbeta = self.gradient(dout[0], x, gamma, beta, out[1], out[2])
        return dx, dgamma, dbeta, ops.zeros_like(running_mean), ops.zeros_like(running_variance)


def _forward_shapes(x, gamma, beta, running_mean, running_variance, settings):
    return list(x), list(gamma), list(gamma), list(gamma), list(gamma)


def _gradient_shapes(dy, x, gamma, beta, mean, scale):
    return list(x), list(gamma), list(gamma)


def _operator(library: Path, name: str, shapes, outputs: int) -> ops.Custom:
    types = (ms.float32,) * outputs
    return ops.Custom(f"{library}:{name}", shapes, lambda *_: types, func_type="aot")


class Convolution(nn.Cell):
    """A convolution of one group with a gradient of its own for the weight, which takes less time than MindSpore's on
    maps of some hundred pixels and more.

    construct(x (B, C, H, W), w (O, C, K, K)) -> (B, O, h, w)

    Args:
        outputs: O.
        size: K.
        stride, padding: the same on all sides.
    """

    def __init__(self, library: Path, outputs: int, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.convolution = ops.Conv2D(outputs, size, pad_mode="pad", pad=padding, stride=stride)
        # the gradient for the input, with the arguments of the convolution
        self.transposed = ops.Conv2DTranspose(outputs, size, pad_mode="pad", pad=padding, stride=stride)
        self.settings = Tensor(np.array([stride, padding], np.float32))
        self.kernel = ops.Custom(f"{library}:FilterGradient", _weight_shape, lambda *_: ms.float32, func_type="aot")

    def construct(self, x, w):
        return self.convolution(x, w)

    def bprop(self, x, w, out, dout):
        return self.transposed(dout, w, x.shape), self.kernel(x, w, dout, self.settings)


def _weight_shape(x, w, dy, settings):
    return list(w)


def square_sum(library: Path) -> ops.Custom:
    """(*tensors) -> float32 (1,), the sum of the squares of all their numbers."""
    return ops.Custom(f"{library}:SquareSum", lambda *_: [1], lambda *_: ms.float32, func_type="aot")


class InPlace(ops.Custom):
    """Operator that changes some of its inputs, which are parameters, and returns float32 (1,) when it has.

    changes: for each input whether it is changed
    """

    def __init__(self, library: Path, name: str, changes: Sequence[bool]) -> None:
        super().__init__(f"{library}:{name}", lambda *_: [1], lambda *_: ms.float32, func_type="aot")
        self.add_prim_attr("side_effect_mem", True)
        kinds = (sig_rw.RW_WRITE if changed else sig_rw.RW_READ for changed in changes)
        self.set_signatures([make_sig(f"input{index}", kind) for index, kind in enumerate(kinds)])


def moving_average(library: Path, count: int) -> InPlace:
    """(share (), *averages, *values), `count` of each: average += share * (value - average)."""
    return InPlace(library, "MovingAverage", [False, *[True] * count, *[False] * count])


def momentum_update(library: Path, count: int) -> InPlace:
    """(factor (), momentum (), rates (count,), decays (count,), nesterov (1,), *parameters, *velocities, *gradients):
    g = gradient * factor + decay * p; v = momentum * v + g; p -= rate * v, or rate * (g + momentum * v) with nesterov
    not 0.
    """
    return InPlace(library, "MomentumUpdate", [*[False] * 5, *[True] * (2 * count), *[False] * count])


def unpack(library: Path, count: int) -> InPlace:
    """(values (N,), *tensors), `count` tensors of N numbers together, which take the values one after the other."""
    return InPlace(library, "Unpack", [False, *[True] * count])


def all_float32(parameters: Sequence[Parameter]) -> bool:
    return all(parameter.dtype == ms.float32 for parameter in parameters)
