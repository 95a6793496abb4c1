from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from msrun_cli.data.rows import BatchRows, ReadAheadRows


class Numbers:
    """Sample i is (i, i squared); remembers what was asked for."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.asked: list[int] = []
        self.threads: set[int] = set()

    def blank(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(number, int), np.empty((number, 1), int)

    def write(self, index: int, batch: tuple[np.ndarray, np.ndarray], place: int) -> None:
        self.asked.append(index)
        self.threads.add(threading.get_ident())
        if index == self.bad:
            raise ValueError(f"sample {index}")
        time.sleep(0.001)
        batch[0][place], batch[1][place] = index, index**2


def rows_of(samples: Numbers) -> BatchRows:
    return BatchRows(samples, lambda row: np.arange(row * 4, row * 4 + 4), count=3)


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_threads_give_the_same_rows_in_any_order(workers: int) -> None:
    plain, ahead = rows_of(Numbers()), ReadAheadRows(rows_of(Numbers()), workers, batch_size=4)
    assert len(plain) == len(ahead) == 3
    for row in (0, 1, 2, 3, 7, 1, 1, 0):
        for wanted, found in zip(plain[row], ahead[row], strict=True):
            np.testing.assert_array_equal(wanted, found)
    assert plain[0][0].shape == (4,) and plain[0][1].shape == (4, 1)


def test_one_row_is_read_ahead_up_to_the_end() -> None:
    samples = Numbers()
    rows = ReadAheadRows(rows_of(samples), 2, batch_size=4)
    rows[0]
    rows[1]
    rows[2]
    assert sorted(samples.asked) == list(range(12)) and len(samples.threads) == 2
    rows.end = None
    rows[3]
    rows[4]
    assert set(range(12, 20)) <= set(samples.asked)


def test_a_failing_sample_fails_its_own_row_only() -> None:
    rows = ReadAheadRows(rows_of(Numbers(bad=5)), 2, batch_size=4)
    assert rows[0][0].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="sample 5"):
        rows[1]
    assert rows[2][0].tolist() == [8, 9, 10, 11]
