"""The kernels against numpy in float64, in both modes."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msrun_cli.kernels.operators import (
    BatchNorm,
    Convolution,
    momentum_update,
    moving_average,
    square_sum,
    unpack,
)

EPSILON, SHARE = 1e-3, 0.03
MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


ACTIVATIONS = {  # value and derivative
    "": (lambda z: z, lambda z: np.ones_like(z)),
    "ReLU": (lambda z: np.maximum(z, 0), lambda z: (z > 0) * 1.0),
    "SiLU": (lambda z: z * sigmoid(z), lambda z: sigmoid(z) * (1 + z * (1 - sigmoid(z)))),
}


def column(values):
    return np.asarray(values, np.float64).reshape(1, -1, 1, 1)


def reference(x, dy, gamma, beta, activation):
    """y, dx, dgamma, dbeta, mean, unbiased variance."""
    value, derivative = ACTIVATIONS[activation]
    axes = (0, 2, 3)
    x, dy, gamma = x.astype(np.float64), dy.astype(np.float64), column(gamma)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + EPSILON)
    normal = (x - mean) * inverse
    z = gamma * normal + column(beta)
    dz = dy * derivative(z)
    dx = gamma * inverse * (dz - dz.mean(axes, keepdims=True) - normal * (dz * normal).mean(axes, keepdims=True))
    count = x[:, 0].size
    unbiased = variance.ravel() * count / max(count - 1, 1)
    return value(z), dx, (dz * normal).sum(axes), dz.sum(axes), mean.ravel(), unbiased


class WithGradient(nn.Cell):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.gradient = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, *inputs):
        values, sens = inputs[:5], inputs[5:]
        return self.cell(*values), self.gradient(self.cell)(*values, sens)


def close(found, expected, tolerance):
    np.testing.assert_allclose(found.asnumpy(), expected, atol=tolerance * max(np.abs(expected).max(), 1e-6), rtol=0)


@MODES
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 3, 1, 1), (3, 1, 160, 33)], ids=str)
def test_batch_norm_and_its_gradient(shape, activation, mode, library):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    channels = shape[1]
    x = (rng.standard_normal(shape) * 2 + column(np.arange(channels) * 3)).astype(np.float32)
    x[:, :, : shape[2] // 2] = 4.0  # a constant area, as letterboxing gives
    gamma, beta, dy = (rng.standard_normal(s).astype(np.float32) for s in (channels, channels, shape))
    running = rng.standard_normal(channels).astype(np.float32), rng.random(channels).astype(np.float32)
    zeros = [Tensor(np.zeros(channels, np.float32))] * 4
    cell = WithGradient(BatchNorm(library, activation, EPSILON, SHARE))
    outputs, gradients = cell(*map(Tensor, (x, gamma, beta, *running)), Tensor(dy), *zeros)
    y, dx, dgamma, dbeta, mean, unbiased = reference(x, dy, gamma, beta, activation)
    close(outputs[0], y, 2e-6)
    close(outputs[3], running[0] + SHARE * (mean - running[0]), 1e-6)
    close(outputs[4], running[1] + SHARE * (unbiased - running[1]), 1e-6)
    if x[:, 0].size == 1:  # nothing but rounding is left of the input
        return
    close(gradients[0], dx, 3e-6)
    close(gradients[1], dgamma, 3e-6)
    close(gradients[2], dbeta, 3e-6)


def test_the_large_values_of_a_sigmoid(library):
    """Far from zero SiLU is next to 0 or the identity, without NaN."""
    x = np.array([-1e30, -100, -1, 1, 100, 1e30], np.float32).reshape(1, 6, 1, 1)
    beta = x.ravel()
    ones = Tensor(np.ones(6, np.float32))
    y = BatchNorm(library, "SiLU", EPSILON, SHARE)(Tensor(x), ones, Tensor(beta), ones, ones)[0].asnumpy().ravel()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(y, beta * sigmoid(beta.astype(np.float64)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_what_is_not_finite_is_not_hidden(activation, bad, library):
    """A step with NaN or infinity has to be seen and skipped."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((2, 3, 4, 4)).astype(np.float32) for _ in range(2))
    ones = Tensor(np.ones(3, np.float32))
    zeros = [Tensor(np.zeros(3, np.float32))] * 4
    cell = WithGradient(BatchNorm(library, activation, EPSILON, SHARE))
    dy[0, 1, 2, 3] = bad
    _, (dx, _, dbeta, _, _) = cell(Tensor(x), ones, ones * 9, ones, ones, Tensor(dy), *zeros)
    assert not np.isfinite(dx.asnumpy()[:, 1]).any() and np.isfinite(dx.asnumpy()[:, [0, 2]]).all()
    assert not np.isfinite(dbeta.asnumpy()[1])
    x[0, 1, 2, 3] = bad
    (y, *_), _ = cell(Tensor(x), ones, ones * 9, ones, ones, Tensor(dy), *zeros)
    assert np.isnan(y.asnumpy()[:, 1]).any() and np.isfinite(y.asnumpy()[:, [0, 2]]).all()


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_a_variance_beyond_float32_is_not_hidden(activation, library):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    x[:, 1] *= 1e30
    ones = Tensor(np.ones(3, np.float32))
    y = BatchNorm(library, activation, EPSILON, SHARE)(Tensor(x), ones, ones, ones, ones)[0].asnumpy()
    assert np.isnan(y[:, 1]).all() and np.isfinite(y[:, [0, 2]]).all()


def test_a_view_is_read_in_its_order(library):
    """In PyNative mode a slice or a transposition may share memory with the whole."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((2, 6, 4, 5)).astype(np.float32)
    ones = Tensor(np.ones(3, np.float32))
    norm = BatchNorm(library, "", EPSILON, SHARE)
    for view, values in (
        (ops.narrow(Tensor(whole), 1, 2, 3), whole[:, 2:5]),
        (ops.transpose(Tensor(whole[:, :3]), (0, 1, 3, 2)), whole[:, :3].transpose(0, 1, 3, 2)),
    ):
        y = norm(view, ones, ones * 0, ones, ones)[0]
        close(y, reference(values, values, np.ones(3), np.zeros(3), "")[0], 2e-6)


CONVOLUTIONS = [  # B, C, O, H, W, K, stride, padding
    (2, 5, 7, 9, 8, 3, 1, 1),
    (3, 3, 16, 32, 20, 6, 2, 2),
    (2, 2, 9, 13, 11, 7, 2, 3),
    (2, 4, 3, 12, 17, 5, 3, 2),
    (1, 1, 1, 3, 3, 3, 1, 0),
    (2, 3, 4, 7, 7, 2, 2, 0),
    (2, 3, 4, 6, 6, 3, 1, 3),
    (40, 2, 8, 40, 40, 3, 1, 1),
]


def weight_gradient(x, dy, size, stride, padding):
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bohw,bchwij->ocij", dy.astype(np.float64), windows, optimize=True)


class WithGradients(nn.Cell):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.gradient = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, x, w, dy):
        return self.cell(x, w), self.gradient(self.cell)(x, w, dy)


class Plain(nn.Cell):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def construct(self, x, w):
        return self.operator(x, w)


@MODES
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_a_convolution(case, mode, library):
    ms.set_context(mode=mode)
    batch, channels, outputs, height, width, size, stride, padding = case
    rng = np.random.default_rng(0)
    sides = [(side + 2 * padding - size) // stride + 1 for side in (height, width)]
    shapes = (batch, channels, height, width), (outputs, channels, size, size), (batch, outputs, *sides)
    x, w, dy = (rng.standard_normal(shape).astype(np.float32) + 0.5 for shape in shapes)
    tensors = [Tensor(value) for value in (x, w, dy)]
    y, (dx, dw) = WithGradients(Convolution(library, outputs, size, stride, padding))(*tensors)
    plain = Plain(ops.Conv2D(outputs, size, pad_mode="pad", pad=padding, stride=stride))
    expected_y, (expected_dx, expected_dw) = WithGradients(plain)(*tensors)
    np.testing.assert_array_equal(y.asnumpy(), expected_y.asnumpy())
    np.testing.assert_array_equal(dx.asnumpy(), expected_dx.asnumpy())
    close(expected_dw, weight_gradient(x, dy, size, stride, padding), 3e-6)
    close(dw, weight_gradient(x, dy, size, stride, padding), 3e-6)
    if mode == ms.GRAPH_MODE:  # memory of the call before is used again
        larger = [Tensor(np.concatenate([value, value])) for value in (x, dy)]
        _, (_, twice) = WithGradients(Convolution(library, outputs, size, stride, padding))(
            larger[0], tensors[1], larger[1]
        )
        close(twice, 2 * weight_gradient(x, dy, size, stride, padding), 3e-6)


def parameters(rng, name, shapes):
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return ParameterTuple([Parameter(Tensor(v), name=f"{name}{i}") for i, v in enumerate(values)]), values


SHAPES = [(4, 3, 3, 3), (7,), (), (300, 130)]  # the last in several pieces


class Caller(nn.Cell):
    """Calls an operator between reads of the parameters that it changes."""

    def __init__(self, operator, *groups):
        super().__init__()
        self.operator, self.groups = operator, [ParameterTuple(group) for group in groups]
        self.changed = self.groups[0]

    def construct(self, first, rest):
        before = self.changed[0] + 0.0
        tensors = ()
        for group in self.groups:
            tensors = tensors + group
        done = self.operator(*first, *tensors, *rest)
        return before, ops.depend(self.changed[0] + 0.0, done)


@MODES
def test_moving_average(mode, library):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    averages, old = parameters(rng, "average", SHAPES)
    values, new = parameters(rng, "value", SHAPES)
    caller = Caller(moving_average(library, len(SHAPES)), averages, values)
    for _ in range(2):
        before, after = caller((Tensor(0.3, ms.float32),), ())
        np.testing.assert_array_equal(before.asnumpy(), old[0])
        old = [a + np.float32(0.3) * (v - a) for a, v in zip(old, new, strict=True)]
        np.testing.assert_allclose(after.asnumpy(), old[0], rtol=1e-6, atol=1e-7)
        for average, expected in zip(averages, old, strict=True):
            np.testing.assert_allclose(average.asnumpy(), expected, rtol=1e-6, atol=1e-7)
        old = [average.asnumpy().copy() for average in averages]
    for value, expected in zip(values, new, strict=True):
        np.testing.assert_array_equal(value.asnumpy(), expected)


@MODES
@pytest.mark.parametrize("nesterov", [True, False])
def test_momentum_update(nesterov, mode, library):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    weights, p = parameters(rng, "weight", SHAPES)
    velocities, v = parameters(rng, "velocity", SHAPES)
    rates, decays = rng.random(len(SHAPES)).astype(np.float32), np.array([0.1, 0, 0, 0.2], np.float32)
    caller = Caller(momentum_update(library, len(SHAPES)), weights, velocities)
    for momentum in (0.9, 0.0):
        g = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
        first = [np.float32(0.25), np.float32(momentum), rates, decays, np.array([nesterov], np.float32)]
        caller(tuple(map(Tensor, first)), tuple(map(Tensor, g)))
        for i, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
            gradient = g[i] * 0.25 + decay * p[i]
            v[i] = momentum * v[i] + gradient
            p[i] = p[i] - rate * (gradient + momentum * v[i] if nesterov else v[i])
            np.testing.assert_allclose(weights[i].asnumpy(), p[i], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(velocities[i].asnumpy(), v[i], rtol=1e-5, atol=1e-6)


@MODES
def test_square_sum(mode, library):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    operator = square_sum(library)
    expected = sum(float(np.square(value.astype(np.float64)).sum()) for value in values)
    assert float(operator(*map(Tensor, values)).asnumpy()[0]) == pytest.approx(expected, rel=1e-6)
    for bad in (np.nan, np.inf, -np.inf):
        values[3][123, 45] = bad
        assert not np.isfinite(operator(*map(Tensor, values)).asnumpy()[0])


@MODES
def test_unpack(mode, library):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    tensors, _ = parameters(rng, "tensor", [(3,), (5,), (1,)])
    values = np.arange(9, dtype=np.float32)
    Caller(unpack(library, 3), tensors)((Tensor(values),), ())
    np.testing.assert_array_equal(np.concatenate([tensor.asnumpy() for tensor in tensors]), values)


def test_results_do_not_depend_on_the_threads(library):
    """Ten times the same to the last bit, while threads take the channels in any order."""
    rng = np.random.default_rng(0)
    x, dy = (Tensor(rng.standard_normal((4, 16, 40, 40)).astype(np.float32)) for _ in range(2))
    ones = Tensor(np.ones(16, np.float32))
    zeros = [ones * 0] * 4
    cell = WithGradient(BatchNorm(library, "SiLU", EPSILON, SHARE))

    def results():
        outputs, gradients = cell(x, ones, ones, ones, ones, dy, *zeros)
        return b"".join(value.asnumpy().tobytes() for value in (*outputs, *gradients[:3]))

    assert len({results() for _ in range(10)}) == 1
