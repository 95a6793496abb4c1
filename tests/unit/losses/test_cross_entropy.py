"""Classification losses against plain numpy."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from msrun_cli.common.errors import ConfigError
from msrun_cli.losses.cross_entropy import BinaryCrossEntropy, CrossEntropy

RNG = np.random.default_rng(0)
LOGITS = (RNG.standard_normal((5, 4)) * 3).astype(np.float32)
LABELS = np.array([0, 3, 3, 1, 2], np.int32)
SOFT = RNG.dirichlet(np.ones(4), 5).astype(np.float32)
WEIGHTS = [0.5, 2.0, 0.0, 1.5]


@pytest.fixture(autouse=True)
def pynative():
    ms.set_context(mode=ms.PYNATIVE_MODE)


def value_and_gradient(loss, logits, labels):
    def forward(x):
        return loss(x, Tensor(labels))[0]

    value, gradient = ms.value_and_grad(forward)(Tensor(logits))
    return float(value.asnumpy()), gradient.asnumpy()


def cross_entropy(logits, shares, smoothing, weights, count):
    """(loss, gradient) in float64, from the formula."""
    logits, shares = logits.astype(np.float64), shares.astype(np.float64)
    weights = np.array(weights, np.float64)
    target = (shares * (1 - smoothing) + smoothing / logits.shape[1]) * weights
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exp / exp.sum(axis=1, keepdims=True)
    return -(target * np.log(p)).sum() / count, (p * target.sum(axis=1, keepdims=True) - target) / count


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["index", "probability"])
def test_cross_entropy_equals_the_formula(labels, smoothing, weights):
    loss = CrossEntropy(4, smoothing, weights)
    shares = np.eye(4)[labels] if labels.ndim == 1 else labels
    used = weights or [1.0] * 4
    count = sum(used[label] for label in labels) if weights and labels.ndim == 1 else len(labels)
    expected, gradient = cross_entropy(LOGITS, shares, smoothing, used, count)
    found = value_and_gradient(loss, LOGITS, labels)
    assert found[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-6)
    total, terms = loss(Tensor(LOGITS), Tensor(labels))
    assert terms.shape == (1,) == (len(loss.term_names),)
    assert float(terms.asnumpy()[0]) == float(total.asnumpy())


def test_index_and_its_probability_are_the_same():
    loss = CrossEntropy(4, 0.1)
    one_hot = np.eye(4, dtype=np.float32)[LABELS]
    assert value_and_gradient(loss, LOGITS, LABELS)[0] == pytest.approx(value_and_gradient(loss, LOGITS, one_hot)[0])


def test_huge_logits_stay_finite():
    logits = np.array([[1e4, -1e4, 0, 0]], np.float32)
    value, gradient = value_and_gradient(CrossEntropy(4), logits, np.array([1], np.int32))
    assert value == pytest.approx(2e4)
    np.testing.assert_allclose(gradient, [[1, -1, 0, 0]], atol=1e-6)
    value, gradient = value_and_gradient(BinaryCrossEntropy(4), logits, np.array([1], np.int32))
    assert value == pytest.approx((1e4 + 1e4 + 2 * np.log(2)) / 4, rel=1e-6)
    assert np.isfinite(gradient).all()


def test_one_class_and_ignored_labels_give_zero():
    value, gradient = value_and_gradient(CrossEntropy(1, 0.1), LOGITS[:, :1], np.zeros(5, np.int32))
    assert value == 0 and not gradient.any()
    value, gradient = value_and_gradient(CrossEntropy(4, 0.0, [0, 0, 0, 0]), LOGITS, LABELS)
    assert value == 0 and not gradient.any()
    value, gradient = value_and_gradient(CrossEntropy(4, 0.0, WEIGHTS), LOGITS, np.full(5, 2, np.int32))
    assert value == 0 and not gradient.any()


@pytest.mark.parametrize("loss", [CrossEntropy(4, 0.1), BinaryCrossEntropy(4, 0.1)])
def test_half_precision_logits_are_computed_in_float32(loss):
    half = LOGITS.astype(np.float16)
    value = loss(Tensor(half), Tensor(LABELS))[0]
    assert value.dtype == ms.float32
    assert float(value.asnumpy()) == float(loss(Tensor(half.astype(np.float32)), Tensor(LABELS))[0].asnumpy())


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("targets", [LABELS, np.array([[1, 1, 0, 0]] * 5, np.float32)], ids=["index", "multi-hot"])
def test_binary_cross_entropy_equals_the_formula(targets, smoothing, weights):
    hot = np.eye(4)[targets] if targets.ndim == 1 else targets.astype(np.float64)
    y = hot * (1 - smoothing) + smoothing / 2
    p = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    w = np.array(weights or [1.0] * 4)
    expected = -(w * y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
    gradient = (-w * y * (1 - p) + (1 - y) * p) / LOGITS.size
    found = value_and_gradient(BinaryCrossEntropy(4, smoothing, weights), LOGITS, targets)
    assert found[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CrossEntropy(4, 1.5), "label_smoothing=1.5"),
        (lambda: CrossEntropy(4, 0.1, [1, 2]), "class_weights has 2 values"),
        (lambda: CrossEntropy(2, 0.1, [1, -2]), "class_weights"),
        (lambda: CrossEntropy(2, 0.1, [1, float("nan")]), "class_weights"),
        (lambda: BinaryCrossEntropy(4, -0.1), "label_smoothing"),
        (lambda: BinaryCrossEntropy(4, 0.1, [1]), "positive_weights"),
    ],
)
def test_wrong_values(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_the_loss_is_the_same_to_the_last_bit_however_often_it_ran():
    """MindSpore tries another number of threads in the first launches of an operator, which a resumed run repeats."""
    logits = Tensor(np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32))
    loss = CrossEntropy(num_classes=3)
    assert len({loss(logits + 0.0, Tensor([0, 1, 2, 1], ms.int32))[0].asnumpy().tobytes() for _ in range(30)}) == 1
