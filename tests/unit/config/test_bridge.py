from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf


def test_a_job_gets_typed_values_and_its_own_folder(call, tmp_path: Path) -> None:
    argv, cwd = list(sys.argv), os.getcwd()
    result = call("train", "epochs=3", "clip_norm=1", "device.sink=true", "weights=null")
    assert result.code == 0
    (config,) = result.configs
    assert config.epochs == 3
    assert isinstance(config.clip_norm, float)
    assert config.device.sink == "on"
    assert "hydra" not in config
    assert (sys.argv, os.getcwd()) == (argv, cwd)
    (run,) = (tmp_path / "outputs" / "train" / "shapes_yolov5n").iterdir()
    assert {item.name for item in run.iterdir()} == {
        "checkpoints",
        "config.yaml",
        "overrides.yaml",
        "return_value.json",
    }


def test_runs_never_share_a_folder(call, tmp_path: Path) -> None:
    for _ in range(3):
        assert call("train").code == 0
    assert len(list((tmp_path / "outputs" / "train" / "shapes_yolov5n").iterdir())) == 3


@pytest.mark.parametrize(
    ("seed", "code", "text"), [(13, 3, "error: images are missing"), (15, 130, "error: stopped")], ids=["data", "stop"]
)
def test_errors_for_users_give_their_exit_code_and_no_traceback(call, seed: int, code: int, text: str) -> None:
    result = call("train", f"seed={seed}")
    assert result.code == code
    assert result.err.strip() == text


def test_a_run_folder_that_cannot_be_made_is_said(call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = call("train", f"output_dir={tmp_path}/file")
    assert result.code == 2 and not result.configs
    assert "the run folder cannot be made" in result.err and "Not a directory. Set output_dir" in result.err
    assert "Traceback" not in result.err


def test_bfloat16_is_refused_where_auto_is_a_cpu(call, monkeypatch: pytest.MonkeyPatch) -> None:
    from msrun_cli.environment import run_start

    for alone, code in ((True, 2), (False, 0)):
        monkeypatch.setattr(run_start, "is_cpu_alone", lambda alone=alone: alone)
        result = call("train", "amp=O1", "amp.dtype=bfloat16")
        assert result.code == code
        assert ("amp.dtype=float16" in result.err) == alone
    assert call("train", "amp=O0", "amp.dtype=bfloat16").code == 0


def test_debug_shows_the_traceback(call) -> None:
    assert "Traceback" in call("train", "seed=13", debug=True).err


def test_a_bug_of_ours_is_not_hidden(call) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        call("train", "seed=14")


def test_hydra_error_variable_is_restored(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    call("train")
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_cfg_prints_and_starts_nothing(call, tmp_path: Path) -> None:
    result = call("train", "epochs=3", cfg="job")
    assert result.code == 0
    assert OmegaConf.create(result.out).epochs == 3
    assert not (tmp_path / "outputs").exists()
    assert call("train", cfg="job", package="model.name").out == "yolov5n\n"
    assert "image_size: 160" in call("train", cfg="job", resolve=True).out.split("model:")[1]
    assert "run:" in call("train", cfg="hydra").out


def test_cfg_shows_what_is_still_to_be_set(call) -> None:
    result = call("train", "dataset=coco", cfg="job")
    assert result.code == 0
    assert "root: ???" in result.out
    assert call("eval", cfg="job").code == 0


def test_cfg_with_a_fault_prints_and_fails(call) -> None:
    result = call("train", "epochs=0", cfg="job")
    assert result.code == 2
    assert "epochs: 0" in result.out
    assert "epochs=0" in result.err


def test_unknown_part(call) -> None:
    result = call("train", cfg="job", package="modle")
    assert result.code == 2
    assert 'Did you mean "model"?' in result.err


def test_info(call) -> None:
    assert "dataset/shapes" in call("train", info="defaults").out


def test_unknown_primary_configuration(call) -> None:
    result = call("train", config_name="trian")
    assert result.code == 2
    assert 'Did you mean "train"?' in result.err


def test_own_folder_adds_options_and_primary_configurations(call, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "small.yaml").write_text("# @package _global_\nepochs: 7\n")
    (folder / "mine.yaml").write_text("defaults: [train, _self_]\nepochs: 8\n")
    assert call("train", "experiment=small", config_dir=str(folder)).configs[-1].epochs == 7
    assert call("train", "+experiment=small", config_dir=str(folder)).configs[-1].epochs == 7
    assert call("train", config_dir=str(folder), config_name="mine").configs[-1].epochs == 8
    result = call("train", config_dir="nowhere")
    assert result.code == 2
    assert "nowhere" in result.err


@pytest.mark.parametrize(
    "overrides",
    [
        ["train_transforms.mosaic=null"],
        ["~train_transforms.mosaic"],
        ["transforms@train_transforms=yolov5_eval"],
        ["hydra.run.dir=here"],
        ["hydra/launcher=basic"],
        ["experiment=bccd_yolov5n", "dataset.root=x"],
        ["+experiment=bccd_yolov5n", "dataset.root=x"],
        ["~experiment"],
        ["++epochs=4"],
        ["name='a b'"],
        ["ema=off", "amp=O2", "loss_scale=dynamic"],
        ["debug=fast", "experiment=bccd_yolov5n"],
    ],
    ids=" ".join,
)
def test_forms_of_overrides(call, overrides: list[str]) -> None:
    result = call("train", *overrides)
    assert (result.code, len(result.configs)) == (0, 1), result.err


def test_missing_weights(call, tmp_path: Path) -> None:
    (tmp_path / "yolov5n.pt").touch()
    result = call("train", "weights=yolov5.pt")
    assert result.code == 5
    assert 'Did you mean "yolov5n.pt"?' in result.err
    assert result.configs == []
    assert call("train", "weights=yolov5n.pt").code == 0


def test_processes_of_another_launcher_are_refused(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    result = call("train")
    assert result.code == 2 and not result.configs
    assert "another launcher has started this process (MS_ROLE=MS_WORKER)" in result.err


def test_a_launch_runs_the_task_in_other_processes(call, monkeypatch: pytest.MonkeyPatch) -> None:
    from msrun_cli.tasks import launch

    launched = []
    monkeypatch.setattr(launch, "launch", lambda config, task: launched.append((config, task)))
    result = call("train", "launch=local", "launch.workers=2")
    assert result.code == 0 and not result.configs
    ((config, task),) = launched
    assert config.parallel.mode == "data_parallel" and config.launch.workers == 2 and ":" in task
    result = call("train", "launch=local", "launch.workers=1")  # nobody to launch
    assert result.code == 0 and len(result.configs) == 1 and len(launched) == 1
