"""From predictions to COCO metrics: NMS, back to the original image, scoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msrun_cli.common.errors import ConfigError, DataError
from msrun_cli.evaluation.coco_map import ClassRow, GroundTruth, ground_truth, score
from msrun_cli.evaluation.detections import Detections
from msrun_cli.evaluation.nms import non_max_suppression

if TYPE_CHECKING:
    from msrun_cli.data.records import DetectionData, Split

Predict = Callable[[np.ndarray], np.ndarray]
Progress = Callable[[int, int], None]
Gather = Callable[[tuple[np.ndarray, ...]], list[tuple[np.ndarray, ...]]]


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """What an evaluation found.

    metrics: map50_95, map50, map75, 0..1.
    images: how many different images were evaluated.
    detections: aligned with split.records; None for an image that no batch held.
    predict_s, nms_s, score_s: seconds of the network (copies included), of NMS and un-letterboxing, of pycocotools.
    """

    metrics: dict[str, float]
    images: int
    per_class: list[ClassRow]
    detections: list[Detections | None]
    predict_s: float
    nms_s: float
    score_s: float

    @property
    def images_per_s(self) -> float:
        """Of the network and NMS."""
        return self.images / (self.predict_s + self.nms_s)


class DetectionEvaluator:
    """COCO evaluation of a detector.

    confidence: candidates need a score above it, 0..1. The low default is what AP wants; it is slow to look at.
    iou: IoU above which the better box of a class suppresses another, 0..1.
    max_detections: an image; COCO itself scores at most 100 a class of these.
    multi_label: a box may be a candidate of several classes.
    """

    def __init__(
        self, confidence: float = 0.001, iou: float = 0.6, max_detections: int = 300, multi_label: bool = True
    ) -> None:
        for name, value in (("confidence", confidence), ("iou", iou)):
            if not 0 <= value <= 1:
                raise ConfigError(f"evaluator.{name} is {value}; it must be in 0..1.")
        if max_detections < 1:
            raise ConfigError(f"evaluator.max_detections is {max_detections}; it must be at least 1.")
        self.confidence = confidence
        self.iou = iou
        self.max_detections = max_detections
        self.multi_label = multi_label
        self._truth: tuple[Split, GroundTruth] | None = None

    def __call__(
        self,
        predict: Predict,
        batches: Iterable[Mapping[str, np.ndarray]],
        split: Split,
        data: DetectionData,
        progress: Progress | None = None,
        gather: Gather | None = None,
    ) -> DetectionResult:
        """Evaluate the split's images that `batches` holds.

        predict: images uint8 (B, S, S, 3) -> float32 (B, N, 5 + num_classes), see `non_max_suppression`.
        batches: images uint8 (B, S, S, 3), index (B,) position in split.records, geometry float32 (B, 5)
            [scale, pad_x, pad_y, width, height]. The last batch may be smaller. An image that comes again (padding of
            shards) counts once; a negative index is padding.
        progress: called after each batch with the images done and the images in the split.
        gather: gives the arrays of all ranks, each of which evaluates a part of the images; None = there is one rank.

        Raises DataError when the network has another number of classes than the data.
        """
        detections: list[Detections | None] = [None] * len(split.records)
        predict_s = nms_s = 0.0
        for batch in batches:
            started = time.perf_counter()
            predictions = np.asarray(predict(batch["images"]))
            predicted = time.perf_counter()
            _check_classes(predictions, len(data.class_names))
            # a predictor with a fixed batch size may have padded the last batch
            predictions = predictions[: len(batch["index"])]
            for index, prediction, geometry in zip(batch["index"], predictions, batch["geometry"], strict=True):
                if index >= 0 and detections[index] is None:
                    detections[index] = self.detect(prediction, geometry)
            predict_s += predicted - started
            nms_s += time.perf_counter() - predicted
            if progress is not None:
                progress(sum(found is not None for found in detections), len(split.records))
        if gather is not None:
            detections, predict_s, nms_s = _merged(detections, predict_s, nms_s, gather)
        images = sum(found is not None for found in detections)
        started = time.perf_counter()
        result = score(self._ground_truth(split, data), detections)
        score_s = time.perf_counter() - started
        return DetectionResult(result.metrics, images, result.per_class, detections, predict_s, nms_s, score_s)

    def detect(self, prediction: np.ndarray, geometry: np.ndarray) -> Detections:
        """Detections in pixels of the original image from the prediction (N, 5 + num_classes) of one image."""
        boxes_xyxy, scores, labels = non_max_suppression(
            prediction,
            confidence=self.confidence,
            iou=self.iou,
            max_detections=self.max_detections,
            multi_label=self.multi_label,
        )
        return Detections(to_original(boxes_xyxy, geometry), scores, labels)

    def _ground_truth(self, split: Split, data: DetectionData) -> GroundTruth:
        # reading a large annotation file takes seconds, and training evaluates the same split every epoch
        if self._truth is None or self._truth[0] is not split:
            self._truth = (split, ground_truth(split, data))
        return self._truth[1]


def _merged(
    detections: list[Detections | None], predict_s: float, nms_s: float, gather: Gather
) -> tuple[list[Detections | None], float, float]:
    """What all ranks found, by the image's place in the split; the seconds are those of the slowest rank."""
    own = [(index, found) for index, found in enumerate(detections) if found is not None]
    arrays = (
        np.array([index for index, _ in own], np.int64),
        np.array([len(found.scores) for _, found in own], np.int64),
        np.concatenate([np.zeros((0, 4), np.float32), *(found.boxes_xyxy for _, found in own)]),
        np.concatenate([np.zeros(0, np.float32), *(found.scores for _, found in own)]),
        np.concatenate([np.zeros(0, np.int32), *(found.labels for _, found in own)]),
        np.array([predict_s, nms_s]),
    )
    merged: list[Detections | None] = [None] * len(detections)
    seconds = []
    for indices, counts, boxes_xyxy, scores, labels, spent in gather(arrays):
        ends = np.cumsum(counts)
        for index, start, end in zip(indices.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
            merged[index] = Detections(boxes_xyxy[start:end], scores[start:end], labels[start:end])
        seconds.append(spent)
    predict_s, nms_s = np.max(seconds, axis=0).tolist()
    return merged, predict_s, nms_s


def to_original(boxes_xyxy: np.ndarray, geometry: np.ndarray) -> np.ndarray:
    """Boxes (n, 4) from network pixels to pixels of the original image, clipped to it.

    geometry: scale, pad_x, pad_y, width, height with x_net = x_original * scale + pad_x.
    """
    scale, pad_x, pad_y, width, height = (np.float32(value) for value in geometry)
    pad = np.array([pad_x, pad_y, pad_x, pad_y], np.float32)
    limit = np.array([width, height, width, height], np.float32)
    return np.clip((boxes_xyxy - pad) / scale, 0, limit).astype(np.float32)


def _check_classes(predictions: np.ndarray, num_classes: int) -> None:
    if predictions.ndim != 3 or predictions.shape[2] != num_classes + 5:
        raise DataError(
            f"The network gives predictions of shape {predictions.shape}, but data with {num_classes} classes needs "
            f"(images, boxes, {num_classes + 5}). Use weights that were trained on this data's classes."
        )
