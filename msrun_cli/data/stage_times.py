"""What each stage of an input pipeline costs: decoding, the steps of the transforms, the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from msrun_cli.data.rows import BatchRows, Samples

# (object or dict, attribute or key, name): a function that is one stage
Part = tuple[Any, str, str]
REST = "boxes, copy, rest"
MIXING = "mix"


class TimedSamples(Samples, Protocol):
    def timed_parts(self) -> list[Part]:
        """The functions that do the work, with the names of their stages, in the order of the work."""


@dataclass(frozen=True)
class StageTimes:
    """ms: processor time of one picture in one thread by stage, in the order of the work, REST last; wall_ms: time that
    passed per picture, which is longer where files are waited for or other programs run."""

    ms: dict[str, float]
    wall_ms: float
    pictures: int

    @property
    def cpu_ms(self) -> float:
        return sum(self.ms.values())


def stage_times(
    rows: BatchRows, first: int = 0, *, pictures: int = 128, seconds: float = 1.5, warm_up: int = 8
) -> StageTimes:
    """Transform samples from number `first` on in this thread, at most so many and for so long.

    Decoding counts as often as it happens: about once per picture and epoch. The first `warm_up` samples fill what is
    kept of neighbours and do not count. A stage inside another one (a merging step reads partners) counts once.
    """
    samples = cast(TimedSamples, rows.samples)
    parts = samples.timed_parts()
    spent: dict[str, float] = dict.fromkeys((name for _, _, name in parts), 0.0)
    batch = samples.blank(1)
    with _measured(parts, spent):
        for index in range(first, first + warm_up):
            samples.write(index, batch, 0)
        spent.update(dict.fromkeys(spent, 0.0))
        began, cpu_began, done = time.perf_counter(), time.thread_time(), 0
        while done < pictures and (done < 4 or time.perf_counter() - began < seconds):
            samples.write(first + warm_up + done, batch, 0)
            done += 1
        wall, whole = time.perf_counter() - began, time.thread_time() - cpu_began
    table = {name: 1000 * value / done for name, value in spent.items() if value > 0}
    if rows.finish is not None:
        table[MIXING] = _mixing_ms(rows)
        wall += table[MIXING] / 1000 * done
    table[REST] = max(0.0, 1000 * (whole - sum(spent.values())) / done)
    return StageTimes(table, 1000 * wall / done, done)


def _mixing_ms(rows: BatchRows) -> float:
    """Per picture, of what is done with whole batches."""
    number = len(rows.indices_of(0))
    batch = rows.samples.blank(number)
    for array in batch:
        array[...] = 0
    began = time.thread_time()
    rows.finished(0, batch)
    return 1000 * (time.thread_time() - began) / number


@contextmanager
def _measured(parts: list[Part], spent: dict[str, float]) -> Iterator[None]:
    """Replace functions by ones that add up their own processor time, without that of measured ones inside them."""
    inner, thread = [0.0], threading.get_ident()

    def timed(function: Callable, name: str) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != thread:
                return function(*arguments, **named)
            outer, inner[0] = inner[0], 0.0
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                total = time.thread_time() - began
                spent[name] += total - inner[0]
                inner[0] = outer + total

        return call

    old = []
    try:
        for owner, key, name in parts:
            kept = owner if isinstance(owner, dict) else vars(owner)
            function = kept[key] if key in kept else getattr(owner, key)  # else a method of the class
            old.append((kept, key, kept.get(key)))
            kept[key] = timed(function, name)
        yield
    finally:
        for kept, key, function in old:
            if function is None:
                del kept[key]
            else:
                kept[key] = function
