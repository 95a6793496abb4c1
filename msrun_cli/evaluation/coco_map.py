"""COCO mean average precision, computed by pycocotools.

pycocotools gets ids of our own (image = position of the record, category = class index, annotations counted from 1): it
takes the annotation id 0 for "not matched", needs numbers for image ids and mixes up annotations that share an id.
The ids of the annotation file are mapped once on the way in, and back in `save_detections`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from msrun_cli.common.files import atomic_path
from msrun_cli.data.record_table import RecordTable
from msrun_cli.evaluation.annotation_file import AnnotationFile
from msrun_cli.evaluation.detections import Detections

if TYPE_CHECKING:
    from msrun_cli.data.records import DetectionData, Split

_LOG = logging.getLogger("msrun")
_MAX_DETECTIONS = 100  # an image and class, as COCO defines its AP
_IOU_50, _IOU_75 = 0, 5  # positions in pycocotools' thresholds 0.50, 0.55, ... 0.95


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Figures of one class, 0..1; None where there is no ground truth to measure against.

    images, boxes: how many images hold the class and how many boxes it has, crowds left out.
    precision, recall: at IoU 0.5 and the score threshold of the best F1.
    """

    name: str
    images: int
    boxes: int
    precision: float | None
    recall: float | None
    ap50: float | None
    ap50_95: float | None


@dataclass(frozen=True, slots=True)
class Score:
    """metrics: map50_95, map50 and map75, 0..1, means over the classes that have ground truth."""

    metrics: dict[str, float]
    per_class: list[ClassRow]


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The truth of a split. `annotations` are COCO dictionaries with our own ids."""

    class_names: tuple[str, ...]
    image_count: int
    annotations: list[dict[str, Any]]


def ground_truth(split: Split, data: DetectionData) -> GroundTruth:
    """The truth of the split.

    A reader's table has the boxes of its annotation file as they stand there. Other records (of another reader, against
    a COCO file) take them from the split's annotation file, or have them themselves when there is none.
    Raises DataError when the file cannot be read or does not belong to the records.
    """
    if isinstance(split.records, RecordTable):
        annotations = list(_from_table(split.records))
    elif split.annotation_file is None:
        annotations = list(_from_records(split))
    else:
        annotations = list(_from_file(split, split.annotation_file, data))
    for number, annotation in enumerate(annotations, start=1):
        annotation["id"] = number
    return GroundTruth(tuple(data.class_names), len(split.records), annotations)


def score(truth: GroundTruth, detections: Sequence[Detections | None]) -> Score:
    """Compare detections with the truth; both are in the order of the split's records.

    Images whose detections are None were not looked at and do not count.
    """
    seen = [position for position, found in enumerate(detections) if found is not None]
    annotations = [annotation for annotation in truth.annotations if detections[annotation["image_id"]] is not None]
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports by print
        evaluation = COCOeval(_coco(truth, annotations), _coco(truth, list(_results(detections))), "bbox")
        evaluation.params.imgIds = seen
        evaluation.params.areaRng, evaluation.params.areaRngLbl = evaluation.params.areaRng[:1], ["all"]
        evaluation.params.maxDets = [_MAX_DETECTIONS]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, 0]  # (IoU thresholds, recalls 0..1, classes)
    per_class = _class_rows(truth.class_names, annotations, precision, evaluation.params.recThrs)
    if not any(row.boxes for row in per_class):
        _LOG.warning("evaluation: the images hold no boxes to compare with, so all metrics are 0")
    metrics = {
        "map50_95": _mean(precision) or 0.0,
        "map50": _mean(precision[_IOU_50]) or 0.0,
        "map75": _mean(precision[_IOU_75]) or 0.0,
    }
    return Score(metrics, per_class)


def save_detections(
    path: str | Path, detections: Sequence[Detections | None], split: Split, data: DetectionData
) -> None:
    """Write COCO's results format, a JSON list of {image_id, category_id, bbox [x, y, w, h], score}.

    The ids are those of the annotation file (or of the records when there is none), so any COCO tool can score it.
    """
    image_ids, category_ids = _public_ids(split, data)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write("[")
        separator = "\n"
        for result in _results(detections):
            row = {
                "image_id": image_ids[result["image_id"]],
                "category_id": category_ids[result["category_id"]],
                "bbox": [round(value, 3) for value in result["bbox"]],
                "score": round(result["score"], 6),
            }
            file.write(separator + json.dumps(row, ensure_ascii=False))
            separator = ",\n"
        file.write("\n]\n")


def _public_ids(split: Split, data: DetectionData) -> tuple[Sequence[int | str], Sequence[int]]:
    if isinstance(split.records, RecordTable):
        return [split.records.image_id(position) for position in range(len(split.records))], data.category_ids
    if split.annotation_file is None:
        return [record.image_id for record in split.records], data.category_ids
    file = AnnotationFile.read(split.annotation_file)
    return file.image_ids(split.records), file.category_ids(data.class_names, data.category_ids)


def _from_table(table: RecordTable) -> Iterable[dict[str, Any]]:
    boxes_xywh = table.source_xywh
    if boxes_xywh is None:
        corners = table.boxes_xyxy.astype(np.float64)
        boxes_xywh = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    columns = (table.record_of_box(), table.labels, boxes_xywh, table.iscrowd)
    return map(_annotation, *(column.tolist() for column in columns))


def _from_records(split: Split) -> Iterable[dict[str, Any]]:
    for position, record in enumerate(split.records):
        for box, label, crowd in zip(record.boxes_xyxy, record.labels, record.iscrowd, strict=True):
            x1, y1, x2, y2 = (float(value) for value in box)
            yield _annotation(position, int(label), [x1, y1, x2 - x1, y2 - y1], bool(crowd))


def _from_file(split: Split, path: str, data: DetectionData) -> Iterable[dict[str, Any]]:
    file = AnnotationFile.read(path)
    positions: dict[Any, int] = {image_id: position for position, image_id in enumerate(file.image_ids(split.records))}
    classes: dict[Any, int] = {
        category: index for index, category in enumerate(file.category_ids(data.class_names, data.category_ids))
    }
    broken = 0
    for annotation in file.annotations:
        position = positions.get(annotation.get("image_id"))
        label = classes.get(annotation.get("category_id"))
        if position is None or label is None:
            continue
        record = split.records[position]
        bbox = _usable_bbox(annotation.get("bbox"), record.width, record.height)
        if bbox is None:
            broken += 1
            continue
        yield _annotation(position, label, bbox, bool(annotation.get("iscrowd")))
    if broken:
        _LOG.debug("evaluation: %d broken boxes of %s left out of the ground truth", broken, path)


def _usable_bbox(bbox: Any, width: int, height: int) -> list[float] | None:
    """The box as floats; None when it is not four finite numbers or covers nothing of the image."""
    try:
        x, y, w, h = (float(value) for value in bbox)
    except (TypeError, ValueError):
        return None
    inside = x < width and y < height and x + w > 0 and y + h > 0
    # comparisons with NaN are false, an infinite side is caught by isfinite
    return [x, y, w, h] if w > 0 and h > 0 and inside and np.isfinite([x, y, w, h]).all() else None


def _annotation(position: int, label: int, bbox_xywh: list[float], crowd: bool) -> dict[str, Any]:
    return {
        "image_id": position,
        "category_id": label,
        "bbox": bbox_xywh,
        # only the range "all" is evaluated, so the area of a mask would make no difference
        "area": bbox_xywh[2] * bbox_xywh[3],
        "iscrowd": int(crowd),
    }


def _results(detections: Sequence[Detections | None]) -> Iterable[dict[str, Any]]:
    number = 0
    for position, found in enumerate(detections):
        if found is None:
            continue
        rows = zip(found.boxes_xyxy.tolist(), found.scores.tolist(), found.labels.tolist(), strict=True)
        for (x1, y1, x2, y2), value, label in rows:
            number += 1
            result = _annotation(position, label, [x1, y1, x2 - x1, y2 - y1], False)
            yield {**result, "id": number, "score": value}


def _coco(truth: GroundTruth, annotations: list[dict[str, Any]]) -> COCO:
    coco = COCO()
    coco.dataset = {
        "images": [{"id": position} for position in range(truth.image_count)],
        "categories": [{"id": index, "name": name} for index, name in enumerate(truth.class_names)],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco


def _class_rows(
    names: Sequence[str], annotations: Iterable[dict[str, Any]], precision: np.ndarray, recalls: np.ndarray
) -> list[ClassRow]:
    images_of: list[set[int]] = [set() for _ in names]
    boxes_of = [0] * len(names)
    for annotation in annotations:
        if not annotation["iscrowd"]:
            images_of[annotation["category_id"]].add(annotation["image_id"])
            boxes_of[annotation["category_id"]] += 1
    rows = []
    for index, name in enumerate(names):
        of_class = precision[:, :, index]
        best = _best_f1(of_class[_IOU_50], recalls)
        ap50, ap50_95 = _mean(of_class[_IOU_50]), _mean(of_class)
        rows.append(ClassRow(name, len(images_of[index]), boxes_of[index], *best, ap50, ap50_95))
    return rows


def _best_f1(precision: np.ndarray, recalls: np.ndarray) -> tuple[float | None, float | None]:
    """Precision and recall at the best F1 of an (interpolated) precision-recall curve."""
    if (precision < 0).any():
        return None, None
    f1 = 2 * precision * recalls / np.maximum(precision + recalls, 1e-12)
    best = int(f1.argmax())
    return float(precision[best]), float(recalls[best])


def _mean(precision: np.ndarray) -> float | None:
    """Mean over what was measured: pycocotools marks classes without ground truth by -1."""
    measured = precision[precision > -1]
    return float(measured.mean()) if measured.size else None
