"""`msrun train` and `msrun eval` of classifiers on tiny folders, and the sentences a user must see."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from command import msrun, only_run, return_value

from msrun_cli.engine.checkpoint import read_checkpoint

SMALL = (
    "model=cifar_resnet20",
    "model.network.depth=8",
    "dataset=imagefolder",
    "device.mode=pynative",
    "batch_size=4",
    "logger.every=1",
)


def write_folders(root: Path, classes: int = 3, train: int = 4, val: int = 3) -> Path:
    """Pictures of one colour per class with some noise."""
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            folder = root / split / f"种类 {label}"
            folder.mkdir(parents=True)
            for index in range(count):
                rng = np.random.default_rng([label, index, count])
                picture = rng.integers(0, 60, (40, 36, 3), dtype=np.uint8)
                picture[..., label % 3] += 150
                _, data = cv2.imencode(".png", picture)
                (folder / f"{index}.png").write_bytes(data.tobytes())
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("分类 run")
    root = write_folders(folder / "my data")
    done = msrun("train", *SMALL, f"dataset.root={root}", "epochs=2", "train_transforms.mix.mixup=0.2",
                 "schedule=one_cycle", "optimizer=adamw", "checkpoint.every_steps=1", "checkpoint.keep_last=4",
                 "device.deterministic=true", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_run_folder_is_complete(trained):
    folder, output = trained
    run = only_run(folder / "outputs" / "train")
    plots = ("train_batch", "val_predictions", "loss", "metrics", "learning_rate")
    expected = ["checkpoints/best.ckpt", "checkpoints/last.ckpt", *(f"plots/{name}.png" for name in plots)]
    assert [name for name in expected if not (run / name).is_file()] == []
    value = return_value(run)
    assert value["objective"] >= value["top1"] and value["top5"] == 1.0
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {"cross_entropy", "top1", "top5", "mean_class_accuracy"} <= set(rows[0])
    assert "cifar_resnet20 with 3 classes" in output


def test_a_run_goes_on_from_the_middle_of_an_epoch_to_the_same_end(trained, tmp_path):
    """Optimizer, schedule, mixing and the order of the pictures are as if nobody had stopped it: all that the last
    checkpoint holds and each logged loss are the same to the bit.
    """
    whole = only_run(trained[0] / "outputs" / "train")
    run = tmp_path / "copy of the run"
    shutil.copytree(whole, run)
    columns = ("kind", "epoch", "step", "loss", "lr", "grad_norm", "top1", "mean_class_accuracy")

    def rows(folder: Path) -> list[list[str]]:
        with (folder / "metrics.csv").open(newline="") as file:
            return [[row[name] for name in columns] for row in csv.DictReader(file)]

    expected = rows(whole)
    for name in ("last.ckpt", "last_2.ckpt", "last_4.ckpt", "best.ckpt"):
        (run / "checkpoints" / name).unlink()
    done = msrun("train", f"resume={run / 'checkpoints' / 'last_3.ckpt'}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 4, epoch 2" in done.stdout
    assert rows(run) == expected and len(expected) == 8
    end, same_end = (read_checkpoint(place / "checkpoints" / "last.ckpt").arrays for place in (whole, run))
    assert end.keys() == same_end.keys()
    assert [name for name in end if end[name].tobytes() != same_end[name].tobytes()] == []

    done = msrun("train", f"resume={run}", "epochs=3", "batch_size=6", cwd=tmp_path)
    assert (done.returncode, "batch_size=6 (was 4)" in done.stderr) == (0, True), done.stderr
    assert rows(run)[-1][:3] == ["epoch", "3", "6"]  # three epochs of two steps

    (run.parent / "other data").mkdir()
    root = write_folders(run.parent / "other data", train=5)
    done = msrun("train", f"resume={run}", "epochs=4", f"dataset.root={root}", cwd=tmp_path)
    assert (done.returncode, "12 training images then, 15 now" in done.stderr) == (5, True), done.stderr


def test_damaged_pictures_are_listed(tmp_path):
    root = write_folders(tmp_path / "damaged data")
    (root / "train" / "种类 1" / "2.png").write_bytes(b"no picture")
    (root / "train" / "种类 1" / "notes.txt").write_text("text")
    # ends after the data were looked at
    done = msrun("train", *SMALL, f"dataset.root={root}", "batch_size=64", cwd=tmp_path)
    assert done.returncode == 3 and "11 images, fewer than one batch" in done.stderr
    (listed,) = tmp_path.glob("outputs/train/*/*/bad_samples.csv")
    assert "2.png" in listed.read_text() and "notes.txt" in listed.read_text()


def test_check_data_reads_the_same_setting(trained, tmp_path):
    root = trained[0] / "my data"
    words = ("dataset=imagefolder", f"dataset.root={root}", "near_duplicates=false", "batch_size=4")
    done = msrun("check-data", *words, "model=cifar_resnet20", cwd=tmp_path)
    assert done.returncode == 0 and "种类 0" in done.stdout, done.stdout + done.stderr


def test_evaluating_the_checkpoint_repeats_the_metrics_for_any_batch_size(trained):
    folder, _ = trained
    run = only_run(folder / "outputs" / "train")
    words = ("device.mode=pynative", "batch_size=2", "output_dir=again")
    done = msrun("eval", f"checkpoint={run / 'checkpoints' / 'last.ckpt'}", *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found, expected = only_run(folder / "again" / "eval"), return_value(run)
    for name in ("top1", "top5", "mean_class_accuracy"):
        assert return_value(found)[name] == pytest.approx(expected[name], abs=1e-9)
    assert return_value(found)["images"] == 9
    for name in ("predictions.csv", "confusion_matrix.csv", "plots/confusion_matrix.png"):
        assert (found / name).is_file()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("model=resnet18",), 2, "dataset=shapes is for detection, but model=resnet18 is for classification"),
        (("dataset=imagefolder", "dataset.root=x"), 2, "is for classification, but model=yolov5n is for detection"),
        (("model=custom", "model.network.cell._target_=os.system", "dataset=imagefolder", "dataset.root={root}"), 2,
         "MSRUN_TARGET_PREFIXES"),
        ((*SMALL, "dataset.root={root}", "+dataset.cache=ram"), 2, "unknown key dataset.cache"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(trained, words, code, sentence, tmp_path):
    root = trained[0] / "my data"
    done = msrun("train", *(word.replace("{root}", str(root)) for word in words), cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert sentence in done.stderr


@pytest.mark.slow
def test_a_network_of_somebody_else_is_trained(trained, tmp_path):
    (tmp_path / "my_networks.py").write_text(
        "from mindspore import nn\n\n\n"
        "class Small(nn.Cell):\n"
        "    def __init__(self, num_classes: int, width: int = 4):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, width, 3)\n"
        "        self.fc = nn.Dense(width, num_classes)\n\n"
        "    def construct(self, x):\n"
        "        return self.fc(self.conv(x).mean(axis=(2, 3)))\n"
    )
    root = trained[0] / "my data"
    words = ("model=custom", "model.network.cell._target_=my_networks.Small", "+model.network.cell.width=6")
    done = msrun(
        "train", *words, *SMALL[2:], f"dataset.root={root}", "image_size=32", "epochs=1", cwd=tmp_path,
        PYTHONPATH=f"{Path(__file__).resolve().parents[2]}:{tmp_path}", MSRUN_TARGET_PREFIXES="my_networks",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "custom with 3 classes: 183 parameters" in done.stdout


@pytest.mark.data
@pytest.mark.parametrize(("amp", "tolerance"), [("O0", 0.003), pytest.param("O2", 0.005, marks=pytest.mark.slow)])
def test_published_weights_reach_their_accuracy(shared_data, tmp_path, amp, tolerance):
    done = msrun(
        "eval",
        "model=cifar_resnet20",
        f"weights={shared_data / 'weights' / 'cifar10_resnet20-12fca82f.th'}",
        "dataset=imagefolder",
        f"dataset.root={shared_data / 'cifar10_jpg'}",
        f"amp={amp}",
        "batch_size=128",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    value = return_value(only_run(tmp_path / "outputs" / "eval"))
    assert value["top1"] == pytest.approx(0.804, abs=tolerance)
    assert value["images"] == 1000
