"""Measuring a real input pipeline, and that training starts with its first batch afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.rows import BatchRows
from msrun_cli.profiling.pipeline import measure_pipeline


class Samples:
    def __init__(self) -> None:
        self.steps = {"square": np.square}

    def timed_parts(self):
        return [(self.steps, "square", "square")]

    def blank(self, number: int):
        return (np.empty((number, 1000)),)

    def write(self, index: int, batch, place: int) -> None:
        batch[0][place] = self.steps["square"](np.full(1000, index))


@pytest.mark.parametrize("processes", [False, True])
def test_measurement(processes: bool) -> None:
    rows = BatchRows(Samples(), lambda row: np.arange(row * 4, row * 4 + 4), count=3)
    loader = LoaderOptions(workers=2, python_multiprocessing=processes)
    batches = Batches(rows, ["x"], loader, batch_size=4, first_epoch=0)
    found = measure_pipeline(batches, epochs=2, seconds=0.4)
    assert found.images_per_s > 0 and found.batches >= 3
    assert (found.workers, found.processes, found.slowest) == (batches.readers, batches.processes, "square")
    assert bool(found.by_threads) != batches.processes
    first = next(batches.create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert first[0][1, 0] == 1  # picture 1 of epoch 0
