"""Do the anchors fit the boxes? A box that no anchor matches gives no positive example to an anchor-based loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msrun_cli.common.status import PASS, WARN
from msrun_cli.data.doctor.boxes import network_scale
from msrun_cli.data.doctor.checked import CheckedData
from msrun_cli.data.doctor.findings import Example, Finding, skipped

LEAST_RECALL = 0.98
_MOST_BOXES = 20_000  # more do not change the anchors, only the time
_ROUNDS = 100
_STARTS = 3


@dataclass(frozen=True)
class AnchorFit:
    """sizes: float64 (N, 2), width and height of the training boxes in pixels of the network input.

    recall: part of them that at least one anchor matches; proposal: (A, 2) better anchors, smallest area first, None
    when the present ones are good enough or no better ones were found; proposed_recall: of these
    """

    sizes: np.ndarray
    anchors: np.ndarray
    recall: float
    proposal: np.ndarray | None
    proposed_recall: float | None


def box_sizes(data: CheckedData, image_size: int) -> np.ndarray:
    """float64 (N, 2): width and height of the training boxes (of val without train) at `image_size`, no crowds."""
    split = data.train if len(data.train.records) else data.val
    scale = network_scale(split.sizes[split.owners].astype(np.float64), image_size)
    sides = (split.boxes_xyxy[:, 2:] - split.boxes_xyxy[:, :2]) * scale[:, None]
    return sides[~split.crowds]


def fit_anchors(sizes: np.ndarray, anchors: np.ndarray, threshold: float, seed: int = 0) -> AnchorFit:
    """anchors: (A, 2) width and height in pixels; threshold: largest ratio of sides that matches (see best_recall)."""
    recall = best_recall(sizes, anchors, threshold)
    if recall >= LEAST_RECALL or len(sizes) < len(anchors):
        return AnchorFit(sizes, anchors, recall, None, None)
    proposal = propose(sizes, len(anchors), threshold, seed)
    proposed = best_recall(sizes, proposal, threshold)
    if proposed <= recall:
        return AnchorFit(sizes, anchors, recall, None, None)
    return AnchorFit(sizes, anchors, recall, proposal, proposed)


def best_recall(sizes: np.ndarray, anchors: np.ndarray, threshold: float) -> float:
    """Part of the boxes (N, 2) for which some anchor has max(w / aw, aw / w, h / ah, ah / h) < threshold."""
    return float(matched(sizes, anchors, threshold).mean()) if len(sizes) else 1.0


def matched(sizes: np.ndarray, anchors: np.ndarray, threshold: float) -> np.ndarray:
    """bool (N,): whether some anchor is near enough."""
    return _log_distance(sizes, anchors).min(axis=1) < np.log(threshold)


def propose(sizes: np.ndarray, count: int, threshold: float, seed: int = 0) -> np.ndarray:
    """(count, 2) anchors in whole pixels, smallest area first.

    Lloyd's algorithm on log(width), log(height), in which a box belongs to the anchor that is nearest in the loss's own
    measure, the larger of the two ratios of sides. Of several k-means++ starts (Arthur and Vassilvitskii 2007) the one
    with the best recall counts, then the one with the smallest mean distance.
    """
    rng = np.random.default_rng(seed)
    points = sizes[rng.permutation(len(sizes))[:_MOST_BOXES]]
    results = [_lloyd(points, count, rng) for _ in range(_STARTS)]
    best = max(results, key=lambda anchors: _quality(points, anchors, threshold))
    return best[np.argsort(best.prod(axis=1), kind="stable")]


def _lloyd(points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    logs = np.log(np.maximum(points, 1e-3))
    centres = _spread_start(logs, count, rng)
    for _ in range(_ROUNDS):
        nearest = np.abs(logs[:, None] - centres[None]).max(axis=2).argmin(axis=1)
        moved = np.stack(
            [logs[nearest == k].mean(axis=0) if (nearest == k).any() else centres[k] for k in range(count)]
        )
        if np.allclose(moved, centres, atol=1e-4):
            break
        centres = moved
    return np.maximum(np.rint(np.exp(centres)), 1)


def _spread_start(logs: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    centres = [logs[rng.integers(len(logs))]]
    for _ in range(count - 1):
        squares = np.min([((logs - centre) ** 2).sum(axis=1) for centre in centres], axis=0)
        total = squares.sum()
        choice = rng.choice(len(logs), p=squares / total) if total > 0 else rng.integers(len(logs))
        centres.append(logs[choice])
    return np.array(centres)


def _quality(points: np.ndarray, anchors: np.ndarray, threshold: float) -> tuple[float, float]:
    nearest = _log_distance(points, anchors).min(axis=1)
    return float((nearest < np.log(threshold)).mean()), -float(nearest.mean())


def _log_distance(sizes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    logs = np.log(np.maximum(sizes, 1e-3))
    return np.abs(logs[:, None] - np.log(anchors)[None]).max(axis=2)


def anchor_check(fit: AnchorFit | None, override: str | None, why_not: str) -> Finding:
    """override: what to type to use the proposal, None when the model takes no anchors; why_not: reason to skip."""
    if fit is None:
        return skipped("anchors", why_not)
    summary = f"{fit.recall:.1%} of the boxes match an anchor of the model (best possible recall)"
    missed = round((1 - fit.recall) * len(fit.sizes))
    if fit.proposal is None:
        status = PASS if fit.recall >= LEAST_RECALL else WARN
        advice = (
            "" if status == PASS else "no better anchors were found: look at tiny and covering boxes, raise image_size"
        )
        return Finding("anchors", status, missed if status == WARN else 0, summary, (), advice)
    advice = override or "the anchors of this model are fixed (the proposal is for information): try another image_size"
    example = Example(f"anchors for {fit.proposed_recall:.1%}: {shown(fit.proposal)}")
    return Finding("anchors", WARN, missed, summary, (example,), advice)


def shown(anchors: np.ndarray) -> str:
    return " ".join(f"{width:.0f},{height:.0f}" for width, height in anchors)
