from __future__ import annotations

from pathlib import Path

import pytest

from msrun_cli.config import inherit

CHECKPOINT = "run/checkpoints/best.ckpt"


@pytest.fixture
def evaluate(call, tmp_path: Path):
    (tmp_path / "data").mkdir()
    overrides = ["experiment=bccd_yolov5n", "dataset.root=data", "amp=O1", "evaluator.iou=0.7", "dataset.workers=3"]
    assert call("train", *overrides, "hydra.run.dir=run").code == 0

    def run(*words: str, code: int = 0, **flags: object):
        result = call("eval", *words, **flags)
        assert result.code == code, result.err
        return result if code or flags else result.configs[-1]

    return run


def test_the_run_configuration_is_taken_over(evaluate, tmp_path: Path) -> None:
    config = evaluate(f"checkpoint={CHECKPOINT}")
    assert config.dataset.root == "data"
    assert (config.dataset.name, config.dataset.workers) == ("bccd", 3)
    assert (config.image_size, config.batch_size) == (320, 8)
    assert (config.amp.level, config.evaluator.iou) == ("O1", 0.7)
    assert config.name == "bccd_yolov5n"
    assert (tmp_path / "outputs" / "eval" / "bccd_yolov5n").is_dir()


def test_overrides_win(evaluate) -> None:
    config = evaluate(
        f"checkpoint={CHECKPOINT}", "dataset.workers=1", "image_size=640", "evaluator.iou=0.5", "batch_size=2"
    )
    assert (config.dataset.workers, config.image_size, config.evaluator.iou, config.batch_size) == (1, 640, 0.5, 2)
    assert config.dataset.root == "data"


def test_image_size_follows_an_override_of_the_data(evaluate) -> None:
    assert evaluate(f"checkpoint={CHECKPOINT}", "dataset.image_size=96").image_size == 96


def test_a_group_override_replaces_the_section(evaluate) -> None:
    config = evaluate(f"checkpoint={CHECKPOINT}", "dataset=shapes")
    assert config.dataset.name == "shapes"
    assert "root" not in config.dataset
    assert config.image_size == 320


def test_naming_the_option_of_the_run_changes_nothing(evaluate) -> None:
    assert evaluate(f"checkpoint={CHECKPOINT}", "dataset=coco").dataset.root == "data"


def test_cfg_shows_the_run_configuration(evaluate) -> None:
    assert "root: data" in evaluate(f"checkpoint={CHECKPOINT}", cfg="job").out


def test_sweep_over_an_evaluation(evaluate) -> None:
    result = evaluate(f"checkpoint={CHECKPOINT}", "evaluator.iou=0.5,0.6", multirun=True)
    assert "job 2 of 2" in result.err


def test_the_run_configuration_is_checked(evaluate, tmp_path: Path) -> None:
    path = tmp_path / "run" / "config.yaml"
    text = path.read_text().replace("iou: 0.7", "iouu: 0.7").replace("msrun_cli.models.yolov5.network", "subprocess")
    path.write_text(text)
    err = evaluate(f"checkpoint={CHECKPOINT}", code=2).err
    assert "run/config.yaml, line" in err
    assert "subprocess" in err
    assert '"evaluator.iouu"' in err


def test_damaged_run_configuration(evaluate, tmp_path: Path) -> None:
    (tmp_path / "run" / "config.yaml").write_text("a: [")
    assert "run/config.yaml" in evaluate(f"checkpoint={CHECKPOINT}", code=2).err


def test_a_bare_checkpoint_gets_a_note(evaluate, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "x.ckpt").touch()
    result = evaluate("checkpoint=bare/x.ckpt", debug=True)
    assert "no run folder" in result.err
    assert result.configs[-1].dataset.name == "shapes"


def test_run_without_recorded_choices(evaluate, tmp_path: Path) -> None:
    (tmp_path / "run" / "overrides.yaml").unlink()
    assert evaluate(f"checkpoint={CHECKPOINT}").dataset.root == "data"


@pytest.mark.parametrize(
    ("checkpoint", "word"),
    [
        ("run/checkpoints/bst.ckpt", 'mean "run/checkpoints/best.ckpt"?'),
        ("run", "checkpoints/best.ckpt"),
        ("nowhere/best.ckpt", "nowhere"),
    ],
)
def test_missing_checkpoint(evaluate, checkpoint: str, word: str) -> None:
    assert word in evaluate(f"checkpoint={checkpoint}", code=5).err


def test_one_source_is_needed(evaluate, tmp_path: Path) -> None:
    (tmp_path / "w.pt").touch()
    assert "must be set" in evaluate(code=2).err
    assert "Remove one" in evaluate(f"checkpoint={CHECKPOINT}", "weights=w.pt", code=2).err
    assert evaluate("weights=w.pt").weights == "w.pt"


def test_what_was_typed_is_read_from_the_run(tmp_path: Path) -> None:
    assert inherit.recorded_overrides(tmp_path) == [] and inherit.recorded_choices(tmp_path) == {}
    (tmp_path / "overrides.yaml").write_text(
        "choices:\n  model: yolov5n\n  debug: null\noverrides:\n- epochs=3\n", "utf-8"
    )
    assert inherit.recorded_overrides(tmp_path) == ["epochs=3"]
    assert inherit.recorded_choices(tmp_path, {"model": "model"}) == {"model": "yolov5n"}
    (tmp_path / "overrides.yaml").write_text("[", "utf-8")
    assert inherit.recorded_overrides(tmp_path) == []
