"""`msrun eval` with the official YOLOv5n weights on coco128: the published metrics, from the same detections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.data


def evaluate(shared_data, folder, *words):
    command = [sys.executable, "-m", "msrun_cli", "eval", "model=yolov5n", "dataset=coco", "image_size=640"]
    inputs = [f"weights={shared_data / 'weights' / 'yolov5n.pt'}", f"dataset.root={shared_data / 'coco128'}"]
    done = subprocess.run(
        [*command, *inputs, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (folder / "outputs" / "eval").glob("*/*")
    return json.loads((run / "return_value.json").read_text()), json.loads((run / "detections.json").read_text())


def matched_share(found, reference, category_ids):
    """Share of the reference's detections that have one of ours of the same image and class with IoU > 0.95 and a score
    within 0.01.
    """
    ours = defaultdict(list)
    for item in found:
        ours[item["image_id"], item["category_id"]].append((*item["bbox"], item["score"]))
    matched = 0
    for image, label, box, score in zip(*reference, strict=True):
        rows = np.array(ours.get((int(image), category_ids[int(label)]), np.zeros((0, 5))))
        if len(rows):
            low = np.maximum(rows[:, :2], box[:2])
            high = np.minimum(rows[:, :2] + rows[:, 2:4], box[:2] + box[2:])
            intersection = np.prod(np.maximum(high - low, 0), axis=1)
            iou = intersection / (rows[:, 2] * rows[:, 3] + box[2] * box[3] - intersection + 1e-9)
            matched += bool(((iou > 0.95) & (np.abs(rows[:, 4] - score) < 0.01)).any())
    return matched / len(reference[0])


@pytest.fixture(scope="module")
def full_precision(shared_data, tmp_path_factory):
    return evaluate(shared_data, tmp_path_factory.mktemp("O0"), "amp=O0")


def test_published_metrics_from_matching_detections(shared_data, full_precision):
    value, found = full_precision
    assert value["map50_95"] == pytest.approx(0.359, abs=0.003)
    assert value["map50"] == pytest.approx(0.557, abs=0.003)
    with np.load(shared_data / "reference" / "coco128_640_detections.npz") as arrays:
        reference = [arrays[name] for name in ("image_id", "class_index", "bbox_xywh", "score")]
    annotations = json.loads((shared_data / "coco128" / "annotations" / "instances_train2017.json").read_text())
    category_ids = sorted(category["id"] for category in annotations["categories"])
    assert len(found) == pytest.approx(len(reference[0]), rel=0.01)
    assert matched_share(found, reference, category_ids) > 0.98


@pytest.mark.slow
def test_half_precision_keeps_the_metrics(shared_data, full_precision, tmp_path):
    expected, exact = full_precision
    value, found = evaluate(shared_data, tmp_path, "amp=O2")
    assert value["map50_95"] == pytest.approx(expected["map50_95"], abs=0.002)
    assert found != exact  # it was another precision
