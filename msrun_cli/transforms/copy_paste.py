"""Paste objects of another picture (after Ghiasi et al., Simple Copy-Paste, arXiv:2012.07177), by their boxes."""

from __future__ import annotations

import numpy as np

from msrun_cli.transforms.letterbox import square
from msrun_cli.transforms.sample import Context, Sample


class CopyPaste:
    """With `probability` objects of another picture are pasted where they are there.

    The paper cuts objects out along their masks. Detection data has none, so the whole rectangle of a box is copied,
    its background included. The other picture is a random record after all the steps before this one. Each of its
    boxes is taken with `share`, mirrored left and right (its place too) in half of the pictures, and left out where it
    would hide more than `max_hidden` of a box that is there already; so no label loses its object.

    probability: 0..1; 0 = off
    share: 0..1, of the other picture's boxes
    max_hidden: 0..1, of the area of a box below the pasted one
    """

    def __init__(self, *, probability: float = 0.1, share: float = 0.5, max_hidden: float = 0.3) -> None:
        self.probability = probability
        self.share = share
        self.max_hidden = max_hidden

    @property
    def merges(self) -> int:
        return 2 if self.probability > 0 else 1

    def __call__(self, sample: Sample, context: Context) -> Sample:
        rng, size = context.rng, context.image_size
        if self.probability <= 0 or rng.random() >= self.probability:
            return sample
        sample, other = square(sample, size), square(context.another(), size)
        mirrored = rng.random() < 0.5
        taken = np.flatnonzero(rng.random(len(other.boxes_xyxy)) < self.share)
        source = other.image[:, ::-1] if mirrored else other.image
        offered = other.boxes_xyxy[taken]
        if mirrored:
            offered = np.stack([size - offered[:, 2], offered[:, 1], size - offered[:, 0], offered[:, 3]], axis=1)
        image, boxes_xyxy, labels = sample.own_image(context.out), sample.boxes_xyxy, sample.labels
        for box, label in zip(offered, other.labels[taken], strict=True):
            if (hidden_parts(boxes_xyxy, box) > self.max_hidden).any():
                continue
            left, top = np.floor(box[:2]).astype(int)
            right, bottom = np.ceil(box[2:]).astype(int)
            image[top:bottom, left:right] = source[top:bottom, left:right]
            boxes_xyxy = np.concatenate([boxes_xyxy, box[None]])
            labels = np.append(labels, label)
        return Sample(image, boxes_xyxy, labels)


def hidden_parts(boxes_xyxy: np.ndarray, box: np.ndarray) -> np.ndarray:
    """(N,) in 0..1: which part of each box lies under `box` (4,)."""
    low, high = np.maximum(boxes_xyxy[:, :2], box[:2]), np.minimum(boxes_xyxy[:, 2:], box[2:])
    common = np.clip(high - low, 0, None).prod(axis=1)
    return common / np.maximum((boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]).prod(axis=1), 1e-9)
