"""How many readers: the number in the configuration, or one that a short measurement finds."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from msrun_cli.data.rows import BatchRows, Samples

log = logging.getLogger("msrun")

SECONDS = 1.0  # of measurement in all
_GOOD_ENOUGH = 0.93  # of the best rate: fewer readers leave more of the cores to the training

_said: set[int] = set()
_found: dict[tuple[str, int], int] = {}


def allowed_workers(workers: int) -> int:
    """`workers` between 1 and the number of cores, beyond which MindSpore refuses to start; a change is logged once."""
    cores = _cores()
    if workers > cores and workers not in _said:
        _said.add(workers)
        log.warning("dataset.workers=%d is more than the %d cores of this machine: using %d.", workers, cores, cores)
    return min(max(1, workers), cores)


def measured_workers(
    rows: BatchRows, what: str, *, processes: bool = False, rate: Callable[..., float] | None = None
) -> int:
    """The smallest number of readers that reaches 93 % of the best rate; it is logged with the figures.

    Threads transform pictures of `rows` for about a second in all (see rates_by_threads). Processes take too
    long to start for that, and do not wait for each other as threads may: there it is one per core, unmeasured.
    what: named in the log; the answer for it is kept, so that an evaluation after each epoch measures once
    rate: replaces the measurement in tests: (samples, indices, threads, seconds) -> images per second
    """
    cores = _cores()
    if (what, cores) in _found:
        return _found[what, cores]
    if processes or cores == 1:
        chosen, figures = cores, "one process per core" if processes else "one core"
    else:
        rates = rates_by_threads(rows, SECONDS, rate=rate)
        chosen = good_enough(rates)
        figures = "images/s by threads " + ", ".join(f"{number}: {value:.0f}" for number, value in rates.items())
    log.info("dataset.workers=auto: %d for %s (%s)", chosen, what, figures)
    _found[what, cores] = chosen
    return chosen


def rates_by_threads(rows: BatchRows, seconds: float, *, rate: Callable[..., float] | None = None) -> dict[int, float]:
    """Images per second that 1, 2, 4, ... threads and one per core read; `seconds` of measurement in all."""
    cores = _cores()
    numbers = sorted({1 << power for power in range(cores.bit_length()) if 1 << power < cores} | {cores})
    indices = _Shared(itertools.cycle(range(len(rows))), rows.indices_of)
    return {number: (rate or _rate)(rows.samples, indices, number, seconds / len(numbers)) for number in numbers}


def good_enough(rates: dict[int, float]) -> int:
    """The smallest number of readers that reaches 93 % of the best rate."""
    return next(number for number in sorted(rates) if rates[number] >= _GOOD_ENOUGH * max(rates.values()))


def _cores() -> int:
    return os.cpu_count() or 1


class _Shared:
    """Sample numbers of row after row, each given to one thread."""

    def __init__(self, rows: Iterator[int], indices_of: Callable) -> None:
        self._numbers = (int(index) for row in rows for index in indices_of(row))
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            return next(self._numbers)


def _rate(samples: Samples, indices: _Shared, threads: int, seconds: float) -> float:
    """Images per second. Each thread first reads one picture that is not counted, since a first one takes longer."""

    def read_until(_: int) -> tuple[int, float]:
        batch = samples.blank(1)
        samples.write(indices.next(), batch, 0)
        started, done = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            samples.write(indices.next(), batch, 0)
            done += 1
        return done, time.perf_counter() - started

    with ThreadPoolExecutor(threads, thread_name_prefix="msrun-measure") as pool:
        return sum(done / spent for done, spent in pool.map(read_until, range(threads)))
