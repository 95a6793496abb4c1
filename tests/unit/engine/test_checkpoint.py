"""Checkpoint files: state inside, checksum, fall-back, what is kept."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from msrun_cli.common.errors import CheckpointError
from msrun_cli.common.files import atomic_path
from msrun_cli.config.resume import newest_of
from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import (
    CheckpointWriter,
    assign_all,
    inference_arrays,
    newest_complete,
    put_together,
    read_checkpoint,
    save_checkpoint,
)


def parameter(value: float, name: str = "weight", shape: tuple[int, ...] = (2, 3)) -> Parameter:
    return Parameter(Tensor(np.full(shape, value, np.float32)), name=name)


def save(path, value: float, **state) -> None:
    save_checkpoint(path, [("weight", parameter(value)), ("step", Parameter(Tensor(7, ms.int32)))], state)


def test_values_and_state_come_back(tmp_path):
    save(tmp_path / "last.ckpt", 1.5, step=3, loss=0.1, classes=["细胞"])
    found = read_checkpoint(tmp_path / "last.ckpt")
    assert found.state == {"step": 3, "loss": 0.1, "classes": ["细胞"]}
    weight, step = parameter(0.0), Parameter(Tensor(0, ms.int32), name="step")
    assign_all(found, [weight, step])
    assert (weight.asnumpy() == 1.5).all()
    assert step.asnumpy() == 7
    assert step.shape == ()


@pytest.mark.parametrize("fault", ["flipped", "cut", "empty"])
def test_a_damaged_file_is_passed_over(fault, tmp_path, caplog):
    save(tmp_path / "last_2.ckpt", 1.0, step=1)
    save(tmp_path / "last.ckpt", 2.0, step=2)
    content = bytearray((tmp_path / "last.ckpt").read_bytes())
    content[len(content) // 3] ^= 1
    damaged = {"flipped": bytes(content), "cut": bytes(content[:-20]), "empty": b""}[fault]
    (tmp_path / "last.ckpt").write_bytes(damaged)
    with caplog.at_level("WARNING", "msrun"):
        found = newest_complete(tmp_path / "last.ckpt")
    assert found.path == tmp_path / "last_2.ckpt"
    assert found.state == {"step": 1}
    assert "last.ckpt is not a complete" in caplog.text
    (tmp_path / "last_2.ckpt").unlink()
    with pytest.raises(CheckpointError, match="not a complete"):
        newest_complete(tmp_path / "last.ckpt")


def test_weights_without_a_state_are_refused(tmp_path):
    ms.save_checkpoint([{"name": "weight", "data": parameter(1.0)}], str(tmp_path / "foreign.ckpt"))
    with pytest.raises(CheckpointError, match="no state of a training.*weights="):
        read_checkpoint(tmp_path / "foreign.ckpt")


def test_what_does_not_fit_is_named(tmp_path):
    save(tmp_path / "last.ckpt", 1.0)
    found = read_checkpoint(tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match=r"bias is missing; step belongs to nothing; weight is \(2, 3\) in the"):
        assign_all(found, [parameter(0.0, shape=(4,)), parameter(0.0, "bias")])


class Evaluation:
    value: float | None = None


def saver(folder, policy: KeepPolicy, background: bool = False) -> CheckpointSaver:
    state = TrainState(epochs=9, steps_per_epoch=10, images_per_step=1)
    writer = CheckpointWriter(background)
    return CheckpointSaver(state, folder, [parameter(0.0)], Evaluation(), policy, writer, {"data": "abc"})


def end_epoch(callback: CheckpointSaver, epoch: int, metric: float | None = None) -> None:
    callback.state.epoch, callback.state.step = epoch, epoch * 10
    callback.evaluation.value = metric
    callback.parameters[0].set_data(Tensor(np.full((2, 3), epoch, np.float32)))
    callback.on_train_epoch_end(None)
    callback.writer.finish()


def epochs_of(folder) -> dict[str, int]:
    """Epoch of each file, from its state and its values."""
    found = {path.name: read_checkpoint(path) for path in folder.glob("*.ckpt")}
    for checkpoint in found.values():
        assert (checkpoint.arrays["weight"] == checkpoint.state["epoch"]).all()
        assert checkpoint.state["data"] == "abc"
    return {name: checkpoint.state["epoch"] for name, checkpoint in sorted(found.items())}


@pytest.mark.parametrize("background", [False, True])
def test_last_best_and_every(background, tmp_path):
    callback = saver(tmp_path, KeepPolicy(every=3, last=3, best=2), background)
    for epoch, metric in enumerate([0.1, 0.5, 0.3, None, 0.5, 0.4], start=1):
        end_epoch(callback, epoch, metric)
    assert epochs_of(tmp_path) == {
        **{"last.ckpt": 6, "last_2.ckpt": 5, "last_3.ckpt": 4},
        **{"best.ckpt": 2, "best_2.ckpt": 5},  # of two equal ones the older stays in front
        **{"epoch_0003.ckpt": 3, "epoch_0006.ckpt": 6},
    }
    assert callback.state.ranking == [(0.5, 2), (0.5, 5)]


def test_a_better_one_moves_the_others_down(tmp_path):
    callback = saver(tmp_path, KeepPolicy(last=1, best=3))
    for epoch, metric in enumerate([0.3, 0.1, 0.2, 0.4], start=1):
        end_epoch(callback, epoch, metric)
    assert epochs_of(tmp_path) == {"last.ckpt": 4, "best.ckpt": 4, "best_2.ckpt": 1, "best_3.ckpt": 3}


def test_no_best(tmp_path):
    callback = saver(tmp_path, KeepPolicy(last=1, best=0))
    end_epoch(callback, 1, 0.3)
    assert epochs_of(tmp_path) == {"last.ckpt": 1}


def test_between_epochs(tmp_path):
    callback = saver(tmp_path, KeepPolicy(every_steps=4, last=1))
    for step in range(1, 11):
        callback.state.step = step
        callback.on_train_step_end(None)
        assert (tmp_path / "last.ckpt").exists() == (step >= 4)
    assert read_checkpoint(tmp_path / "last.ckpt").state["step"] == 8


def test_steps_that_were_all_skipped_push_no_file_out(tmp_path, caplog):
    """A network that broke in epoch 3 gives nothing but skipped steps; the file from before it stays."""
    callback = saver(tmp_path, KeepPolicy(last=2, best=0))
    for epoch, skipped in ((1, 0), (2, 1), (3, 10), (4, 20), (5, 30)):
        callback.state.skipped = skipped
        end_epoch(callback, epoch)
    assert epochs_of(tmp_path) == {"last.ckpt": 3, "last_2.ckpt": 2}
    assert caplog.text.count("last.ckpt stays as it is") == 2
    callback.state.skipped = 39  # one step counted
    end_epoch(callback, 6)
    assert epochs_of(tmp_path) == {"last.ckpt": 6, "last_2.ckpt": 3}

    resumed = saver(tmp_path, KeepPolicy(last=2, best=0))  # perhaps from another file: its first save is kept
    resumed.state.skipped = 10
    end_epoch(resumed, 1)
    assert epochs_of(tmp_path) == {"last.ckpt": 1, "last_2.ckpt": 6}


def test_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", refuse)
    callback = saver(tmp_path, KeepPolicy(last=2))
    end_epoch(callback, 1)
    end_epoch(callback, 2)
    assert epochs_of(tmp_path) == {"last.ckpt": 2, "last_2.ckpt": 1}


def test_a_background_file_holds_the_moment_of_its_save(tmp_path):
    """The writer is held up while the training goes on; its file is the one that a save at once gives."""
    names = ("weight", "velocity.weight", "step.updates")
    go, started = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        assert go.wait(30)

    def parameters() -> list[Parameter]:
        rng = np.random.default_rng(3)
        return [Parameter(Tensor(rng.standard_normal((3, 2)).astype(np.float32)), name=name) for name in names]

    beside, background = parameters(), CheckpointWriter(background=True)
    background.write(tmp_path / "async.ckpt", beside, {"step": 4}, wait)
    assert started.wait(30)
    beside[0].set_data(Tensor(np.full((3, 2), 9, np.float32)))  # a new buffer
    ms.ops.assign(beside[1], Tensor(np.full((3, 2), 9, np.float32)))  # in place, as optimizers do
    beside[2][:] = 9
    assert all((item.asnumpy() == 9).all() for item in beside)
    assert not (tmp_path / "async.ckpt").exists()
    go.set()
    background.finish()
    CheckpointWriter(background=False).write(tmp_path / "sync.ckpt", parameters(), {"step": 4}, lambda: None)
    found, expected = read_checkpoint(tmp_path / "async.ckpt"), read_checkpoint(tmp_path / "sync.ckpt")
    assert found.state == expected.state == {"step": 4}
    assert found.arrays.keys() == expected.arrays.keys() == set(names)
    for name in names:
        np.testing.assert_array_equal(found.arrays[name], expected.arrays[name])
    assert (tmp_path / "async.ckpt").read_bytes() == (tmp_path / "sync.ckpt").read_bytes()


def test_weights_and_their_average_stand_in_one_file(tmp_path):
    """A training goes on from the plain weights, an evaluation takes the average where there is one."""
    plain, average, speed = parameter(1.0), parameter(2.0, "ema.weight"), parameter(3.0, "velocity.weight")
    callback = saver(tmp_path / "with", KeepPolicy())
    callback.parameters = [plain, average, speed]
    callback.save_last()
    arrays = read_checkpoint(tmp_path / "with" / "last.ckpt").arrays
    found = {name: float(array.max()) for name, array in arrays.items()}
    assert found == {"weight": 1.0, "ema.weight": 2.0, "velocity.weight": 3.0}
    chosen = inference_arrays(arrays)
    assert chosen.keys() == {"weight"} and (chosen["weight"] == 2.0).all()

    callback = saver(tmp_path / "without", KeepPolicy())
    callback.parameters = [plain, speed]
    callback.save_last()
    chosen = inference_arrays(read_checkpoint(tmp_path / "without" / "last.ckpt").arrays)
    assert (chosen["weight"] == 1.0).all() and chosen.keys() == {"weight", "velocity.weight"}


@pytest.mark.parametrize("background", [False, True])
def test_a_folder_that_is_gone(background, tmp_path):
    callback = saver(tmp_path / "run", KeepPolicy(), background)
    (tmp_path / "run").write_text("a file stands where the folder was")
    with pytest.raises(CheckpointError, match=r"cannot be written \(.*older checkpoints are intact"):
        end_epoch(callback, 1)


def test_parameters_that_ranks_hold_in_parts_are_put_together_by_all(tmp_path):
    """The rank that writes nothing takes part as well; the file holds what came out, not its own parts."""
    whole = [parameter(7.0)]
    called = []
    for writes in (True, False):
        callback = saver(tmp_path / str(writes), KeepPolicy())
        callback.writes, callback.gathered = writes, lambda: called.append(1) or whole
        callback.save_last()
    assert len(called) == 2
    assert (read_checkpoint(tmp_path / "True" / "last.ckpt").arrays["weight"] == 7).all()
    assert not (tmp_path / "False" / "last.ckpt").exists()


def test_put_together_gives_the_wanted_parameters_of_a_cell():
    cell = nn.Dense(3, 2)
    cell.update_parameters_name("net.")
    found = put_together(cell, [cell.weight])
    assert [item.name for item in found] == ["net.weight"]
    np.testing.assert_array_equal(found[0].asnumpy(), cell.weight.asnumpy())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("no space")])
def test_a_full_disk_leaves_the_older_checkpoint_and_nothing_else(error, tmp_path, monkeypatch):
    callback = saver(tmp_path, KeepPolicy(last=1))
    end_epoch(callback, 1)

    def fill_the_disk(_, path, **__):
        Path(path).write_bytes(b"half")
        Path(path).with_suffix(".tmp").write_bytes(b"half")
        raise error

    monkeypatch.setattr(ms, "save_checkpoint", fill_the_disk)
    with pytest.raises(CheckpointError, match=r"cannot be written \(.*space.*Free space"):
        end_epoch(callback, 2)
    monkeypatch.undo()
    assert epochs_of(tmp_path) == {"last.ckpt": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "state.json"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    with atomic_path(tmp_path / "last.ckpt") as temporary:
        temporary.write_bytes(b"half")
        os.link(temporary, copy := temporary.with_name(temporary.name.replace("last", "best")))
    assert copy.exists() and newest_of(tmp_path) == tmp_path / "last.ckpt"
    (tmp_path / "last.ckpt").unlink()
    assert newest_of(tmp_path) is None
    saver(tmp_path, KeepPolicy())
    assert not list(tmp_path.iterdir())
