"""Rules between settings. Pure functions of a plain nested dict; each rule names the keys it needs.

Those on what the tasks take are in task_rules, those on several devices in launch_rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msrun_cli.config import launch_rules, task_rules  # noqa: F401 - their rules are registered
from msrun_cli.config.rule_book import error, registered_errors, registered_remarks, remark

_DECAY_KEYS = {"step": ("milestones", "gamma"), "one_cycle": ("start_factor",)}


def violations(config: dict[str, Any]) -> list[str]:
    """Combinations that cannot work: which keys, their values, what to set instead."""
    return registered_errors(config)


def remarks(config: dict[str, Any]) -> list[str]:
    """Combinations that work, but where a setting has no effect or is unwise."""
    return registered_remarks(config)


def default_warmup_epochs(epochs: float, decay: str = "cosine") -> float:
    """Meaning of schedule.warmup_epochs=null: min(3, epochs / 5); with one cycle 0.3 of the run."""
    return 0.3 * epochs if decay == "one_cycle" else min(3.0, epochs / 5)


@error("amp.level", "amp.dtype", "device.target")
def _bfloat16_on_cpu(level: str, dtype: str, target: str) -> str | None:
    if level == "O0" or (dtype, target) != ("bfloat16", "cpu"):
        return None
    return (
        f"amp.level={level} with amp.dtype=bfloat16 and device.target=cpu: MindSpore has no bfloat16 convolution on a "
        "CPU. Set amp.dtype=float16, or amp=O0, which is also the fastest on a CPU."
    )


@error("clip_norm", "clip_value")
def _one_kind_of_clipping(clip_norm: float | None, clip_value: float | None) -> str | None:
    if clip_norm is None or clip_value is None:
        return None
    return (
        f"clip_norm={clip_norm:g} and clip_value={clip_value:g}: gradients are clipped in one way. Set clip_norm=null "
        "to clip by value, or clip_value=null to clip by the global norm."
    )


@error("schedule.warmup_epochs", "epochs")
def _warmup_fits(warmup: float | None, epochs: int) -> str | None:
    if warmup is None or warmup <= 0 or warmup < epochs:
        return None
    return (
        f"schedule.warmup_epochs={warmup:g} is not shorter than epochs={epochs}: the learning rate would never reach "
        f"its value. Set schedule.warmup_epochs=null (here {default_warmup_epochs(epochs):g}), 0, or more epochs."
    )


@error("schedule.decay", "schedule.milestones", "schedule.warmup_epochs", "epochs")
def _milestones_in_order(decay: str, milestones: list[float], warmup: float | None, epochs: int) -> str | None:
    if decay != "step":
        return None
    if not milestones or any(first >= second for first, second in zip(milestones, milestones[1:], strict=False)):
        return f"schedule.milestones={milestones}: must be growing fractions of the run, such as [0.5, 0.75]."
    if warmup is None or warmup <= milestones[0] * epochs:
        return None
    return (
        f"schedule.warmup_epochs={warmup:g} reaches beyond the first milestone ({milestones[0]:g} of {epochs} epochs). "
        "Set a shorter warm-up or a later milestone."
    )


@error("schedule.decay", "schedule")
def _keys_of_decay(decay: str, schedule: dict[str, Any]) -> str | None:
    """`schedule.decay=step` on top of the cosine file lacks what that decay needs."""
    lacking = [key for key in _DECAY_KEYS.get(decay, ()) if key not in schedule]
    if not lacking:
        return None
    return f"schedule.decay={decay} needs schedule.{', schedule.'.join(lacking)}: choose schedule={decay} instead."


@error("optimizer")
def _optimizer_gets_objects(optimizer: dict[str, Any]) -> str | None:
    """Arguments of the optimizer that the program supplies: whatever stands there would be lost."""
    extra = [f"optimizer.{key}" for key in ("params", "settings") if key in optimizer]
    if not extra:
        return None
    return f"{', '.join(extra)}: supplied by the program. For rates of some parameters use optimizer.groups."


@error("accumulate", "nbs")
def _accumulation_known(accumulate: int | None, nbs: int | None) -> str | None:
    if accumulate is not None or nbs is not None:
        return None
    return (
        "accumulate=null takes the number of batches per update from nbs, but nbs=null. "
        "Set accumulate=1, or nbs to the images per update (such as nbs=64)."
    )


@error("checkpoint", "weights")
def _one_source(checkpoint: Any, weights: str | None) -> str | None:
    if isinstance(checkpoint, dict):  # the train configuration has a group of that name
        return None
    if checkpoint is None and weights is None:
        return (
            "checkpoint or weights must be set: checkpoint=RUN/checkpoints/best.ckpt (takes over that run's "
            "configuration), or weights=FILE with model=... and dataset=..."
        )
    if checkpoint is not None and weights is not None:
        return f"checkpoint={checkpoint} and weights={weights} are both given: which is meant? Remove one."
    return None


@error("early_stopping.patience", "evaluate_every")
def _patience_needs_evaluations(patience: int | None, evaluate_every: int) -> str | None:
    if patience is None or evaluate_every > 0:
        return None
    return (
        f"early_stopping.patience={patience} with evaluate_every=0: without evaluations between epochs there is "
        "nothing to wait for. Set evaluate_every=1, or early_stopping.patience=null."
    )


@error("profile.what", "resume")
def _profile_of_a_resumed_run(_: str, resume: str | None) -> str | None:
    if resume is None:
        return None
    return (
        f"resume={resume}: a profile does not go on with a run. Give the settings of its `msrun train` (they stand in "
        "its overrides.yaml) and, for its weights, weights=RUN/checkpoints/last.ckpt."
    )


@error("profile.what", "profile.amp", "profile.try")
def _profile_of_data_alone(what: str, amp: list[str], tried: bool) -> str | None:
    if what != "data" or not (amp or tried):
        return None
    key = f"profile.amp={amp}" if amp else "profile.try=true"
    return f"{key} needs training steps, but profile.what=data has none. Set profile.what=both (or step for amp alone)."


@error("profile.what", "profile.amp", "amp.dtype", "device.target")
def _profiled_levels_on_cpu(_: str, levels: list[str], dtype: str, target: str) -> str | None:
    if not isinstance(levels, list) or not set(levels) - {"O0"} or (dtype, target) != ("bfloat16", "cpu"):
        return None
    return (
        f"profile.amp={levels} with amp.dtype=bfloat16 and device.target=cpu: MindSpore has no bfloat16 convolution on "
        "a CPU. Set amp.dtype=float16."
    )


@error("eval_transforms")
def _stages_in_evaluation(steps: dict[str, Any]) -> str | None:
    staged = [
        f"eval_transforms.{name}.{key}"
        for name, step in steps.items()
        for key in ("from_epoch", "until_epoch")
        if isinstance(step, dict) and step.get(key) is not None
    ]
    if not staged:
        return None
    return f"{', '.join(staged)}: an evaluation has no epochs. Set null, or the step itself to null."


@error("device.sink_size")
def _sink_size(size: int | str) -> str | None:
    wrong = "device.sink_size=0: must be auto (about logger.every), -1 (a whole epoch) or at least 1 (steps per sink)."
    return wrong if size == 0 else None


@remark("freeze", "weights", "resume")
def _frozen_at_random(freeze: list[str], weights: str | None, resume: str | None) -> str | None:
    if not freeze or weights is not None or resume is not None:
        return None
    return f"freeze={_shown(freeze)} without weights: what is frozen keeps its random start. Set weights=FILE."


@remark("loss_scale.type", "amp.level")
def _scale_without_purpose(kind: str, level: str) -> str | None:
    if kind == "none" or level != "O0":
        return None
    return f"loss_scale.type={kind} has no purpose with amp.level=O0 (float32); the results are the same."


@remark("loss_scale.type", "amp.level", "amp.dtype")
def _scale_missing(kind: str, level: str, dtype: str) -> str | None:
    if kind != "none" or level == "O0" or dtype != "float16":
        return None
    return (
        f"amp.level={level} in float16 without loss scaling may lose small gradients; loss_scale=dynamic avoids that."
    )


@remark("device.mode", "device.jit_level")
def _jit_in_pynative(mode: str, jit_level: str | None) -> str | None:
    if mode == "graph" or jit_level is None:
        return None
    return f"device.jit_level={jit_level} has no effect with device.mode=pynative."


@remark("device.mode", "device.save_graphs")
def _graphs_in_pynative(mode: str, save_graphs: bool) -> str | None:
    return "device.save_graphs has no effect with device.mode=pynative." if mode != "graph" and save_graphs else None


@remark("evaluate_every", "epochs", "checkpoint.keep_best")
def _best_without_evaluation(evaluate_every: int, epochs: int, keep_best: int) -> str | None:
    if not keep_best or epochs == 1 or 0 < evaluate_every <= epochs:
        return None
    return f"evaluate_every={evaluate_every}: evaluated only at the end, so best.ckpt is the last state."


@remark("early_stopping.patience", "epochs")
def _patience_too_long(patience: int | None, epochs: int) -> str | None:
    if patience is None or patience < epochs:
        return None
    return f"early_stopping.patience={patience} never ends a run of epochs={epochs}."


@remark("early_stopping.patience", "early_stopping.min_delta")
def _delta_without_patience(patience: int | None, min_delta: float) -> str | None:
    if patience is not None or not min_delta:
        return None
    return f"early_stopping.min_delta={min_delta:g} has no effect without early_stopping.patience."


@remark("train_transforms", "epochs")
def _step_never_on(steps: dict[str, Any], epochs: int) -> str | None:
    never = []
    for name, step in steps.items():
        if not isinstance(step, dict):
            continue
        first, end = step.get("from_epoch"), step.get("until_epoch")
        last = epochs if end is None else end if end >= 0 else epochs + end
        if min(last, epochs) <= (first or 0):
            never.append(name)
    if not never:
        return None
    return (
        f"train_transforms: {', '.join(never)} is never on in a run of epochs={epochs}, because of its from_epoch or "
        "until_epoch."
    )


def _shown(values: Sequence[str]) -> str:
    return f"[{','.join(values)}]"
