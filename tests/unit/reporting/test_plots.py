"""Pictures: which files appear, that odd input does not break them, and that boxes are where they belong."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from msrun_cli.data.records import Record
from msrun_cli.evaluation.detections import Detections
from msrun_cli.reporting.drawing import colour_of
from msrun_cli.reporting.plots import draw_batch, draw_predictions, plot_curves

HEADER = (
    "kind,epoch,step,loss,box,obj,cls,lr,loss_scale,overflows,images_per_s,data_wait,grad_norm,map50_95,map50,map75"
).split(",")


def write_csv(path: Path, rows: list[dict], header=HEADER) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
    return path


def step(number, **more):
    return {"kind": "step", "epoch": 1, "step": number, "loss": 1 / number, "box": 0.1, "lr": 0.01, **more}


def names(paths):
    return [path.name for path in paths]


def test_curves_of_a_run(tmp_path):
    rows = [step(number) for number in range(1, 60)]
    rows += [{"kind": "epoch", "epoch": number, "step": 10 * number, "map50": 0.1 * number} for number in (1, 2)]
    folder = tmp_path / "运行 1" / "plots"
    paths = plot_curves(write_csv(tmp_path / "metrics.csv", rows), folder)
    assert names(paths) == ["loss.png", "metrics.png", "learning_rate.png"]
    assert all(Image.open(path).size == (880, 495) for path in paths)
    assert sorted(names(folder.iterdir())) == sorted(names(paths))  # no temporary file stays
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_only_what_was_measured_is_drawn(tmp_path):
    assert names(plot_curves(write_csv(tmp_path / "a.csv", [step(1)]), tmp_path)) == ["loss.png", "learning_rate.png"]
    assert plot_curves(write_csv(tmp_path / "b.csv", []), tmp_path) == []
    (tmp_path / "c.csv").touch()
    assert plot_curves(tmp_path / "c.csv", tmp_path) == []


def test_other_tasks_have_other_columns(tmp_path):
    header = ["kind", "epoch", "step", "loss", "auxiliary", "lr", "top1", "top5"]
    rows = [{"kind": "epoch", "epoch": 1, "step": 5, "loss": 2, "auxiliary": 1, "lr": 0.1, "top1": 0.3, "top5": 0.7}]
    paths = plot_curves(write_csv(tmp_path / "metrics.csv", rows, header), tmp_path)
    assert names(paths) == ["loss.png", "metrics.png", "learning_rate.png"]


def test_damaged_and_repeated_rows_do_not_stop_the_curves(tmp_path):
    rows = [step(1), step(2, loss="nan"), step(3, loss="inf"), step(2), dict(zip(HEADER, HEADER, strict=True))]
    path = write_csv(tmp_path / "metrics.csv", rows)
    with path.open("a", encoding="utf-8") as file:
        file.write("step,1,4,0.")  # the run was killed here
    assert names(plot_curves(path, tmp_path)) == ["loss.png", "learning_rate.png"]


def is_colour(picture: Image.Image, x: int, y: int, label: int) -> bool:
    return any(picture.getpixel((x + dx, y + dy)) == colour_of(label) for dx in (-1, 0, 1, 2) for dy in (-1, 0, 1, 2))


def test_a_batch_is_a_grid_of_enlarged_tiles_with_boxes(tmp_path):
    images = np.full((5, 160, 160, 3), 128, np.uint8)
    targets = np.full((5, 8, 5), -1, np.float32)
    targets[0, 0] = 1, 0.5, 0.5, 0.5, 0.25
    path = draw_batch(images, targets, ["猫", "狗"], tmp_path / "训练 batch.png")
    picture = Image.open(path)
    assert picture.size == (3 * 326 + 6, 2 * 326 + 6)
    assert is_colour(picture, 6 + 80, 6 + 160, 1)  # the left side of the box
    assert is_colour(picture, 6 + 160, 6 + 200, 1)  # its lower side
    assert picture.getpixel((6 + 160, 6 + 160)) == (128, 128, 128)
    assert picture.getpixel((6 + 326 + 160, 6 + 200)) == (128, 128, 128)


def test_at_most_sixteen_images_and_none_at_all(tmp_path):
    images, targets = np.zeros((20, 32, 32, 3), np.uint8), np.full((20, 1, 5), -1, np.float32)
    assert Image.open(draw_batch(images, targets, [], tmp_path / "many.jpg")).size == (4 * 326 + 6, 4 * 326 + 6)
    assert draw_batch(images[:0], targets[:0], [], tmp_path / "none.png").exists()
    assert draw_predictions([], [], [], tmp_path / "none2.png").exists()


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "图像 1.jpg"
    Image.new("RGB", (400, 300), (90, 90, 90)).save(path)
    return Record(
        image_path=str(path),
        image_id=1,
        boxes_xyxy=np.array([[50, 50, 150, 250], [0, 0, 400, 300]], np.float32),
        labels=np.array([0, 5]),
        iscrowd=np.array([False, True]),
        width=400,
        height=300,
    )


def test_truth_is_left_and_detections_are_right(tmp_path, record):
    boxes_xyxy = np.array([[200, 50, 300, 250], [320, 50, 380, 250]], np.float32)
    found = Detections(boxes_xyxy, np.array([0.9, 0.1], np.float32), np.array([2, 3]))
    path = draw_predictions([record, record], [found, None], ["a", "b", "c"], tmp_path / "p.png")
    picture = Image.open(path)
    left, top = 12, 12 + 22  # two margins and the title
    right = left + 400 + 6
    assert is_colour(picture, left + 50, top + 200, 0)
    assert is_colour(picture, right + 200, top + 200, 2)
    assert not is_colour(picture, right + 320, top + 200, 3)  # below the minimum score
    assert not is_colour(picture, right + 50, top + 200, 0)
    assert picture.height == 300 + 22 + 24  # the image that was not evaluated is left out


def test_colours_differ_and_carry_white_text():
    colours = [colour_of(label) for label in range(20)]
    assert len(set(colours)) == 20
    assert all(0.299 * r + 0.587 * g + 0.114 * b < 140 for r, g, b in colours)
    assert all(math.dist(a, b) > 60 for a, b in zip(colours, colours[1:], strict=False))
