"""`msrun profile` on tiny folders of classes: one run with a level compared in a process of its own, and --compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import msrun, only_run, return_value
from test_classification import write_folders

SMALL = ("model=cifar_resnet20", "model.network.depth=8", "dataset=imagefolder", "batch_size=4", "logger.every=3")
SHORT = ("profile.steps=5", "profile.warmup=1", "profile.operator_steps=2", "profile.data_seconds=1", "profile.amp=O0")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> tuple[Path, Path, str]:
    """Working directory, run folder, what was printed."""
    folder = tmp_path_factory.mktemp("性能 run")
    root = write_folders(folder / "my data")
    done = msrun("profile", *SMALL, *SHORT, f"dataset.root={root}", cwd=folder, COLUMNS="150")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, only_run(folder / "outputs" / "profile"), done.stdout


def test_everything_is_measured(profiled) -> None:
    _, run, _ = profiled
    found = json.loads((run / "profile.json").read_text(encoding="utf-8"))
    assert (found["kind"], found["schema_version"], found["what"]) == ("msrun-profile", 1, "both")
    step = found["step"]
    assert step["count"] == len(step["timeline_ms"]) == 5
    assert min(step["breakdown_ms"][name] for name in ("forward", "backward", "update")) > 0
    assert sum(step["breakdown_ms"].values()) == pytest.approx(step["mean_ms"], rel=0.01)
    assert found["images_per_s"] == pytest.approx(4000 / step["mean_ms"], rel=0.01)
    operators = found["operators"]
    assert (operators["split"], operators["steps"]) == ("scopes", 2)
    phases = {row["name"]: (row["phase"], row["count"]) for row in operators["by_type"]}
    assert phases["Conv2D"] == ("forward", 7)
    assert phases["Conv2DBackpropFilter"] in (("backward", 4), ("backward", 7))  # three of them may be kernels of ours
    assert sum(operators["phases_ms"].values()) == pytest.approx(operators["operators_ms"], rel=0.01)
    assert 0 <= found["device_idle"] < 1 and found["compile_s"] > 0 and found["memory"]["peak_rss_mib"] > 100
    assert found["data"]["images_per_s"] > 0 and found["data"]["slowest"] == "decode_random_crop"
    assert found["verdict"]["sentences"] and found["notes"] == []
    # in a process of its own, the same weights and the same batch give the same loss
    (level,) = found["amp"]
    assert level["error"] is None and level["loss"] == pytest.approx(found["losses"][0], rel=1e-5)
    assert return_value(run)["objective"] == pytest.approx(found["images_per_s"], rel=1e-3)


def test_files_and_terminal(profiled) -> None:
    folder, run, printed = profiled
    pictures = ["steps", "data_wait", "operators", "stages"]
    missing = [name for name in pictures if not (run / "plots" / f"{name}.png").is_file()]
    assert missing == [] and (run / "profile.html").is_file() and (run / "metrics.csv").is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["my data", "outputs"]
    for words in (
        "A training step",
        "Operators by type",
        "Verdict",
        "Raw profile",
        "ui.perfetto.dev",
        "Precision levels",
    ):
        assert words in printed
    assert "Parsing" not in printed  # of MindSpore's profiler


def test_two_profiles_side_by_side(profiled) -> None:
    folder, run, _ = profiled
    done = msrun("profile", "--compare", str(run), str(run / "trials" / "amp=O0"), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Settings that differ" in done.stdout and "images/s" in done.stdout
    done = msrun("profile", "--compare", str(run), "nowhere", cwd=folder)
    assert done.returncode == 2 and "error: nowhere: there is no profile.json" in done.stderr


@pytest.mark.slow
def test_two_ranks_are_profiled_together(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data")
    words = [*SMALL, "profile.steps=5", "profile.warmup=1", "profile.operator_steps=2", "profile.what=step"]
    ranks = ("launch=local", "launch.workers=2", "device=cpu", "profile.seconds=0.1")
    done = msrun("profile", *words, *ranks, f"dataset.root={root}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(tmp_path / "outputs" / "profile")
    found = json.loads((run / "profile.json").read_text(encoding="utf-8"))
    assert found["step"]["count"] == 5 and found["operators"]["steps"] == 2
    assert sorted(path.name for path in (run / "profiler").iterdir()) == ["rank_0", "rank_1"]
