from __future__ import annotations

from typing import Any

import pytest

from msrun_cli.config import rules


def nested(**values: Any) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for key, value in values.items():
        node, parts = config, key.split("__")
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = value
    return config


STEP = {"decay": "step", "milestones": [0.3, 0.6], "gamma": 0.1, "warmup_epochs": None}
RESNET = {"name": "resnet18", "task": "classification"}
CLASSIFY = {"name": "classification"}
LOCAL = {"kind": "local", "workers": 2, "nodes": 1, "node_rank": 0, "port": None}
CLUSTER = LOCAL | {"kind": "cluster", "nodes": 2, "port": 8118}
SEMI_AUTO = {"mode": "semi_auto"}
SHARDING = {"mode": "optimizer_sharding", "level": "level1", "threshold_kb": 64, "shard_size": -1}
FOLDERS = {"name": "imagefolder", "_target_": "msrun_cli.data.imagefolder.read_imagefolder"}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (
            nested(amp__level="O2", amp__dtype="bfloat16", device__target="cpu", device__mode="graph"),
            "amp.dtype=float16",
        ),
        (nested(schedule__warmup_epochs=3.0, epochs=3), "schedule.warmup_epochs=null"),
        (nested(accumulate=None, nbs=None), "nbs=64"),
        (nested(checkpoint=None, weights=None), "must be set"),
        (nested(checkpoint="a", weights="b"), "Remove one"),
        (nested(device__sink_size=0), "device.sink_size=0"),
        (nested(launch=LOCAL | {"kind": "none"}), "Set launch=local as well"),
        (nested(launch=LOCAL | {"kind": "none", "nodes": 2}), "Set launch=cluster as well"),
        (nested(launch=LOCAL | {"nodes": 2}), "Set launch=cluster for several hosts"),
        (nested(launch=CLUSTER | {"node_rank": 2}), "at most 1"),
        (nested(launch=CLUSTER | {"port": None}), "launch.port=8118"),
        (nested(launch=LOCAL, parallel={"mode": "none"}), "2 processes would each train the same"),
        (nested(launch=LOCAL | {"kind": "none", "workers": 1}, parallel={"mode": "data_parallel"}), "several devices"),
        (nested(parallel={"mode": "auto"}), "choose parallel=auto instead"),
        (nested(parallel={"mode": "semi_auto", "level": "level1"}), "unknown key parallel.level"),
        (nested(parallel=SEMI_AUTO, device__target="cpu", device__mode="graph"), "data_parallel only there"),
        (nested(parallel=SEMI_AUTO, device__target="auto", device__mode="pynative"), "device.mode=graph"),
        (nested(parallel=SHARDING | {"shard_size": 3}, launch=CLUSTER), "divisor of the 4 devices"),
        (nested(parallel=SEMI_AUTO, accumulate=1, nbs=None, ema__enabled=True), "ema=off"),
        (nested(parallel=SEMI_AUTO, accumulate=2, nbs=None, ema__enabled=False), "accumulate=1"),
        (nested(optimizer={"lr": 0.1, "settings": 3}), "use optimizer.groups"),
        (nested(clip_norm=10.0, clip_value=0.5), "clip_norm=null"),
        (nested(eval_transforms={"a": {"until_epoch": -1}, "b": None}), "eval_transforms.a.until_epoch"),
        (nested(schedule__warmup_epochs=9.0, epochs=5), "not shorter than epochs=5"),
        (nested(schedule=STEP | {"warmup_epochs": 4.0}, epochs=10), "beyond the first milestone"),
        (nested(schedule=STEP | {"milestones": [0.6, 0.3]}, epochs=10), "growing fractions"),
        (nested(schedule=STEP | {"milestones": []}, epochs=10), "growing fractions"),
        (nested(schedule={"decay": "step", "warmup_epochs": None}, epochs=10), "schedule=step"),
        (nested(schedule={"decay": "one_cycle"}), "schedule.start_factor"),
        (nested(model__name="resnet18", model__task="classification", task__name="detection"), "the model chooses it"),
        (
            nested(
                dataset={"name": "shapes", "_target_": "msrun_cli.data.shapes.read_shapes"}, model=RESNET, evaluator={}
            ),
            "dataset=imagefolder",
        ),
        (nested(dataset=FOLDERS | {"cache": "ram", "max_boxes": None}), "dataset.cache, dataset.max_boxes"),
        (nested(loss___target_="msrun_cli.losses.yolov5.YOLOv5Loss", task__name="classification"), "loss"),
        (nested(evaluator___target_="msrun_cli.evaluation.classification.X", task__name="detection"), "evaluator"),
        (
            nested(train_transforms={"a": None, "b": {"_target_": "msrun_cli.transforms.flip.X"}}, task=CLASSIFY),
            "train_transforms.b",
        ),
        (nested(save_best_on="map50", task=CLASSIFY), "top1, top5, mean_class_accuracy, loss"),
        (nested(save_best_on="map_50", task__name="detection"), 'Did you mean "map50"'),
        (nested(early_stopping__patience=3, evaluate_every=0), "evaluate_every=1"),
        (nested(profile__what="both", resume="outputs/train/x"), "weights=RUN/checkpoints/last.ckpt"),
        (nested(profile={"what": "data", "amp": ["O0", "O2"], "try": False}), "profile.what=both"),
        (nested(profile={"what": "data", "amp": [], "try": True}), "profile.try=true"),
        (nested(profile={"what": "both", "amp": ["O2"], "try": False}, launch=LOCAL), "--compare A B"),
        (
            nested(profile={"what": "step", "amp": ["O2"], "try": False}, amp__dtype="bfloat16", device__target="cpu"),
            "amp.dtype=float16",
        ),
        (nested(image_size=32, model__name="yolov5n", model__task="detection"), "at least 64"),
    ],
)
def test_violations(config: dict[str, Any], word: str) -> None:
    (text,) = rules.violations(config)
    assert word in text


@pytest.mark.parametrize(
    "config",
    [
        {},
        nested(amp__level="O0", amp__dtype="bfloat16", device__target="cpu", device__mode="graph"),
        nested(amp__level="O2", amp__dtype="bfloat16", device__target="auto", device__mode="graph"),
        nested(schedule__warmup_epochs=3.0, epochs=20),
        nested(schedule__warmup_epochs=None, epochs=1),
        nested(schedule__warmup_epochs=0.0, epochs=1),
        nested(accumulate=None, nbs=64),
        nested(checkpoint={"every": 1}, weights=None),
        nested(profile={"what": "both", "amp": ["O0", "O2"], "try": True}, resume=None),
        nested(profile={"what": "step", "amp": ["O0"], "try": False}, amp__dtype="bfloat16", device__target="cpu"),
        nested(checkpoint=None, weights="b"),
        nested(eval_transforms={"a": {"until_epoch": None}, "b": None}),
    ],
)
def test_no_violation(config: dict[str, Any]) -> None:
    assert rules.violations(config) == []


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (nested(loss_scale__type="fixed", amp__level="O0"), "no purpose"),
        (nested(loss_scale__type="none", amp__level="O2", amp__dtype="float16"), "loss_scale=dynamic"),
        (nested(device__mode="pynative", device__jit_level="O1"), "no effect"),
        (nested(device__mode="pynative", device__save_graphs=True), "no effect"),
        (nested(accumulate=1, nbs=64, batch_size=16, launch=LOCAL), "weight decay by 0.5"),
        (nested(launch=LOCAL | {"workers": 1}), "without a scheduler"),
        (nested(launch=LOCAL, logger__progress="rich"), "line by line"),
        (nested(early_stopping={"patience": 20, "min_delta": 0.0}, epochs=20), "never ends"),
        (nested(early_stopping={"patience": None, "min_delta": 0.1}, epochs=20), "no effect"),
        (nested(freeze=["model.0.*"], weights=None, resume=None), "random start"),
        (nested(evaluate_every=0, epochs=20, checkpoint__keep_best=1), "last state"),
        (nested(train_transforms={"mosaic": {"until_epoch": -10}, "b": None}, epochs=10), "mosaic is never on"),
        (nested(train_transforms={"mosaic": {"from_epoch": 3}, "b": {}}, epochs=3), "mosaic is never on"),
    ],
)
def test_remarks(config: dict[str, Any], word: str) -> None:
    (text,) = rules.remarks(config)
    assert word in text


def test_steps_that_are_on_for_a_while_are_fine() -> None:
    for step in ({"until_epoch": -10}, {"until_epoch": 1}, {"from_epoch": 19}, {"from_epoch": 2, "until_epoch": 3}):
        assert rules.remarks(nested(train_transforms={"mosaic": step, "affine": None}, epochs=20)) == []


@pytest.mark.parametrize(("epochs", "expected"), [(1, 0.2), (5, 1.0), (15, 3.0), (300, 3.0)])
def test_default_warmup(epochs: int, expected: float) -> None:
    assert rules.default_warmup_epochs(epochs) == pytest.approx(expected)
