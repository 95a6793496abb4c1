"""Rules on what goes together with a task: model, dataset, loss, evaluator, transforms. See rules."""

from __future__ import annotations

from typing import Any

from msrun_cli.config.rule_book import error
from msrun_cli.config.suggest import did_you_mean

_CLASSIFICATION = (
    "msrun_cli.data.imagefolder.",
    "msrun_cli.losses.cross_entropy.",
    "msrun_cli.evaluation.classification.",
    "msrun_cli.transforms.classification.",
    "msrun_cli.transforms.rand_augment.",
    "msrun_cli.transforms.mixing.",
)
_METRICS = {"detection": ("map50_95", "map50", "map75"), "classification": ("top1", "top5", "mean_class_accuracy")}
_DETECTION_KEYS = ("partner_window", "cache", "cache_limit_gib", "reduced_decoding", "max_boxes", "class_gain")


@error("model.name", "model.task", "task.name")
def _model_fits_task(model: str, made_for: str, task: str) -> str | None:
    if made_for == task:
        return None
    return f"model={model} is made for {made_for}, but task={task}. Leave task out: the model chooses it."


@error("dataset.name", "dataset._target_", "model.name", "model.task", "evaluator")
def _dataset_fits_model(dataset: str, reader: str, model: str, task: str, _: Any) -> str | None:
    """Not for check-data, which has no evaluator and takes any data with any model."""
    made_for = _task_of(reader)
    if made_for in (None, task):
        return None
    other = "dataset=imagefolder" if task == "classification" else "dataset=shapes, coco, yolo or voc"
    models = "such as model=resnet18" if made_for == "classification" else "such as model=yolov5n"
    return (
        f"dataset={dataset} is for {made_for}, but model={model} is for {task}. "
        f"Use {other}, or a model for {made_for}, {models}."
    )


@error("dataset")
def _pipeline_has_key(dataset: dict[str, Any]) -> str | None:
    """Keys of the schema that are for detection: elsewhere they would be taken and do nothing."""
    extra = [f"dataset.{key}" for key in _DETECTION_KEYS if key in dataset]
    if not extra or _task_of(str(dataset.get("_target_"))) != "classification":
        return None
    return f"unknown key {', '.join(extra)}: dataset={dataset.get('name')} has no such setting. Leave it out."


@error("loss._target_", "task.name")
def _loss_fits_task(target: str, task: str) -> str | None:
    return _other_task("loss", target, task)


@error("evaluator._target_", "task.name")
def _evaluator_fits_task(target: str, task: str) -> str | None:
    return _other_task("evaluator", target, task)


@error("train_transforms", "task.name")
def _train_transforms_fit_task(steps: dict[str, Any], task: str) -> str | None:
    return _other_steps("train_transforms", steps, task)


@error("eval_transforms", "task.name")
def _eval_transforms_fit_task(steps: dict[str, Any], task: str) -> str | None:
    return _other_steps("eval_transforms", steps, task)


def _other_steps(key: str, steps: dict[str, Any], task: str) -> str | None:
    targets = {name: str(step.get("_target_")) for name, step in steps.items() if isinstance(step, dict)}
    found = [text for name, target in targets.items() if (text := _other_task(f"{key}.{name}", target, task))]
    return found[0] if found else None


def _other_task(key: str, target: str, task: str) -> str | None:
    made_for = _task_of(target)
    if made_for in (None, task):
        return None
    return f"{key} ({target}) is for {made_for}, but the task is {task}. Leave it out, or choose one for {task}."


def _task_of(target: str) -> str | None:
    """The task that a shipped target is made for; None for foreign ones, which only their author knows."""
    if not target.startswith("msrun_cli."):
        return None
    return "classification" if target.startswith(_CLASSIFICATION) else "detection"


@error("image_size", "model.name", "model.task")
def _detector_size(size: int, model: str, task: str) -> str | None:
    if task != "detection" or size >= 64:
        return None
    return f"image_size={size}: model={model} needs at least 64 pixels; smaller maps vanish in its deepest layers."


@error("save_best_on", "task.name")
def _best_of_task(name: str | None, task: str) -> str | None:
    allowed = (*_METRICS[task], "loss")
    if name is None or name in allowed:
        return None
    return (
        f"save_best_on={name} is no metric of {task}: must be null or one of {', '.join(allowed)}."
        f"{did_you_mean(name, allowed)}"
    )
