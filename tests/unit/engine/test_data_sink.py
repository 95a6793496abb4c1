"""Training with a data sink through MindSpore's own loop, with a fake of the queue to the device.

The fake stands where MindSpore connects a network with the device's queue: called once per sink, it runs `sink_size`
steps and gives the last output, as an Ascend does. Everything else is real: Model.train, its sink loop and callbacks.
"""

from __future__ import annotations

from types import SimpleNamespace

import mindspore as ms
import mindspore.dataset as ds
import mindspore.train.model as model_module
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import Callback
from test_train_step import make_step

from msrun_cli.common.errors import ConfigError, DataError, TrainingError
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.callbacks.stop_requests import StopRequests
from msrun_cli.engine.checkpoint import CheckpointWriter, read_checkpoint
from msrun_cli.engine.data_sink import RecordedStep, run_steps, steps_per_sink

STEPS, EPOCHS, BATCH = 6, 2, 4
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((STEPS * BATCH, 3, 6, 6)).astype(np.float32)
TARGETS = RNG.standard_normal((STEPS * BATCH, 2)).astype(np.float32)


class FakeQueue:
    """MindSpore's DatasetHelper for a device: gives nothing to the host, once per sink."""

    def __init__(self, dataset, sink_mode, size, epochs) -> None:
        assert sink_mode
        self.size, self.calls = size, []
        self.batches = dataset.create_tuple_iterator(num_epochs=epochs)
        dataset.__transfer_dataset__ = self
        dataset.queue = self

    def __iter__(self):
        yield ()

    def sink_size(self) -> int:
        return self.size

    def next_batch(self):
        return next(self.batches)

    def continue_send(self) -> None:
        pass

    def stop_send(self) -> None:
        self.calls.append("stop_send")

    def release(self) -> None:
        self.calls.append("release")


class FakeDeviceLoop:
    """The network with its queue: one call of the host is a whole sink."""

    def __init__(self, network: nn.Cell, queue: FakeQueue) -> None:
        self.network, self.queue = network, queue

    def set_train(self, mode: bool) -> None:
        self.network.set_train(mode)

    def __call__(self):
        for _ in range(self.queue.size):
            try:
                batch = self.queue.next_batch()
            except StopIteration:
                self.queue.batches = self.queue.batches.__iter__()
                batch = self.queue.next_batch()
            output = self.network(*batch)
        return output


class Context:
    """MindSpore's context, as its loop sees it on an Ascend in graph mode."""

    def __getattr__(self, name: str):
        return getattr(ms.context, name)

    def get_context(self, key: str):
        seen = {"device_target": "Ascend", "mode": ms.GRAPH_MODE}
        return seen[key] if key in seen else ms.get_context(key)


@pytest.fixture
def fake_device(monkeypatch):
    monkeypatch.setattr(model_module, "context", Context())
    monkeypatch.setattr(model_module, "DatasetHelper", FakeQueue)
    monkeypatch.setattr(model_module, "connect_network_with_dataset", FakeDeviceLoop)


class Rows:
    def __init__(self) -> None:
        self.rows: list[dict] = []

    def write(self, row) -> None:
        self.rows.append(row)

    def close(self) -> None:
        pass


class LightStep(nn.Cell):
    """Looks like a train step: moves one weight, gives a loss, and counts targets that are not finite as overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(0.5, ms.float32), name="weight")
        self.overflows = Parameter(Tensor(0, ms.int32), name="overflows", requires_grad=False)

    def construct(self, images, targets):
        error = images.mean() - self.weight
        bad = ops.logical_not(ops.isfinite(targets).all()).astype(ms.int32)
        ops.assign_add(self.overflows, bad)
        ops.assign_add(self.weight, 0.1 * error)
        loss = ops.square(error)
        return loss, loss.reshape(1), loss + 1, loss * 0 + 1, self.overflows + 0, loss * 0 + 0.1


def real_step() -> tuple[nn.Cell, nn.Cell]:
    return make_step(("dynamic", 1024.0, 2.0, 100), mode=ms.PYNATIVE_MODE)[:2]


def light_step() -> tuple[nn.Cell, nn.Cell]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return (LightStep(),) * 2


def data() -> ds.Dataset:
    return ds.NumpySlicesDataset({"images": IMAGES, "targets": TARGETS}, shuffle=False).batch(BATCH)


def trained(folder, sink_size, *, every=3, max_steps=None, done=0, make=light_step, more=()):
    """(rows, steps of the evaluations, state, weights, batches) after a training in PyNative mode."""
    step, network = make()
    state = TrainState(EPOCHS, STEPS, BATCH, "score", step=done)
    rows, evaluated = Rows(), []

    def evaluate(progress):
        evaluated.append(state.step)
        return SimpleNamespace(metrics={"score": float(state.step)})

    evaluation = EpochEvaluation(state, evaluate, 1, [rows])
    guard = Guard(3, ("error",), lambda batch, number, scale: f"looked at the batch of step {number}.")
    recorder = StepRecorder(state, ("error",), every, [rows], guard, None, sink_size is not None)
    parameters = list(network.get_parameters())
    policy = KeepPolicy(every=1, every_steps=2)
    saver = CheckpointSaver(state, folder, parameters, evaluation, policy, CheckpointWriter(), {})
    batches = data()
    callbacks = [recorder, *more, StopRequests(state, max_steps), evaluation, saver]
    run_steps(step, batches, callbacks, state, sink_size, 1)
    return SimpleNamespace(
        rows=rows.rows,
        evaluated=evaluated,
        state=state,
        weights={parameter.name: parameter.asnumpy() for parameter in parameters},
        batches=batches,
        step=step,
        files={path.name: read_checkpoint(path).state["step"] for path in folder.glob("*.ckpt")},
    )


def comparable(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name not in ("images_per_s", "data_wait")} for row in rows]


@pytest.mark.parametrize(("size", "every"), [(3, 3), (1, 3), (6, 3), (2, 4)])
def test_a_sunk_training_is_the_same(size, every, fake_device, tmp_path, monkeypatch):
    """Rows, evaluations, weights and checkpoints; a sink longer than a log interval gives one row."""
    sunk = trained(tmp_path / "a", size, every=every)
    monkeypatch.undo()
    plain = trained(tmp_path / "b", None, every=max(every, size))
    assert comparable(sunk.rows) == comparable(plain.rows)
    assert sunk.evaluated == plain.evaluated == [6, 12]
    for files in (sunk.files, plain.files):
        del files["last_2.ckpt"]  # saved every two steps, but only between sinks
    assert sunk.files == plain.files
    for name, value in plain.weights.items():
        np.testing.assert_array_equal(sunk.weights[name], value, err_msg=name)
    assert sunk.batches.queue.calls == ["stop_send", "release"]
    assert all(row.get("data_wait") is None for row in sunk.rows)


def test_the_loss_of_every_step_is_in_its_rows(fake_device, tmp_path):
    """With one row per sink, the mean of the row is that of all its steps."""
    by_sink = trained(tmp_path / "a", 3, every=3)
    by_step = trained(tmp_path / "b", 1, every=1)
    losses = [row["loss"] for row in by_step.rows if row["kind"] == "step"]
    means = [row["loss"] for row in by_sink.rows if row["kind"] == "step"]
    assert len(losses) == 12
    np.testing.assert_allclose(means, np.reshape(losses, (4, 3)).mean(axis=1), rtol=1e-6)


def test_overflow_in_a_sink_lowers_the_scale_on_the_device(fake_device, tmp_path, monkeypatch):
    targets = TARGETS.copy()
    targets[BATCH : 2 * BATCH] = np.inf  # the second of each three steps
    monkeypatch.setattr("test_data_sink.TARGETS", targets)
    found = trained(tmp_path, 3, make=real_step)
    assert found.step.loss_scale.scale.asnumpy() == 256.0  # one overflow in each of two epochs
    assert [row["overflows"] for row in found.rows if row["kind"] == "step"] == [1, 1, 2, 2]


def test_max_steps_and_signals_end_between_two_sinks(fake_device, tmp_path):
    found = trained(tmp_path, 2, max_steps=4)
    assert (found.state.step, found.evaluated, found.state.epoch) == (4, [4], 1)
    assert found.batches.queue.calls == ["stop_send", "release"]
    assert found.files["last.ckpt"] == 4 and not [name for name in found.files if name.startswith("epoch")]


def test_a_resumed_training_starts_at_its_sink(fake_device, tmp_path):
    found = trained(tmp_path, 3, done=6)
    assert found.evaluated == [12]
    assert [row["step"] for row in found.rows if row["kind"] == "step"] == [9, 12]


class Failure(Callback):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def on_train_step_end(self, run_context) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (TrainingError("no longer learns"), TrainingError, "no longer"),
        (RuntimeError("C++: [data error] 图.jpg is damaged [end of data error]"), DataError, "图.jpg is damaged"),
        (RuntimeError("out of memory"), RuntimeError, "out of memory"),
    ],
)
def test_readers_are_stopped_after_an_error(error, kind, words, fake_device, tmp_path, monkeypatch):
    queues = []
    monkeypatch.setattr(model_module, "DatasetHelper", lambda *args: queues.append(FakeQueue(*args)) or queues[0])
    with pytest.raises(kind, match=words):
        trained(tmp_path, 3, more=[Failure(error)])
    assert queues[0].calls == ["stop_send", "release"]


def test_the_guard_says_that_the_batch_is_on_the_device(fake_device, tmp_path, monkeypatch):
    monkeypatch.setattr("test_data_sink.TARGETS", np.full_like(TARGETS, np.inf))
    with pytest.raises(TrainingError, match="the last 3 steps were skipped.*With device.sink=off the batch is at hand"):
        trained(tmp_path, 3)


class Numbers(nn.Cell):
    """A train step that gives numbers one can tell apart."""

    def construct(self, images, targets):
        value = images.sum()
        return value, targets, value + 1, value + 2, (value + 3).astype(ms.int32), value + 4


def test_recorded_step_in_graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    step = RecordedStep(Numbers(), 3, 2)
    for number in range(5):
        outputs = step(Tensor([float(number)], ms.float32), Tensor([number, -number], ms.float32))
    losses, terms, norms, scales, overflows, rates = (output.asnumpy() for output in outputs)
    np.testing.assert_array_equal(losses, [2, 3, 4])
    np.testing.assert_array_equal(terms, [[2, -2], [3, -3], [4, -4]])
    np.testing.assert_array_equal([norms, scales, overflows, rates], [[3, 4, 5], [4, 5, 6], [5, 6, 7], [6, 7, 8]])


@pytest.mark.parametrize(
    ("size", "every", "steps", "done", "goal", "expected"),
    [
        ("auto", 10, 100, 0, 500, 10),
        ("auto", 10, 96, 0, 960, 12),  # 8 and 12 are near; 12 / 10 is nearer than 10 / 8
        ("auto", 10, 100, 205, 500, 5),  # gone on from the middle of an epoch
        ("auto", 10, 100, 0, 7, 1),  # max_steps
        ("auto", 10, 7393, 0, 7393 * 3, 1),  # a prime number
        (-1, 10, 7393, 0, 7393 * 3, 7393),
        (25, 10, 100, 0, 500, 25),
    ],
)
def test_steps_per_sink(size, every, steps, done, goal, expected):
    assert steps_per_sink(size, every, steps, done, goal) == expected


@pytest.mark.parametrize(("size", "steps", "done"), [(30, 100, 0), (-1, 100, 50)])
def test_a_sink_that_does_not_fit(size, steps, done):
    with pytest.raises(ConfigError, match=f"device.sink_size={size}.*Set device.sink_size=auto or .*50"):
        steps_per_sink(size, 10, steps, done, 500)
