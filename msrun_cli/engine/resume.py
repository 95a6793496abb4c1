"""Where a resumed training goes on, and whether it is still the same training."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msrun_cli.common.errors import CheckpointError, ConfigError
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import Checkpoint

log = logging.getLogger("msrun")


def go_on(checkpoint: Checkpoint, state: TrainState, facts: Mapping[str, Any]) -> tuple[int, int]:
    """Bring `state` to where the checkpoint was; returns (epochs done, batches done of the next one).

    facts: as in the checkpoint's state: data (fingerprint), images, classes.

    Raises:
        CheckpointError: it was trained on other data.
        ConfigError: it stands in the middle of an epoch that has other batches now.
    """
    saved = checkpoint.state
    _compare(checkpoint, saved, facts)
    steps_then = int(saved["steps_per_epoch"])
    epochs, steps = divmod(int(saved["step"]), steps_then)
    if steps and steps_then != state.steps_per_epoch:
        raise ConfigError(
            f"{checkpoint.path} stands at step {steps} of {steps_then} of epoch {epochs + 1}, but an epoch has "
            f"{state.steps_per_epoch} steps now. In the middle of an epoch, batch_size and the number of devices must "
            "stay; resume with those of the run, or from a checkpoint of the end of an epoch (epoch_*.ckpt)."
        )
    if steps and saved.get("images_per_step", state.images_per_step) != state.images_per_step:
        raise ConfigError(
            f"{checkpoint.path} stands in the middle of epoch {epochs + 1}, whose batches had "
            f"{saved['images_per_step']} images on all devices together; now they have {state.images_per_step}. Set "
            "batch_size so that batch_size times the number of devices stays, or resume from the end of an epoch "
            "(epoch_*.ckpt)."
        )
    state.restore(saved, epochs * state.steps_per_epoch + steps)
    before = saved.get("save_best_on", state.save_best_on)
    if before != state.save_best_on:
        state.forget_best()
        log.info("what is best was decided by %s and is by %s now: best starts anew", before, state.save_best_on)
    return epochs, steps


def _compare(checkpoint: Checkpoint, saved: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    then, now = list(saved.get("classes", [])), list(facts["classes"])
    if then != now:
        differences = [f"{a!r} is now {b!r}" for a, b in zip(then, now, strict=False) if a != b]
        more = f": {differences[0]}" if differences else ""
        raise CheckpointError(
            f"{checkpoint.path} was trained on {len(then)} classes, the dataset has {len(now)}{more}. A run goes on "
            "with its own dataset only; to train on another one from these weights, use weights=... instead of resume."
        )
    if saved.get("data") != facts["data"]:
        raise CheckpointError(
            f"{checkpoint.path} was trained on other data: {saved.get('images')} training images then, "
            f"{facts['images']} now, or other labels. A run goes on with its own dataset only; to train on "
            "changed data from these weights, use weights=... instead of resume."
        )
