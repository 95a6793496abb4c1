"""Training with the data set sunk to the device, and without: the same rows, evaluations, checkpoints and stops.

With a data sink (Ascend and GPU, graph mode) the device takes its batches from a queue and runs several steps per call
of the host. MindSpore then calls each such sink an epoch and gives the callbacks the output of its last step alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.train import Callback, Model

from msrun_cli.common.errors import ConfigError
from msrun_cli.data.pipeline import data_error_of
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.runtime.mindspore_versions import end_transfer

log = logging.getLogger("msrun")


def run_steps(
    step: nn.Cell, batches: Any, callbacks: Sequence[Callback], state: TrainState, sink_size: int | None, terms: int
) -> None:
    """Train from the state's step to the last epoch, or until a callback requests the end.

    sink_size: steps per sink, see `steps_per_sink`; None = batches are fed one by one.
    terms: number of loss terms.

    Raises:
        DataError: a reader failed.
    """
    if sink_size is None:
        epochs_done = state.step // state.steps_per_epoch
        Model(step).train(state.epochs, batches, list(callbacks), dataset_sink_mode=False, initial_epoch=epochs_done)
        return
    log.info("data sink: %d steps per sink, %d sinks an epoch", sink_size, state.steps_per_epoch // sink_size)
    try:
        Model(RecordedStep(step, sink_size, terms)).train(
            state.total_steps // sink_size,
            batches,
            [PerSink(state, callbacks)],
            dataset_sink_mode=True,
            sink_size=sink_size,
            initial_epoch=state.step // sink_size,
        )
    except BaseException as error:
        end_transfer(batches)
        data_error = data_error_of(error) if isinstance(error, RuntimeError) else None
        if data_error is not None:
            raise data_error from None
        raise


def steps_per_sink(sink_size: int | str, every: int, steps_per_epoch: int, done: int, goal: int) -> int:
    """How many steps the device does per sink: epochs, the start and the end of the training lie between two sinks.

    sink_size: as configured: a number, -1 = a whole epoch, "auto" = the number nearest to a log interval.
    every: steps per log interval; done, goal: steps before and after this training.

    Raises:
        ConfigError: the number does not divide all of these.
    """
    whole = math.gcd(steps_per_epoch, done, goal)
    fitting = [size for size in range(1, whole + 1) if whole % size == 0]
    if sink_size == "auto":
        return min(fitting, key=lambda size: max(size / every, every / size))
    wanted = steps_per_epoch if sink_size == -1 else int(sink_size)
    if wanted not in fitting:
        near = sorted(fitting, key=lambda size: abs(size - wanted))[:5]
        raise ConfigError(
            f"device.sink_size={sink_size}: {wanted} steps do not divide an epoch ({steps_per_epoch}), the step to "
            f"start from ({done}) and the last one ({goal}). Set device.sink_size=auto or "
            f"{', '.join(map(str, sorted(near)))}, or device.sink=off."
        )
    return wanted


class RecordedStep(nn.Cell):
    """A train step whose outputs are those of its last `size` calls, stacked: all that a sink did.

    construct(images, targets) -> (losses (size,), terms (size, T), grad_norms, scales, overflows, lrs (size,) each),
    float32; the step's own outputs are scalars and terms (T,). Counts are exact in float32 up to 16 million.
    """

    def __init__(self, step: nn.Cell, size: int, terms: int) -> None:
        super().__init__(auto_prefix=False)
        self.step, self.terms = step, terms
        zeros = ops.zeros((size, terms + 5), ms.float32)
        self.rows = Parameter(zeros, name="sink.rows", requires_grad=False)
        self.shape = (1, terms + 5)

    def construct(self, images, targets):
        loss, terms, norm, scale, overflows, lr = self.step(images, targets)
        scalars = [_as_row(value) for value in (loss, norm, scale, overflows, lr)]
        row = ops.concat((terms.astype(ms.float32), *scalars)).reshape(self.shape)
        rows = ops.concat((self.rows[1:], row))
        rows = ops.depend(rows, ops.assign(self.rows, rows))
        t = self.terms
        return rows[:, t], rows[:, :t], rows[:, t + 1], rows[:, t + 2], rows[:, t + 3], rows[:, t + 4]


def _as_row(value):
    return value.astype(ms.float32).reshape((1,))


class PerSink(Callback):
    """Hands on to callbacks what MindSpore says about sinks, in terms of steps and epochs."""

    def __init__(self, state: TrainState, callbacks: Sequence[Callback]) -> None:
        super().__init__()
        self.state, self.callbacks = state, list(callbacks)

    def on_train_begin(self, run_context) -> None:
        self._tell("on_train_begin", run_context)

    def on_train_step_begin(self, run_context) -> None:
        self._tell("on_train_step_begin", run_context)

    def on_train_step_end(self, run_context) -> None:
        self._tell("on_train_step_end", run_context)

    def on_train_epoch_end(self, run_context) -> None:
        """MindSpore says this after each sink; it is the end of an epoch, or of the training, only now and then."""
        if self.state.step % self.state.steps_per_epoch == 0 or run_context.get_stop_requested():
            self._tell("on_train_epoch_end", run_context)

    def on_train_end(self, run_context) -> None:
        self._tell("on_train_end", run_context)

    def _tell(self, event: str, run_context) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(run_context)
