from __future__ import annotations

import time

import numpy as np
import pytest

from msrun_cli.data.rows import BatchRows
from msrun_cli.data.stage_times import MIXING, REST, stage_times


def busy(milliseconds: float) -> None:
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


class Pictures:
    def decode(self) -> None:
        busy(2)


class Samples:
    def __init__(self) -> None:
        self.pictures = Pictures()
        self.steps = {"merge": self.merge, "flip": lambda: busy(1)}
        self.seen: list[int] = []

    def merge(self) -> None:  # a step that reads a partner inside its own time
        self.pictures.decode()
        busy(4)

    def timed_parts(self):
        return [(self.pictures, "decode", "decode"), *((self.steps, name, name) for name in self.steps)]

    def blank(self, number: int):
        return (np.empty((number, 2)),)

    def write(self, index: int, batch, place: int) -> None:
        self.seen.append(index)
        self.pictures.decode()
        for step in list(self.steps.values()):
            step()


def mixed(row: int, batch):
    busy(12)
    return batch


def test_each_stage_counts_its_own_time_once() -> None:
    samples = Samples()
    before = dict(samples.steps)
    times = stage_times(BatchRows(samples, lambda row: np.arange(4), 3, mixed), 100, pictures=6, warm_up=2)
    assert samples.seen == list(range(100, 108)) and times.pictures == 6
    assert list(times.ms) == ["decode", "merge", "flip", MIXING, REST]
    assert times.ms["decode"] == pytest.approx(4, abs=1)  # its own, and the partner's
    assert times.ms["merge"] == pytest.approx(4, abs=1)
    assert times.ms["flip"] == pytest.approx(1, abs=0.5)
    assert times.ms[MIXING] == pytest.approx(3, abs=1)  # per picture
    assert times.wall_ms >= 0.9 * times.cpu_ms
    # everything is put back
    assert samples.steps == before and "decode" not in vars(samples.pictures)


def test_it_ends_in_time() -> None:
    times = stage_times(BatchRows(Samples(), lambda row: np.arange(4), 3), pictures=10_000, seconds=0.05, warm_up=0)
    assert 4 <= times.pictures < 50
