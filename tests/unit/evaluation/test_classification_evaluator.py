"""Top-1, top-5, accuracy per class and confusion matrix against a plain count."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from msrun_cli.common.errors import DataError
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.evaluation.classification import ClassificationEvaluator, class_accuracy, ranks_of

CLASSES = 7
RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((53, CLASSES)).astype(np.float32)
LABELS = RNG.integers(CLASSES - 1, size=53).astype(np.int32)  # the last class has no picture
SPLIT = LabelledImages("val", tuple(f"{i}.jpg" for i in range(53)), LABELS)
DATA = ImageFolderData(SPLIT, SPLIT, tuple("abcdefg"))


def batches(size, order=None):
    """The picture is its own number, which `predict` turns into logits."""
    order = np.arange(53) if order is None else np.asarray(order)
    for start in range(0, len(order), size):
        index = order[start : start + size].astype(np.int32)
        labels = np.where(index < 0, -1, LABELS[index])
        yield {"images": index, "labels": labels.astype(np.int32), "index": index}


def predict(images):
    return LOGITS[images]


def evaluate(size=8, order=None, predict=predict):
    return ClassificationEvaluator()(predict, batches(size, order), SPLIT, DATA)


def test_metrics_equal_a_plain_count():
    result = evaluate()
    order = np.argsort(-LOGITS, axis=1)
    top1 = np.mean(order[:, 0] == LABELS)
    assert result.metrics["top1"] == pytest.approx(top1)
    assert result.metrics["top5"] == pytest.approx(np.mean([label in row[:5] for label, row in zip(LABELS, order)]))  # noqa: B905
    per_class = [np.mean(order[LABELS == c, 0] == c) for c in range(CLASSES - 1)]
    assert result.metrics["mean_class_accuracy"] == pytest.approx(np.mean(per_class))
    assert result.images == 53
    counted = np.zeros((CLASSES, CLASSES + 1), int)
    for label, row in zip(LABELS, order, strict=True):
        counted[label, row[0]] += 1
    np.testing.assert_array_equal(result.confusion, counted)
    np.testing.assert_allclose(class_accuracy(result.confusion)[:-1], per_class)
    assert np.isnan(class_accuracy(result.confusion)[-1])
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.probability, shares.max(axis=1), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 16, 53, 100])
def test_result_does_not_depend_on_the_batch_size(size):
    expected, found = evaluate(), evaluate(size)
    assert found.metrics == expected.metrics
    np.testing.assert_array_equal(found.confusion, expected.confusion)


def test_a_padded_predictor_and_repeated_pictures_count_once():
    def padded(images):
        return np.concatenate([LOGITS[images], LOGITS[images[-1:]]])

    assert evaluate(predict=padded).metrics == evaluate().metrics
    repeated = [*range(53), 0, 1, 2, -1]
    assert evaluate(order=repeated).metrics == evaluate().metrics
    assert evaluate(order=repeated).images == 53


def test_logits_that_are_not_finite_are_wrong_and_said(caplog):
    def broken(images):
        logits = LOGITS[images].copy()
        logits[images == 3, 2] = np.nan
        logits[images == 4] = np.inf
        return logits

    with caplog.at_level(logging.WARNING, "msrun"):
        result = evaluate(predict=broken)
    assert "2 of 53 pictures" in caplog.text and "not finite" in caplog.text
    assert result.confusion[:, -1].sum() == 2
    assert result.predicted[3] == result.predicted[4] == -1
    right = np.argmax(LOGITS, axis=1) == LABELS
    right[[3, 4]] = False
    assert result.metrics["top1"] == pytest.approx(right.mean())


def test_skipped_pictures_do_not_count():
    found = evaluate(order=range(40))
    assert found.images == 40
    assert found.metrics["top1"] == pytest.approx(np.mean(np.argmax(LOGITS[:40], axis=1) == LABELS[:40]))


def test_equal_logits_are_no_free_top1():
    ranks, predicted, probability = ranks_of(np.zeros((3, 10), np.float32), np.array([0, 4, 9]))
    assert ranks.tolist() == [0, 4, 9]
    assert predicted.tolist() == [0, 0, 0]
    np.testing.assert_allclose(probability, 0.1)


def test_another_number_of_classes_is_an_error():
    with pytest.raises(DataError, match="7 classes"):
        evaluate(predict=lambda images: LOGITS[images, :5])


def test_nothing_to_evaluate():
    with pytest.raises(DataError, match="no picture"):
        evaluate(order=[-1, -1])


def test_shares_of_two_ranks_give_the_whole_result():
    """Rank 1 sees one picture less; a picture that came to both counts once."""
    shares = [np.arange(53)[0::2], np.append(np.arange(53)[1::2], 0)]
    sent = []
    for share in shares:
        with pytest.raises(StopIteration):
            ClassificationEvaluator()(predict, batches(8, share), SPLIT, DATA, gather=_sent_to(sent))
    expected = evaluate()
    for share in shares:
        found = ClassificationEvaluator()(predict, batches(8, share), SPLIT, DATA, gather=lambda _: sent)
        assert found.metrics == expected.metrics and found.images == 53
        np.testing.assert_array_equal(found.confusion, expected.confusion)
        np.testing.assert_array_equal(found.predicted, expected.predicted)
        np.testing.assert_array_equal(found.probability, expected.probability)


def test_a_rank_without_pictures_still_gets_the_result():
    sent = []
    with pytest.raises(StopIteration):
        ClassificationEvaluator()(predict, batches(8), SPLIT, DATA, gather=_sent_to(sent))
    found = ClassificationEvaluator()(predict, (), SPLIT, DATA, gather=lambda own: [*sent, own])
    assert found.metrics == evaluate().metrics


def _sent_to(sent):
    def gather(arrays):
        sent.append(arrays)
        raise StopIteration

    return gather
