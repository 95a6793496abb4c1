"""The loss against an independent loop-wise numpy version, and on batches that break others."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from msrun_cli.losses.yolov5 import YOLOv5Loss, complete_iou, objectness_target

ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
STRIDES = (8, 16, 32)
SIZE = 64


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cross_entropy(logit, target):
    return np.maximum(logit, 0) - logit * target + np.log1p(np.exp(-np.abs(logit)))


def ciou(a, b):
    """Boxes as (cx, cy, w, h)."""
    low = np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    high = np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    intersection = np.prod(np.maximum(high - low, 0))
    iou = intersection / (a[2] * a[3] + b[2] * b[3] - intersection)
    hull = np.maximum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.minimum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    v = 4 / np.pi**2 * (np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])) ** 2
    return iou - np.sum((a[:2] - b[:2]) ** 2) / np.sum(hull**2) - v * v / (v - iou + 1)


def loss_by_loops(maps, targets, num_classes):
    """float64, one candidate after the other, in the order neighbour, anchor, target."""
    box, obj, cls = 0.0, 0.0, 0.0
    for raw, anchors, stride, balance in zip(maps, ANCHORS, STRIDES, (4.0, 1.0, 0.4), strict=True):
        raw = raw.astype(np.float64)
        cells = raw.shape[2]
        goal = np.zeros(raw.shape[:4])
        ious, class_losses = [], []
        for dx, dy in ((0, 0), (-1, 0), (0, -1), (1, 0), (0, 1)):
            for a, anchor in enumerate(np.array(anchors, np.float64) / stride):
                for image, rows in enumerate(targets):
                    for label, *place in rows:
                        if label < 0:
                            continue
                        x, y, w, h = np.array(place, np.float64) * cells
                        if max(w / anchor[0], anchor[0] / w, h / anchor[1], anchor[1] / h) >= 4:
                            continue
                        along = x if dx else y
                        if dx + dy < 0 and not (along % 1 < 0.5 and along > 1):
                            continue
                        if dx + dy > 0 and not ((cells - along) % 1 < 0.5 and cells - along > 1):
                            continue
                        column = int(np.clip(np.floor(x + dx * 0.5), 0, cells - 1))
                        row = int(np.clip(np.floor(y + dy * 0.5), 0, cells - 1))
                        out = raw[image, a, row, column]
                        predicted = np.concatenate([2 * sigmoid(out[:2]) - 0.5, (2 * sigmoid(out[2:4])) ** 2 * anchor])
                        value = ciou(predicted, np.array([x - column, y - row, w, h]))
                        ious.append(value)
                        goal[image, a, row, column] = max(value, 0)
                        class_losses.append(cross_entropy(out[5:], np.eye(num_classes)[int(label)]).mean())
        if ious:
            box += np.mean(1 - np.array(ious))
            cls += np.mean(class_losses) if num_classes > 1 else 0.0
        obj += balance * cross_entropy(raw[..., 4], goal).mean()
    return np.array([box * 0.05, obj * (SIZE / 640) ** 2, cls * 0.5 * num_classes / 80])


def random_maps(rng, batch, num_classes):
    return [rng.standard_normal((batch, 3, SIZE // s, SIZE // s, 5 + num_classes)).astype(np.float32) for s in STRIDES]


def random_targets(rng, batch, maximum, num_classes, filled):
    targets = np.full((batch, maximum, 5), -1, np.float32)
    targets[:, :filled, 0] = rng.integers(num_classes, size=(batch, filled))
    targets[:, :filled, 1:3] = rng.random((batch, filled, 2))
    targets[:, :filled, 3:5] = rng.uniform(0.05, 1.0, (batch, filled, 2))
    return targets


def compute(maps, targets, num_classes, mode=ms.PYNATIVE_MODE, **settings):
    ms.set_context(mode=mode)
    loss = YOLOv5Loss(num_classes, SIZE, ANCHORS, STRIDES, **settings)
    total, terms = loss(tuple(Tensor(m) for m in maps), Tensor(targets))
    return float(total.asnumpy()), terms.asnumpy()


@pytest.mark.parametrize("num_classes", [1, 2, 7])
def test_equals_the_loops(num_classes):
    rng = np.random.default_rng(num_classes)
    maps = random_maps(rng, 3, num_classes)
    targets = random_targets(rng, 3, 8, num_classes, 5)
    total, terms = compute(maps, targets, num_classes)
    expected = loss_by_loops(maps, targets, num_classes)
    np.testing.assert_allclose(terms, expected, rtol=2e-5)
    assert total == pytest.approx(3 * expected.sum(), rel=2e-5)


def test_graph_mode_gives_the_same():
    rng = np.random.default_rng(10)
    maps, targets = random_maps(rng, 2, 3), random_targets(rng, 2, 8, 3, 5)
    expected = compute(maps, targets, 3)[1]
    np.testing.assert_allclose(compute(maps, targets, 3, ms.GRAPH_MODE)[1], expected, rtol=1e-5)


def test_boxes_on_cell_borders_and_duplicates_equal_the_loops():
    rng = np.random.default_rng(5)
    maps = random_maps(rng, 1, 3)
    rows = [[0, 0.5, 0.5, 0.4, 0.4], [1, 0.5, 0.5, 0.4, 0.4], [2, 0.0, 1.0, 0.2, 0.2], [1, 1.0, 0.0, 0.3, 0.1]]
    targets = np.full((1, 8, 5), -1, np.float32)
    targets[0, : len(rows)] = rows
    np.testing.assert_allclose(compute(maps, targets, 3)[1], loss_by_loops(maps, targets, 3), rtol=2e-5)


@pytest.mark.parametrize("case", ["no boxes", "too small for any anchor", "zero size"])
def test_without_a_match_only_objectness_remains_and_is_finite(case):
    rng = np.random.default_rng(0)
    maps = random_maps(rng, 2, 4)
    targets = np.full((2, 8, 5), -1, np.float32)
    if case == "too small for any anchor":
        targets[0, 0] = [1, 0.5, 0.5, 0.001, 0.001]
    elif case == "zero size":
        targets[0, 0] = [1, 0.5, 0.5, 0.0, 0.0]
    total, terms = compute(maps, targets, 4)
    assert np.isfinite(total)
    assert terms[0] == terms[2] == 0
    assert terms[1] > 0


def test_padding_rows_do_not_count():
    rng = np.random.default_rng(3)
    maps = random_maps(rng, 2, 4)
    short = random_targets(rng, 2, 8, 4, 8)
    long = np.full((2, 24, 5), -1, np.float32)
    long[:, 5:13] = short
    np.testing.assert_allclose(compute(maps, long, 4)[1], compute(maps, short, 4)[1], rtol=1e-5)


def test_gains_factor_and_smoothing():
    rng = np.random.default_rng(4)
    maps, targets = random_maps(rng, 2, 4), random_targets(rng, 2, 8, 4, 3)
    total, terms = compute(maps, targets, 4)
    doubled_total, doubled = compute(maps, targets, 4, box=0.1, batch_factor=3)
    np.testing.assert_allclose(doubled, terms * [2, 1, 1], rtol=1e-5)
    assert doubled_total == pytest.approx(doubled.sum() * 2 * 3, rel=1e-5)
    assert compute(maps, targets, 4, label_smoothing=0.2)[1][2] != pytest.approx(terms[2], rel=1e-4)


def test_gradients_are_finite_for_extreme_predictions():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    loss = YOLOv5Loss(2, SIZE, ANCHORS, STRIDES)
    targets = Tensor(random_targets(np.random.default_rng(0), 1, 8, 2, 6))
    maps = tuple(Tensor(np.full((1, 3, SIZE // s, SIZE // s, 7), -40.0, np.float32)) for s in STRIDES)
    gradients = ms.grad(lambda *m: loss(m, targets)[0], (0, 1, 2))(*maps)
    assert all(np.isfinite(g.asnumpy()).all() for g in gradients)


def test_huge_box_logits_leave_the_class_term_alone():
    rng = np.random.default_rng(9)
    maps, targets = random_maps(rng, 2, 3), random_targets(rng, 2, 8, 3, 5)
    expected = compute(maps, targets, 3)[1][2]
    for level in maps:
        level[..., :4] = 6e4
        level[..., 4] = np.inf
    assert compute(maps, targets, 3)[1][2] == pytest.approx(expected, rel=1e-6)


def test_last_candidate_of_a_cell_wins_and_masked_ones_never_write():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rows = Tensor(np.array([2, 0, 2, 0, 1, 2], np.int32))
    weights = Tensor(np.array([1, 0, 2, 0, 1, 1], np.float32))
    order = Tensor(np.array([5, 1, 9, 3, 4, 7], np.int32))
    iou = Tensor(np.array([0.9, 0.8, 0.3, 0.7, -0.2, 0.6], np.float32))
    found = objectness_target(rows, weights, order, iou, 4).asnumpy()
    np.testing.assert_allclose(found, [0, 0, 0.3, 0], rtol=1e-6)


def test_ciou_of_equal_and_distant_boxes():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    center, size = Tensor(np.array([[1.0, 2.0], [0.0, 0.0]], np.float32)), Tensor(np.full((2, 2), 2.0, np.float32))
    other = Tensor(np.array([[1.0, 2.0], [10.0, 0.0]], np.float32))
    value = complete_iou(center.T, size.T, other.T, size.T).asnumpy()
    np.testing.assert_allclose(value, [1.0, -(100 / (144 + 4))], rtol=1e-5, atol=1e-6)


def test_mean_over_ranks_is_the_loss_of_the_whole_batch():
    """The second share has no boxes at all, so the shares must be weighed by what matched."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rng = np.random.default_rng(6)
    maps = random_maps(rng, 4, 3)
    targets = random_targets(rng, 4, 8, 3, 5)
    targets[2:] = -1
    whole_total, whole = compute(maps, targets, 3)

    loss = YOLOv5Loss(3, SIZE, ANCHORS, STRIDES, batch_factor=2, ranks=2)
    shares = [slice(0, 2), slice(2, 4)]
    counts: list[list[np.ndarray]] = []
    for share in shares:  # what each rank would send, level by level
        counts.append([])
        loss.counted.sum = lambda count: counts[-1].append(count.asnumpy()) or count
        loss(tuple(Tensor(m[share]) for m in maps), Tensor(targets[share]))
    together = [sum(level) for level in zip(*counts, strict=True)]
    results = []
    for share in shares:
        answers = iter(together)
        loss.counted.sum = lambda count, answers=answers: Tensor(next(answers))
        results.append(loss(tuple(Tensor(m[share]) for m in maps), Tensor(targets[share])))
    np.testing.assert_allclose(np.mean([terms.asnumpy() for _, terms in results], axis=0), whole, rtol=1e-5)
    assert np.mean([total.asnumpy() for total, _ in results]) == pytest.approx(whole_total, rel=1e-5)


def test_accumulated_batches_equal_one_large_batch():
    """Four batches of 4 with as many matches each against one of 16: the loss is a mean over the matches of a batch."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rng = np.random.default_rng(8)
    maps, targets = random_maps(rng, 16, 3), np.tile(random_targets(rng, 4, 8, 3, 5), (4, 1, 1))

    def gradients(places: slice, batch_factor: int) -> list[np.ndarray]:
        loss = YOLOv5Loss(3, SIZE, ANCHORS, STRIDES, batch_factor=batch_factor)
        rows = Tensor(targets[places])
        found = ms.grad(lambda *given: loss(given, rows)[0], (0, 1, 2))(*(Tensor(level[places]) for level in maps))
        return [gradient.asnumpy() for gradient in found]

    together = gradients(slice(0, 16), 1)
    parts = [gradients(slice(start, start + 4), 4) for start in range(0, 16, 4)]
    for level, whole in enumerate(together):
        accumulated = np.concatenate([part[level] for part in parts]) / 4
        np.testing.assert_allclose(accumulated, whole, rtol=1e-5, atol=1e-7)
