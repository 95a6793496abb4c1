"""Every file under conf/ composes and passes the check."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msrun_cli.config import check, lenient, schema
from msrun_cli.config.composer import Composer
from msrun_cli.config.paths import conf_dir

CONF = conf_dir()
FILES = sorted(str(path.relative_to(CONF).with_suffix("")) for path in CONF.rglob("*.yaml"))
MUST_BE_SET = {"dataset.root": "DIR", "dataset.data_yaml": "FILE", "model.name": "NAME"}
MUST_BE_SET |= {"launch.node_rank": "0", "launch.master": "HOST"}
# What makes a file complete that is not for the default task, and what a user has to say for it.
CLASSIFIER, DATA = "model=resnet18", "dataset=imagefolder"
CONTEXT = {
    "dataset/imagefolder": [CLASSIFIER],
    "evaluator/classification": [CLASSIFIER, DATA],
    "loss/bce": [CLASSIFIER, DATA],
    "loss/classification": [CLASSIFIER, DATA],
    "loss/cross_entropy": [CLASSIFIER, DATA],
    "model/custom": [DATA, "model.network.cell._target_=msrun_cli.models.resnet.ResNet"],
    "task/classification": [CLASSIFIER, DATA],
}
CONTEXT |= {f"model/{path.stem}": [DATA] for path in (CONF / "model").glob("*.yaml") if "resnet" in path.stem}
CONTEXT |= {"model/mindcv": [DATA]}
# What the compiler splits among devices goes without an average.
SPLIT = ("parallel/optimizer_sharding", "parallel/semi_auto", "parallel/auto")
CONTEXT |= {f"parallel/{mode.stem}": ["launch=local"] for mode in (CONF / "parallel").glob("[!n]*.yaml")}
CONTEXT |= {
    f"transforms/{path.stem}": [CLASSIFIER, DATA]
    for path in (CONF / "transforms").glob("*.yaml")
    if path.stem.startswith(("imagenet", "cifar", "classification"))
}


def problems(command: str, overrides: list[str]) -> list[str]:
    composer = Composer(command)
    plain = composer.compose(overrides)
    overrides += [
        f"{key}={value}"
        for key, value in MUST_BE_SET.items()
        if (section := key.split(".")[0]) in plain and OmegaConf.is_missing(plain[section], key.split(".")[1])
    ]
    overrides += ["weights=FILE"] * (command == "eval")
    composition = lenient.compose(composer, overrides)
    assert composition.config is not None, composition.problems
    return composition.problems + check.problems(composition.config, schema.ROOTS[command], composition.origins)


@pytest.mark.parametrize("file", FILES)
def test_every_file_composes_and_passes(file: str) -> None:
    group, _, option = file.rpartition("/")
    if not group:
        assert problems(file, []) == []
        return
    used = 0
    for command in schema.ROOTS:
        for key in Composer(command).groups:
            if key.split("@")[0] == group:
                used += 1
                own = ["ema=off"] if command == "train" and file in SPLIT else []
                assert problems(command, [*CONTEXT.get(file, []), *own, f"{key}={option}"]) == []
    assert used, f"no primary configuration chooses from {group}"


@pytest.mark.parametrize("amp", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize("loss_scale", ["none", "dynamic"])
def test_combinations(amp: str, loss_scale: str) -> None:
    assert problems("train", ["model=yolov5x", f"amp={amp}", f"loss_scale={loss_scale}"]) == []


@pytest.mark.parametrize("debug", sorted(path.stem for path in (CONF / "debug").glob("*.yaml")))
@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_debug_presets_fit_every_experiment(debug: str, experiment: str) -> None:
    found = problems("train", [f"experiment={experiment}", f"debug={debug}"])
    if debug in ("fast", "overfit") and "resnet" in experiment:  # generated images are for detectors
        assert any("is for detection, but model=" in text for text in found)
    else:
        assert found == []


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_experiments_say_how_and_what_to_expect(path: Path) -> None:
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    text = "\n".join(header)
    assert f"experiment={path.stem}" in text
    assert "Expected" in text
    assert "Source" in text


def test_a_target_is_only_named_once_per_group_option() -> None:
    """A `_target_` in an experiment would hide which option is used."""
    for folder in ("experiment", "debug"):
        for path in (CONF / folder).glob("*.yaml"):
            assert "_target_" not in path.read_text(), path
