"""Tables, CSV files and pictures of a classification run."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.evaluation.classification import ClassificationResult, confusion_matrix
from msrun_cli.reporting.classification import NOT_FINITE, ClassificationReport


def results(tmp_path, classes, broken=True):
    names = tuple(f"[b]类 {index}" if index == 1 else f"class {index}" for index in range(classes))
    labels = np.repeat(np.arange(classes, dtype=np.int32), 3)
    predicted = labels.copy()
    predicted[::4] = (predicted[::4] + 1) % classes
    if broken:
        predicted[1] = -1
    paths = []
    for index in range(len(labels)):
        path = tmp_path / f"图 {index}.png"
        Image.new("RGB", (20 + index % 3, 16), (index % 256, 80, 40)).save(path)
        paths.append(str(path))
    split = LabelledImages("val", tuple(paths), labels)
    confusion = confusion_matrix(labels, predicted, classes)
    metrics = {"top1": float((labels == predicted).mean()), "top5": 1.0, "mean_class_accuracy": 0.5}
    probability = np.where(predicted < 0, 0, 0.75).astype(np.float32)
    return ImageFolderData(split, split, names), ClassificationResult(
        metrics, len(labels), confusion, predicted, probability, 1.0
    )


def test_saved_files_hold_every_count(tmp_path):
    data, result = results(tmp_path, 4)
    report = ClassificationReport(data.class_names, tmp_path / "plots")
    files = report.save(data.val, data, result, tmp_path / "run")
    assert [path.name for path in files] == ["predictions.csv", "confusion_matrix.csv", "confusion_matrix.png"]
    with files[0].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == [data.class_names[label] for label in data.val.labels]
    assert rows[1]["predicted"] == NOT_FINITE and rows[2]["probability"] == "0.750000"
    with files[1].open(encoding="utf-8") as file:
        header, *matrix = list(csv.reader(file))
    assert header[1:] == [*data.class_names, NOT_FINITE]
    np.testing.assert_array_equal([[int(cell) for cell in row[1:]] for row in matrix], result.confusion)


@pytest.mark.parametrize("classes", [2, 12, 60])
def test_pictures_are_written(tmp_path, classes):
    data, result = results(tmp_path, classes)
    report = ClassificationReport(data.class_names, tmp_path)
    for path in (report.confusion(result), report.predictions(data.val, result)):
        with Image.open(path) as picture:
            assert min(picture.size) > 100


@pytest.mark.parametrize("kind", ["bytes", "host", "mixed"])
def test_first_batch_is_drawn_whatever_its_columns(tmp_path, kind):
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    labels = np.array([0, 1, 2, 3], np.int32)
    if kind == "host":
        images = (images.transpose(0, 3, 1, 2) / 100 - 1).astype(np.float32)
    if kind == "mixed":
        labels = np.eye(4, dtype=np.float32)[labels] * 0.7 + 0.075
    report = ClassificationReport(("a", "b", "c", "d"), tmp_path)
    assert report.first_batch({"images": images, "labels": labels}).is_file()


def test_table_has_a_row_per_class_and_of_many_the_worst(tmp_path):
    for classes, rows in ((4, 5), (60, 51)):
        data, result = results(tmp_path, classes)
        table = ClassificationReport(data.class_names, tmp_path).table(result)
        assert table.row_count == rows
        console = Console(width=120)
        with console.capture() as capture:
            console.print(table)
        assert "[b]类 1" in capture.get()
