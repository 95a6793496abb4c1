"""Every combination of task, precision, loss scale, accumulation, clipping, average, mode and kernels trains or is
refused.

The default suite runs rows that cover each pair of values; `pytest -m slow` runs all of them.
"""

from __future__ import annotations

import functools
import itertools

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msrun_cli.builders.training import use_kernels
from msrun_cli.config import rules
from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.kernels.library import kernel_library
from msrun_cli.losses.cross_entropy import CrossEntropy
from msrun_cli.losses.yolov5 import YOLOv5Loss
from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.yolov5.layers import SiLU
from msrun_cli.optim.ema import ExponentialMovingAverage, NoAverage
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.optim.sgd import SGD

SIZE, CLASSES, IMAGES = 32, 2, 2
FACTORS = {
    "task": ("classification", "detection"),
    "amp": ("O0", "O1", "O2", "O3", "O1 bfloat16", "O2 bfloat16", "O3 bfloat16"),
    "scale": ("none", "fixed", "dynamic"),
    "accumulate": (1, 4),
    "clip": ("none", "norm", "value"),
    "ema": (False, True),
    "mode": ("graph", "pynative"),
    "kernels": (False, True),
}
UPDATES = {1: 2, 4: 1}  # by accumulation
ALL = list(itertools.product(*FACTORS.values()))


def covering(rows: list[tuple]) -> list[tuple]:
    """Greedily chosen rows in which each pair of values of two factors occurs, those that are refused last."""
    rows = sorted(rows, key=lambda row: refusal(row) is not None)

    def pairs(row: tuple) -> set[tuple]:
        return set(itertools.combinations(enumerate(row), 2))

    left = set().union(*map(pairs, rows))
    chosen: list[tuple] = []
    while left:
        best = max(rows, key=lambda row: len(pairs(row) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen


class Stem(nn.Cell):
    """Features (B, 8, H / 8, W / 8) of images (B, 3, H, W)."""

    activates = (("norm", "act"),)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 8, stride=8, pad_mode="valid")
        self.norm = BatchNorm2d(8, 1e-5, 0.9)
        self.act = SiLU()

    def construct(self, x):
        return self.act(self.norm(self.conv(x)))


class TinyDetector(nn.Cell):
    """Raw maps of one level, (B, 1, y, x, 5 + classes): each level more would be compiled once more in each row."""

    anchors_pixels = (((10, 10),),)
    strides = (8,)

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Conv2d(8, 5 + CLASSES, 1, has_bias=True)

    def construct(self, x):
        return (self.head(self.stem(x)).expand_dims(1).transpose(0, 1, 3, 4, 2),)

    def loss(self) -> nn.Cell:
        return YOLOv5Loss(CLASSES, SIZE, self.anchors_pixels, self.strides)


class TinyClassifier(nn.Cell):
    """Logits (B, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Dense(8, CLASSES)

    def construct(self, x):
        return self.head(self.stem(x).mean(axis=(2, 3)))

    def loss(self) -> nn.Cell:
        return CrossEntropy(CLASSES, 0.1)


NETWORKS = {"detection": TinyDetector, "classification": TinyClassifier}


def targets_of(task: str) -> np.ndarray:
    if task == "classification":
        return np.arange(IMAGES, dtype=np.int32) % CLASSES
    targets = np.full((IMAGES, 2, 5), -1, np.float32)
    targets[:, 0] = [1, 0.5, 0.5, 0.4, 0.3]
    return targets


def refusal(row: tuple) -> str | None:
    """What the rules between settings say to this row on a CPU."""
    task, amp, scale, accumulate, clip, _, mode, _ = row
    level, _, dtype = amp.partition(" ")
    found = rules.violations(
        {
            "task": {"name": task},
            "amp": {"level": level, "dtype": dtype or "float16"},
            "device": {"target": "cpu", "mode": mode},
            "loss_scale": {"type": scale},
            "accumulate": accumulate,
            "clip_norm": 1.0 if clip == "norm" else None,
            "clip_value": 0.1 if clip == "value" else None,
        }
    )
    return found[0] if found else None


def train(row: tuple) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list]:
    """Parameters before and after the updates, and the outputs of the steps."""
    task, amp, scale, accumulate, clip, ema, mode, with_kernels = row
    kernels = kernel_library("auto") if with_kernels else None
    level, _, dtype = amp.partition(" ")
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_seed(0)
    network = NETWORKS[task]()
    average: nn.Cell = NoAverage()
    if ema:
        average_network = NETWORKS[task]()
        average_network.update_parameters_name("ema.")
        average = ExponentialMovingAverage(network, average_network, 0.9, 2.0, kernels)
    optimizer = SGD(network.trainable_params(), lr=0.01)
    if kernels is not None:
        use_kernels(level, network, optimizer, kernels)
    step = TrainStep(
        apply_amp(network, level, dtype or "float16"),
        network.loss(),
        optimizer,
        WarmupDecay(0.01, 0.9, total_updates=10, warmup_updates=0),
        make_loss_scale(scale, 8.0, 2.0, 100),
        average,
        1.0 if clip == "norm" else None,
        accumulate,
        0.1 if clip == "value" else None,
        kernels=kernels,
    )
    step.set_train(True)
    rng = np.random.default_rng(0)
    images = Tensor(rng.standard_normal((IMAGES, 3, SIZE, SIZE)).astype(np.float32))
    targets = Tensor(targets_of(task))
    before = {parameter.name: parameter.asnumpy().copy() for parameter in step.get_parameters()}
    outputs = [[value.asnumpy() for value in step(images, targets)] for _ in range(accumulate * UPDATES[accumulate])]
    return before, {parameter.name: parameter.asnumpy() for parameter in step.get_parameters()}, outputs


@functools.cache
def reference(task: str, clip: str) -> list[float]:
    """Losses of two updates in float32 without a loss scale."""
    return [float(loss) for loss, *_ in train((task, "O0", "none", 1, clip, False, "pynative", False))[2]]


def expected_losses(row: tuple) -> list[float]:
    """Batches that are collected for one update all have the first loss, whatever is clipped."""
    task, accumulate, clip = row[0], row[3], row[4]
    return reference(task, clip) if accumulate == 1 else [reference(task, "none")[0]] * accumulate


def check(row: tuple) -> None:
    reason = refusal(row)
    if reason is not None:
        assert row[1].endswith("bfloat16") and "amp.dtype=float16" in reason
        return
    before, after, outputs = train(row)
    assert after["step.updates"] == UPDATES[row[3]] and after["step.overflows"] == 0
    assert all(np.isfinite(value.astype(np.float32)).all() for value in after.values())
    np.testing.assert_allclose([loss for loss, *_ in outputs], expected_losses(row), rtol=0.01)
    assert not np.array_equal(before["stem.conv.weight"], after["stem.conv.weight"])
    averaged = [name for name in after if name.startswith("ema.")]
    assert bool(averaged) == row[5]
    assert all(not np.array_equal(before[name], after[name]) for name in averaged if name.endswith("weight"))


@pytest.mark.parametrize("row", covering(ALL), ids=lambda row: "-".join(map(str, row)))
def test_pairs(row):
    check(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", ALL, ids=lambda row: "-".join(map(str, row)))
def test_all(row):
    check(row)
