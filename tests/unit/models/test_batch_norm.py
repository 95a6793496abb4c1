"""Our BatchNorm against float64 numpy: output, gradients and running statistics."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, ops

from msrun_cli.models.batch_norm import BatchNorm2d

EPSILON, MOMENTUM = 1e-3, 0.97


def reference(x, dy, gamma):
    axes = (0, 2, 3)
    x, dy, gamma = x.astype(np.float64), dy.astype(np.float64), gamma.astype(np.float64).reshape(1, -1, 1, 1)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + EPSILON)
    normal = (x - mean) * inverse
    dx = gamma * inverse * (dy - dy.mean(axes, keepdims=True) - normal * (dy * normal).mean(axes, keepdims=True))
    return normal * gamma, dx, (dy * normal).sum(axes), dy.sum(axes), mean.ravel(), variance.ravel()


@pytest.mark.parametrize("side", [10, 60])
def test_output_gradients_and_statistics(side):
    """A small map goes through the fused kernel, a large one through the accurate sums."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 3, side, side)) * 2 + np.array([0.0, 5.0, -3.0]).reshape(1, 3, 1, 1)).astype(
        np.float32
    )
    x[:, :, : side // 2] = 4.0  # a constant area, as letterboxing gives, is what loses accuracy in a plain running sum
    dy = rng.standard_normal(x.shape).astype(np.float32)
    norm = BatchNorm2d(3, EPSILON, MOMENTUM)
    norm.gamma.set_data(Tensor(np.array([1.0, 0.5, 2.0], np.float32)))
    norm.set_train(True)

    def weighted(images):
        out = norm(images)
        return (out * Tensor(dy)).sum(), out

    ((_, out), (dx, (dgamma, dbeta))) = ms.value_and_grad(weighted, 0, [norm.gamma, norm.beta], has_aux=True)(Tensor(x))
    y, dx_ref, dgamma_ref, dbeta_ref, mean, variance = reference(x, dy, norm.gamma.asnumpy())
    np.testing.assert_allclose(out.asnumpy(), y, atol=2e-5)
    np.testing.assert_allclose(dx.asnumpy(), dx_ref, atol=2e-5)
    np.testing.assert_allclose(dgamma.asnumpy(), dgamma_ref, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(dbeta.asnumpy(), dbeta_ref, rtol=1e-4, atol=1e-3)
    count = x[:, 0].size
    np.testing.assert_allclose(norm.moving_mean.asnumpy(), (1 - MOMENTUM) * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        norm.moving_variance.asnumpy(), MOMENTUM + (1 - MOMENTUM) * variance * count / (count - 1), rtol=1e-5
    )


def test_statistics_of_a_large_map_are_accurate():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((8, 2, 160, 160)) + 3).astype(np.float32)
    x[:, :, :60] = 2.7
    norm = BatchNorm2d(2, EPSILON, MOMENTUM)
    norm.set_train(True)
    out = norm(Tensor(x)).asnumpy()
    y = reference(x, x, np.ones(2))[0]
    assert np.linalg.norm(out - y) / np.linalg.norm(y) < 1e-6


def test_evaluation_uses_the_running_statistics():
    norm = BatchNorm2d(2, EPSILON, MOMENTUM)
    norm.moving_mean.set_data(Tensor(np.array([1.0, -1.0], np.float32)))
    norm.moving_variance.set_data(Tensor(np.array([4.0, 9.0], np.float32)))
    norm.set_train(False)
    x = np.random.default_rng(2).standard_normal((1, 2, 4, 4)).astype(np.float32)
    expected = (x - np.array([1.0, -1.0]).reshape(1, 2, 1, 1)) / np.sqrt(
        np.array([4.0, 9.0]).reshape(1, 2, 1, 1) + EPSILON
    )
    np.testing.assert_allclose(norm(ops.identity(Tensor(x))).asnumpy(), expected, rtol=1e-5, atol=1e-6)
