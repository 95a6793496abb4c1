"""The whole path on tiny data: train, the run folder, evaluate its checkpoint, the sentences a user must see."""

from __future__ import annotations

import csv
import json

import pytest
from command import TINY, msrun, only_run, return_value
from small_yolo_data import write_yolo_data

DROPPINGS = {"rank_0", "kernel_meta", "rewritten_network"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder (with a space and Chinese characters) in which two epochs were trained under O2."""
    folder = tmp_path_factory.mktemp("用户 data")
    done = msrun(
        "train",
        *TINY,
        "epochs=2",
        "evaluate_every=1",
        "amp=O2",
        "loss_scale=dynamic",
        "device.sink=on",
        "logger.every=2",
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_run_folder_is_complete(trained):
    folder, _ = trained
    run = only_run(folder / "outputs" / "train")
    expected = [
        *("config.yaml", "overrides.yaml", "environment.json", "metrics.csv", "metrics.jsonl", "train.log"),
        *("return_value.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "checkpoints/state.json"),
        *("plots/loss.png", "plots/metrics.png", "plots/train_batch.png", "plots/val_predictions.png"),
    ]
    assert [name for name in expected if not (run / name).is_file()] == []
    assert not DROPPINGS & {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.iterdir()] == ["outputs"]


def test_metrics_have_a_row_per_interval_and_per_epoch(trained):
    folder, _ = trained
    run = only_run(folder / "outputs" / "train")
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["kind"], row["epoch"], row["step"]) for row in rows] == [
        ("step", "1", "2"),
        ("step", "1", "4"),
        ("epoch", "1", "4"),
        ("step", "2", "6"),
        ("step", "2", "8"),
        ("epoch", "2", "8"),
    ]
    for row in rows:
        if row["kind"] == "step":
            terms = float(row["box"]) + float(row["obj"]) + float(row["cls"])
            assert float(row["loss"]) == pytest.approx(terms, rel=1e-4)
            assert float(row["grad_norm"]) > 0
        else:
            assert 0 <= float(row["map50_95"]) <= float(row["map50"]) <= 1
    jsonl = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in jsonl] == [int(row["step"]) for row in rows]


def test_result_names_objective_and_metrics(trained):
    folder, _ = trained
    value = return_value(only_run(folder / "outputs" / "train"))
    assert value["objective"] >= value["map50_95"] >= 0
    assert value["steps"] == 8
    assert value["overflows"] >= 0
    assert value["epochs"] == 2
    assert value["images_per_s"] > 0


def test_wishes_that_the_cpu_cannot_honour_are_said(trained):
    _, output = trained
    lines = output.splitlines()
    assert any("device.sink=on" in line and "does not sink" in line for line in lines)
    assert any("amp=O2 on a CPU" in line and "not faster" in line for line in lines)
    assert any(line.startswith("ONEDNN_MAX_CPU_ISA") for line in lines)
    assert any("compiling the training graph" in line for line in lines)
    assert any("training graph compiled in" in line for line in lines)


def test_evaluating_the_checkpoint_repeats_the_metrics(trained):
    folder, _ = trained
    run = only_run(folder / "outputs" / "train")
    done = msrun("eval", f"checkpoint={run / 'checkpoints' / 'last.ckpt'}", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AP50-95" in done.stdout
    found = return_value(only_run(folder / "outputs" / "eval"))
    expected = return_value(run)
    for name in ("map50_95", "map50", "map75"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9)
    assert found["images"] == 8


def test_weights_start_a_training_in_pynative_mode_and_max_steps_ends_it(trained, tmp_path):
    folder, _ = trained
    weights = only_run(folder / "outputs" / "train") / "checkpoints" / "best.ckpt"
    words = ("device.mode=pynative", "amp=O1", "loss_scale=fixed", "accumulate=2", "max_steps=3", "logger.every=1")
    done = msrun("train", *TINY, *words, f"weights={weights}", "ema=off", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "291 of 291 parameters loaded" in done.stdout
    assert "pynative is several times slower" in done.stdout
    assert "stopped by max_steps=3" in done.stdout
    assert return_value(only_run(tmp_path / "outputs" / "train"))["steps"] == 3


def test_evaluation_with_the_wrong_number_of_classes_is_refused(trained, tmp_path):
    folder, _ = trained
    weights = only_run(folder / "outputs" / "train") / "checkpoints" / "last.ckpt"
    data_yaml = write_yolo_data(tmp_path / "data", classes=2)
    done = msrun("eval", f"weights={weights}", "dataset=yolo", f"dataset.data_yaml={data_yaml}", cwd=tmp_path)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "model.24.m.0.weight" in done.stderr


def test_unreadable_image_ends_training_with_its_name(tmp_path):
    data_yaml = write_yolo_data(tmp_path / "data", classes=2, broken=True)
    words = (f"dataset.data_yaml={data_yaml}", "dataset.on_bad_sample=error", *TINY[2:], "epochs=1")
    done = msrun("train", "dataset=yolo", *words, cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "1 of the 16 images are bad" in done.stderr and "broken.jpg" in done.stderr


def test_a_wrong_root_is_one_paragraph(tmp_path):
    done = msrun("train", "dataset=voc", f"dataset.root={tmp_path}/nowhere", cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "nowhere is not a folder" in done.stderr and "Traceback" not in done.stderr


def test_unreadable_image_is_left_out_and_listed(tmp_path):
    data_yaml = write_yolo_data(tmp_path / "data", classes=2, broken=True)
    words = (f"dataset.data_yaml={data_yaml}", "image_size=64", "batch_size=7", "epochs=1", "device.mode=pynative")
    done = msrun("train", "dataset=yolo", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train: 1 of 8 images are bad and left out: " in done.stdout
    with (only_run(tmp_path / "outputs" / "train") / "bad_samples.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["path"].endswith("broken.jpg") and "truncated" in row["reason"]


def test_kernels_that_cannot_be_made(tmp_path):
    """Asked for, their lack ends the run before it begins."""
    none = {"CXX": "/nowhere/g++", "MSRUN_CACHE_DIR": str(tmp_path / "cache")}
    done = msrun("train", *TINY, "device.kernels=on", cwd=tmp_path, **none)
    assert done.returncode == 4 and "Traceback" not in done.stderr
    assert "device.kernels=on: CXX=/nowhere/g++ is not there. Install a C++17 compiler" in done.stderr
