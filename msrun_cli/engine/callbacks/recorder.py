"""Turns step outputs into rows: one host synchronisation per log interval, none between."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from mindspore.train import Callback

from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.state import Row, RowSink, TrainState, as_array, rows_of_sink
from msrun_cli.runtime.graph_cache import GraphCache

log = logging.getLogger("msrun")


class StepRecorder(Callback):
    """Collects what the train step returns and every `every` steps gives the sinks a row of means.

    term_names: names of the loss terms, in the order of the step's `terms`.
    graphs: where the first step finds its graph or leaves what it compiled, which is announced and timed; None =
        nothing is compiled.
    sunk: outputs are those of all steps of a sink, from `engine.data_sink.RecordedStep`.
    """

    def __init__(
        self,
        state: TrainState,
        term_names: tuple[str, ...],
        every: int,
        sinks: list[RowSink],
        guard: Guard,
        graphs: GraphCache | None,
        sunk: bool = False,
    ) -> None:
        super().__init__()
        self.state, self.term_names, self.every = state, term_names, every
        self.sinks, self.guard, self.graphs, self.sunk = sinks, guard, graphs, sunk
        self.last_batch: Any = None
        self.compile_s: float | None = None
        self.images_per_s: list[float] = []
        self._waited_s = self._step_s = 0.0
        self._counted = 0
        self._last_end = time.perf_counter()
        self._begin = self._last_end
        self._first_step = 0

    def on_train_begin(self, run_context) -> None:
        self._first_step = self.state.step  # MindSpore counts from 0 after a resume, too
        if self.graphs is not None:
            found = self.graphs.begin("train")
            log.info("%s the training graph (first step) ...", "loading" if found else "compiling")
        self._last_end = time.perf_counter()

    def on_train_epoch_begin(self, run_context) -> None:
        self._last_end = time.perf_counter()  # evaluation and checkpoints of the epoch before are no wait for data

    def on_train_step_begin(self, run_context) -> None:
        self._begin = time.perf_counter()
        self._waited_s += self._begin - self._last_end

    def on_train_step_end(self, run_context) -> None:
        parameters = run_context.original_args()
        step = self._first_step + parameters.cur_step_num
        done = step - self.state.step  # more than one when data is sunk
        self.state.step = step
        self.state.epoch = max(1, -(-step // self.state.steps_per_epoch))  # MindSpore would count sinks
        if self.sunk:
            self.state.unlogged += rows_of_sink(parameters.net_outputs)
        else:
            self.state.unlogged.append(parameters.net_outputs)
            self.last_batch = parameters.train_dataset_element
        now = time.perf_counter()
        if self.compile_s is None:
            self._end_of_first_step(now)
        else:
            self._counted += done
            self._step_s += now - self._begin
        self._last_end = now
        in_epoch = self.state.step % self.state.steps_per_epoch
        if in_epoch == 0 or in_epoch // self.every != (in_epoch - done) // self.every:
            self.flush()

    def on_train_epoch_end(self, run_context) -> None:
        if self.state.signal is None:  # else the checkpoint keeps them, and a resumed run writes the whole row
            self.flush()
        self._last_end = time.perf_counter()

    def flush(self) -> None:
        """Read the collected outputs from the device and hand on their row."""
        outputs = self.state.unlogged
        if not outputs:
            return
        waiting = time.perf_counter()
        columns = [np.stack([as_array(output) for output in column]) for column in zip(*outputs, strict=True)]
        self._step_s += time.perf_counter() - waiting  # an asynchronous device works until here
        self.state.unlogged = []
        row = self._row(*columns)
        self.state.add_losses(columns[1].sum(axis=1))
        for sink in self.sinks:
            sink.write(row)
        terms, overflows, norms, scales = columns[1], columns[4], columns[2], columns[3]
        self.guard.check(self.state, terms, overflows, norms, scales, self.last_batch)
        self._waited_s = self._step_s = 0.0
        self._counted = 0

    def _row(self, losses, terms, norms, scales, overflows, rates) -> Row:
        seconds = self._waited_s + self._step_s
        speed = self._counted * self.state.images_per_step / seconds if self._counted and seconds > 0 else None
        if speed is not None:
            self.images_per_s.append(speed)
        means = terms.mean(axis=0)
        updated = norms[norms > 0]  # batches that only accumulate report 0
        return {
            "kind": "step",
            "epoch": self.state.epoch,
            "step": self.state.step,
            "loss": float(means.sum()),
            **{name: float(value) for name, value in zip(self.term_names, means, strict=True)},
            "lr": float(rates[-1]),
            "loss_scale": float(scales[-1]),
            "overflows": int(overflows[-1]),
            "grad_norm": float(updated[-1]) if len(updated) else None,
            "images_per_s": speed,
            "data_wait": self._waited_s / seconds if speed is not None and not self.sunk else None,
        }

    def _end_of_first_step(self, now: float) -> None:
        self.compile_s = now - self._begin
        if self.graphs is not None:
            self.graphs.end()
            what = "loaded" if self.graphs.found else "compiled"
            log.info("training graph %s in %.1f s (first step included)", what, self.compile_s)
        self._waited_s = self._step_s = 0.0
