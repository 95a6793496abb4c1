from __future__ import annotations

import numpy as np
import pytest

from msrun_cli.data.doctor.anchors import anchor_check, best_recall, fit_anchors, propose

ANCHORS = np.array([[10, 13], [33, 23], [116, 90]], float)


def test_recall_is_the_rule_of_the_loss() -> None:
    sizes = np.array([[10, 13], [40, 52], [39, 51], [2.6, 13], [2.4, 13], [464, 90], [463, 90], [300, 20]])
    ratio = np.maximum(sizes[:, None] / ANCHORS, ANCHORS / sizes[:, None]).max(axis=2)
    expected = (ratio < 4).any(axis=1)
    assert expected.tolist() == [True, True, True, True, False, False, True, False]
    assert best_recall(sizes, ANCHORS, 4.0) == pytest.approx(expected.mean())
    assert best_recall(np.zeros((0, 2)), ANCHORS, 4.0) == 1.0


def test_good_anchors_are_left_alone() -> None:
    fit = fit_anchors(np.repeat(ANCHORS, 30, axis=0), ANCHORS, 4.0)
    assert fit.recall == 1 and fit.proposal is None
    found = anchor_check(fit, None, "")
    assert (found.status, found.count) == ("pass", 0)


def test_other_boxes_get_better_anchors() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[4, 200], [30, 600], [600, 12]])
    sizes = np.repeat(centres, 100, axis=0) * rng.uniform(0.8, 1.25, (300, 2))
    fit = fit_anchors(sizes, ANCHORS, 4.0)
    assert fit.recall < 0.5 and fit.proposed_recall == 1.0
    assert fit.proposal is not None
    np.testing.assert_allclose(fit.proposal, centres[np.argsort(centres.prod(axis=1))], rtol=0.1)
    np.testing.assert_array_equal(fit.proposal, propose(sizes, 3, 4.0))  # the same each time
    found = anchor_check(fit, "use them: key=...", "")
    assert found.status == "warn" and found.count == 300 - round(fit.recall * 300)
    assert "key=" in found.advice and "100.0%" in found.examples[0].text


def test_few_or_equal_boxes() -> None:
    few = fit_anchors(np.array([[1.0, 500.0]]), ANCHORS, 4.0)
    assert few.recall == 0 and few.proposal is None
    assert anchor_check(few, None, "").status == "warn"
    equal = fit_anchors(np.full((10, 2), 700.0), ANCHORS, 4.0)
    assert equal.proposed_recall == 1.0
    assert anchor_check(None, None, "there are no boxes").status == "skip"
