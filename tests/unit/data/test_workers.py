from __future__ import annotations

import logging
import os

import numpy as np
import pytest

from msrun_cli.data import workers
from msrun_cli.data.rows import BatchRows
from msrun_cli.data.workers import measured_workers


class Ones:
    written = 0

    def blank(self, number: int) -> tuple[np.ndarray]:
        return (np.empty(number, int),)

    def write(self, index: int, batch: tuple[np.ndarray], place: int) -> None:
        assert 0 <= index < 12
        Ones.written += 1


ROWS = BatchRows(Ones(), lambda row: np.arange(row * 4, row * 4 + 4), count=3)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_found", {})
    monkeypatch.setattr(os, "cpu_count", lambda: 6)


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({1: 100, 2: 190, 4: 300, 6: 310}, 4),
        ({1: 100, 2: 95, 4: 90, 6: 80}, 1),
        ({1: 50, 2: 100, 4: 200, 6: 300}, 6),
    ],
)
def test_the_smallest_number_that_is_fast_enough(
    rates: dict[int, float], chosen: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "msrun"):
        for _ in range(2):  # the second time it is known
            found = measured_workers(ROWS, "training", rate=lambda _s, _i, threads, _t: rates[threads])
            assert found == chosen
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"dataset.workers=auto: {chosen} for training (images/s by threads 1: {rates[1]}, 2: ")


def test_the_real_measurement_reads_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SECONDS", 0.05)
    Ones.written = 0
    assert measured_workers(ROWS, "training") in (1, 2, 4, 6)
    assert Ones.written > 12  # goes round


def test_processes_and_single_cores_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "msrun"):
        assert measured_workers(ROWS, "training", processes=True) == 6
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
        assert measured_workers(ROWS, "training") == 1
    assert "one process per core" in caplog.text
