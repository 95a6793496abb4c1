from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from msrun_cli.data.recent import RecentlyRead


class Reader:
    def __init__(self, bad: int | None = None) -> None:
        self.asked: list[int] = []
        self.bad = bad

    def __call__(self, index: int) -> np.ndarray:
        self.asked.append(index)
        if index == self.bad:
            raise ValueError(f"picture {index}")
        return np.full(10, index, np.uint8)


def test_the_least_recently_wanted_goes_first() -> None:
    reader = Reader()
    recent = RecentlyRead(reader, limit_bytes=30)
    for index in (1, 2, 3, 1, 4, 1, 3, 2):
        assert (recent[index] == index).all()
    assert reader.asked == [1, 2, 3, 4, 2]


@pytest.mark.parametrize("limit", [0, 5])
def test_without_room_everything_is_read(limit: int) -> None:
    reader = Reader()
    recent = RecentlyRead(reader, limit)
    assert [int(recent[1][0]) for _ in range(3)] == [1, 1, 1]
    assert reader.asked == [1, 1, 1]


def test_kept_arrays_cannot_be_written_to() -> None:
    recent = RecentlyRead(Reader(), 100)
    with pytest.raises(ValueError, match="read-only"):
        recent[1][0] = 9


def test_an_error_is_raised_again_and_not_kept() -> None:
    reader = Reader(bad=2)
    recent = RecentlyRead(reader, 100)
    for _ in range(2):
        with pytest.raises(ValueError, match="picture 2"):
            recent[2]
    reader.bad = None
    assert recent[2][0] == 2


def test_two_threads_share_one_reading() -> None:
    started, go_on = threading.Event(), threading.Event()
    asked = []

    def read(index: int) -> np.ndarray:
        asked.append(index)
        started.set()
        assert go_on.wait(10)
        return np.full(4, index, np.uint8)

    recent = RecentlyRead(read, 100)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(recent.__getitem__, 5)
        assert started.wait(10)
        others = [pool.submit(recent.__getitem__, 5) for _ in range(2)]
        go_on.set()
        assert [int(future.result()[0]) for future in (first, *others)] == [5, 5, 5]
    assert asked == [5]


def test_many_threads_get_what_they_ask_for() -> None:
    recent = RecentlyRead(Reader(), 70)
    wanted = np.random.default_rng(0).integers(0, 20, 4000)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda index: int(recent[int(index)][0]), wanted))
    assert found == wanted.tolist()
