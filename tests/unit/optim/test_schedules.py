"""Step decay, one cycle, and warm-up without rates of its own."""

from __future__ import annotations

import math

import mindspore as ms
import pytest
from mindspore import Tensor

from msrun_cli.optim.schedule import OneCycle, WarmupDecay


def at(schedule, update):
    return [float(value.asnumpy()) for value in schedule(Tensor(update, ms.int32))]


def test_step_decay_multiplies_at_each_milestone():
    schedule = WarmupDecay(
        0.4, 0.9, 100, warmup_updates=10, decay="step", milestones=[30, 60], gamma=0.1,
        warmup_bias_lr=None, warmup_momentum=None,
    )  # fmt: skip
    expected = {0: 0.0, 5: 0.2, 10: 0.4, 29: 0.4, 30: 0.04, 59: 0.04, 60: 0.004, 100: 0.004}
    for update, rate in expected.items():
        assert at(schedule, update) == pytest.approx([rate, rate, 0.9], rel=1e-5), update


def test_no_milestone_is_a_constant_rate():
    schedule = WarmupDecay(0.4, 0.9, 100, warmup_updates=0, decay="step")
    assert at(schedule, 99)[0] == pytest.approx(0.4)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_warm_up_without_own_rates_scales_all(decay):
    schedule = WarmupDecay(0.1, 0.9, 100, warmup_updates=10, decay=decay, warmup_bias_lr=None, warmup_momentum=None)
    lr, bias_lr, momentum = at(schedule, 5)
    assert lr == bias_lr > 0
    assert momentum == pytest.approx(0.9)
    assert at(schedule, 0)[:2] == [0, 0]


def test_one_cycle_rises_and_falls_along_half_cosines():
    schedule = OneCycle(0.5, 0.85, 100, 30, start_factor=0.04, final_factor=0.001, warmup_momentum=0.95)

    def expected(update):
        if update < 30:
            height, low = (1 - math.cos(math.pi * update / 30)) / 2, 0.04
        else:
            height, low = (1 + math.cos(math.pi * min(1, (update - 30) / 70))) / 2, 0.001
        lr = 0.5 * (low + (1 - low) * height)
        return [lr, lr, 0.95 - 0.1 * height]

    for update in (0, 1, 15, 29, 30, 31, 65, 99, 100, 500):
        assert at(schedule, update) == pytest.approx(expected(update), rel=1e-4, abs=1e-7), update
    assert at(schedule, 30)[0] == pytest.approx(0.5)


def test_one_cycle_may_keep_the_momentum_and_start_at_the_top():
    schedule = OneCycle(0.5, 0.9, 10, 0, warmup_momentum=None)
    assert at(schedule, 1)[2] == pytest.approx(0.9)
    assert at(schedule, 1)[0] == pytest.approx(0.5, rel=0.03)
