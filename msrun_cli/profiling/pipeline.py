"""The input pipeline alone: how fast it is, which stage is the slowest, what more readers give."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msrun_cli.data.pipeline import Batches
from msrun_cli.data.stage_times import REST, StageTimes, stage_times
from msrun_cli.data.workers import good_enough, rates_by_threads
from msrun_cli.profiling.steps import Spread

_WARM_UP = 2  # batches


@dataclass(frozen=True)
class DataProfile:
    """images_per_s: of the configured pipeline; batch_ms: between two of its batches; by_threads: images per second of
    transforming alone, {} where readers are processes.
    """

    images_per_s: float
    batch_ms: Spread
    batches: int
    workers: int
    processes: bool
    prefetch: int
    cores: int
    by_threads: dict[int, float]
    stages: StageTimes

    @property
    def best_threads(self) -> int | None:
        """The smallest number that is nearly as good as the best one."""
        return good_enough(self.by_threads) if self.by_threads else None

    @property
    def slowest(self) -> str:
        """The stage that costs most."""
        named = {name: value for name, value in self.stages.ms.items() if name != REST}
        return max(named or self.stages.ms, key=self.stages.ms.__getitem__)

    def share(self, stage: str) -> float:
        return self.stages.ms.get(stage, 0.0) / self.stages.cpu_ms if self.stages.cpu_ms else 0.0

    @property
    def waiting_ms(self) -> float:
        """Of one picture in one thread: neither computed nor waited for by us, but for files or a free core."""
        return max(0.0, self.stages.wall_ms - self.stages.cpu_ms)

    def as_json(self) -> dict[str, Any]:
        return {
            "images_per_s": round(self.images_per_s, 2),
            "batch_ms": self.batch_ms.as_json(),
            "batches": self.batches,
            "workers": self.workers,
            "processes": self.processes,
            "prefetch": self.prefetch,
            "cores": self.cores,
            "images_per_s_by_threads": {str(number): round(rate, 1) for number, rate in self.by_threads.items()},
            "best_threads": self.best_threads,
            "stages": [
                {
                    "name": name,
                    "ms": round(value, 4),
                    "images_per_s": round(1000 / value, 1) if value > 0 else None,
                    "share": round(self.share(name), 4),
                }
                for name, value in self.stages.ms.items()
            ],
            "slowest": self.slowest,
            "picture_ms": round(self.stages.wall_ms, 3),
            "waiting_ms": round(self.waiting_ms, 3),
        }


def measure_pipeline(batches: Batches, epochs: int, seconds: float) -> DataProfile:
    """Read batches for about `seconds` in all; afterwards `batches` starts with its first epoch again.

    epochs: of the run
    """
    stages = stage_times(batches.rows, seconds=0.25 * seconds)
    threads = {} if batches.processes else rates_by_threads(batches.rows, 0.3 * seconds)
    milliseconds = _read(_endless(batches, epochs), 0.45 * seconds)
    gc.collect()  # the iterator's readers must not go on beside what is measured next
    batches.rewind()
    return DataProfile(
        images_per_s=1000 * batches.images_per_batch * len(milliseconds) / sum(milliseconds),
        batch_ms=Spread.of(milliseconds),
        batches=len(milliseconds),
        workers=batches.readers,
        processes=batches.processes,
        prefetch=batches.loader.prefetch,
        cores=os.cpu_count() or 1,
        by_threads=threads,
        stages=stages,
    )


def _endless(batches: Batches, epochs: int) -> Iterator[Any]:
    """Batch after batch; the iterator passes the ends of epochs by itself, until the run's last one."""
    while True:
        iterator = batches.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
        for _ in range(epochs):
            yield from iterator
        batches.rewind()


def _read(iterator: Iterator[Any], seconds: float) -> list[float]:
    """Milliseconds between batches. The first ones, which start the readers, do not count."""
    for _ in range(_WARM_UP):
        next(iterator)
    began = last = time.perf_counter()
    found: list[float] = []
    while len(found) < 3 or last - began < seconds:
        next(iterator)
        now = time.perf_counter()
        found.append(1000 * (now - last))
        last = now
    return found
