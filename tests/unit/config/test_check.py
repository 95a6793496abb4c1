"""A typo in each of five places, wrong types, wrong values, wrong arguments: what is said, and all at once."""

from __future__ import annotations

from pathlib import Path

import pytest


def errors(result) -> list[str]:
    assert result.code == 2, result.err
    assert result.configs == []
    return [line.removeprefix("error: ") for line in result.err.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epoch=3", ['unknown key "epoch"', "command line: epoch=3", 'mean "epochs"?']),
        ("optimizer.momentun=0.9", ['"optimizer.momentun"', 'mean "optimizer.momentum"?', "nesterov"]),
        ("lr=0.1", ['unknown key "lr"', 'mean "optimizer.lr"?']),
        ("+epoch=3", ['unknown key "epoch"', "command line", 'mean "epochs"?']),
        ("+loss.boxx=3", ['"loss.boxx"', 'no argument "boxx"', 'mean "loss.box"?']),
        ("+dataset.rot=x", ['"dataset.rot"', "read_shapes", "generator_seed", "workers"]),
        ("model=yolov5z", ['model has no option "yolov5z"', "yolov5n", "Did you mean"]),
        ("modle=yolov5n", ['unknown key "modle"', 'mean "model"?']),
        ("transforms@train_transfroms=yolov5_eval", ["not chosen anywhere", 'mean "transforms@train_transforms"?']),
        ("experiment=null", ["~experiment"]),
        ("~epochs", ['"epochs" is missing']),
        ("~epoch", ['unknown key "epoch"', 'mean "epochs"?']),
        ("epochs", ["is no override", "KEY=VALUE"]),
        ("weights=a(b", ["cannot be read", "'weights=\"a(b\"'"]),
        ("epochs=abc", ["epochs=abc (command line)", "must be an integer at least 1"]),
        ("epochs=0", ["epochs=0", "at least 1"]),
        ("epochs=1.5", ["epochs=1.5", "an integer"]),
        ("epochs=true", ["epochs=true", "an integer"]),
        ("epochs=null", ["epochs=null", "an integer"]),
        ("clip_norm=0", ["larger than 0 or null"]),
        ("clip_norm=nan", ["clip_norm=nan", "a number"]),
        ("name=3", ["name=3", "a text"]),
        ("ema.enabled=yes", ["ema.enabled=yes", "true or false"]),
        ("image_size=100", ["image_size=100", "multiple of 32 and at least 32"]),
        ("amp.level=O9", ["amp.level=O9", "O0, O1, O2, O3"]),
        ("save_best_on=map_50", ["map50_95", 'Did you mean "map50"']),
        ("early_stopping.patience=0", ["early_stopping.patience=0", "at least 1 or null"]),
        ("freeze=model.0.*", ["freeze=model.0.*", "must be a list, each item a text"]),
        ("optimizer.layer_decay=1.5", ["optimizer.layer_decay=1.5", "larger than 0 and at most 1 or null"]),
        ("+optimizer.groups.a={lr_scale: 2}", ['"optimizer.groups.a.pattern" is missing']),
        ("+optimizer.groups.a={pattern: x, lr: 2}", ['unknown key "optimizer.groups.a.lr"', "lr_scale"]),
        ("device.sink=maybe", ["auto, on, off"]),
        ("dataset.workers=0", ["dataset.workers=0", "an integer at least 1 or auto"]),
        ("dataset.workers=many", ["dataset.workers=many", "or auto"]),
        ("dataset.cache=rom", ["none, ram, disk", 'did you mean "ram"']),
        ("train_transforms.mosaic.until_epoch=soon", ["until_epoch=soon", "an integer or null"]),
        ("+train_transforms.hsv.from_epoch=-1", ["from_epoch=-1", "at least 0"]),
        ("epochs.x=1", ["epochs.x"]),
        ("train_transforms=3", ["train_transforms"]),
        ("train_transforms.mosaic=3", ["train_transforms.mosaic=3", "section"]),
        ("train_transforms.mosaic.probability=often", ["train_transforms.mosaic.probability=often", "float"]),
        ("loss.box=[1]", ["loss.box=[1]", "float"]),
        ("dataset.train_images=ten", ["dataset.train_images=ten", "int"]),
        ("image_size='${dataset.size}'", ["image_size=${dataset.size}", "cannot be resolved"]),
        ("dataset=coco", ["dataset.root must be set", "folder", "dataset.root=VALUE"]),
        ("loss._target_=msrun_cli.losses.yolov5.YOLOLoss", ['no class or function "YOLOLoss"', "YOLOv5Loss"]),
        ("loss._target_=msrun_cli.losses.yolo.YOLOv5Loss", ['no module "yolo"', 'mean "yolov5"']),
        ("loss._target_=os.system", ["only names below msrun_cli.losses", "MSRUN_TARGET_PREFIXES=os"]),
        ("loss._target_=msrun_cli.losses.yolov5.os.system", ["no class or function"]),
        ("loss._target_=msrun_cli.common.files.write_text", ["only names below msrun_cli.losses"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_fault(call, override: str, words: list[str]) -> None:
    (error,) = errors(call("train", override))
    for word in words:
        assert word in error


def test_all_faults_at_once(call) -> None:
    found = errors(
        call(
            "train", "epoch=3", "model=yolov5z", "batch_size=x", "optimizer.lr=[1]", "+loss.boxx=1", "amp.level=O9", "q"
        )
    )
    assert len(found) == 7
    for word in ("epoch", "yolov5z", "batch_size", "optimizer.lr", "loss.boxx", "amp.level", '"q"'):
        assert any(word in error for error in found)


def test_a_fault_behind_an_interpolation_is_said_once(call) -> None:
    (error,) = errors(call("train", "dataset.image_size=100"))
    assert "dataset.image_size=100" in error


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    (folder / "experiment").mkdir(parents=True)
    return folder


def test_faults_in_a_yaml_file_name_file_and_line(call, own: Path) -> None:
    (own / "experiment" / "bad.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n"
        "  - override /model: yolov5z\n"
        "epoch: 3\n"
        "batch_size: many\n"
        "optimizer:\n"
        "  lr: abc\n"
        "  momentun: 0.9\n"
        "train_transforms:\n"
        "  mosaic:\n"
        "    propability: 1.0\n"
    )
    found = errors(call("train", "experiment=bad", config_dir=str(own)))
    expected = {
        '"yolov5z"': "experiment/bad.yaml, line 3",
        '"epoch"': "bad.yaml, line 4",
        "batch_size=many": "bad.yaml, line 5",
        "optimizer.lr=abc": "bad.yaml, line 7",
        '"optimizer.momentun"': "bad.yaml, line 8",
        '"train_transforms.mosaic.propability"': "bad.yaml, line 11",
    }
    assert len(found) == len(expected), found
    for what, where in expected.items():
        (error,) = [text for text in found if what in text]
        assert where in error


def test_invalid_yaml(call, own: Path) -> None:
    (own / "experiment" / "bad.yaml").write_text("epochs: [1\nseed: 2\n")
    (error,) = errors(call("train", "experiment=bad", config_dir=str(own)))
    assert "bad.yaml, line 2" in error
    assert "not valid YAML" in error


def test_trusted_prefix(call, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylosses.py").write_text(
        "import nothing_that_exists\n\nclass Mine:\n    def __init__(self, gain: float): ...\n"
    )
    (own / "experiment" / "mine.yaml").write_text("# @package _global_\ndefaults:\n  - override /loss: mine\n")
    (own / "loss").mkdir()
    (own / "loss" / "mine.yaml").write_text("_target_: mylosses.Mine\ngain: 1\n")
    (error,) = errors(call("train", "experiment=mine", config_dir=str(own)))
    assert "MSRUN_TARGET_PREFIXES=mylosses" in error
    monkeypatch.setenv("MSRUN_TARGET_PREFIXES", "other, mylosses")
    (error,) = errors(call("train", "experiment=mine", "loss.gain=x", config_dir=str(own)))
    assert "loss.gain=x" in error  # the signature is read although the module cannot be imported
    assert call("train", "experiment=mine", config_dir=str(own)).code == 0


def test_missing_argument_of_a_transform(call, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mysteps.py").write_text("class Blur:\n    def __init__(self, radius: int, gain: float = 1.0): ...\n")
    monkeypatch.setenv("MSRUN_TARGET_PREFIXES", "mysteps")
    (error,) = errors(call("train", "+train_transforms.blur={_target_: mysteps.Blur}"))
    assert "train_transforms.blur.radius is missing" in error
    assert call("train", "+train_transforms.blur={_target_: mysteps.Blur,radius: 3}").code == 0


def test_nested_target_is_under_the_same_policy(call) -> None:
    found = errors(call("train", "+loss.extra={_target_: os.system,command: ls}"))
    assert any("loss.extra._target_=os.system" in error for error in found)
