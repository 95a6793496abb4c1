"""The losses of a training step in PyTorch, for `bench_torch.py`: the same terms as `msrun_cli.losses`, as PyTorch does
them best, that is with only as many candidates as matched.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
STRIDES, BALANCE, THRESHOLD = (8, 16, 32), (4.0, 1.0, 0.4), 4.0


def random_boxes(images: int, per_image: int, classes: int) -> Tensor:
    """float32 (images * per_image, 6): image, class, cx, cy, w, h in 0..1."""
    count = images * per_image
    image = torch.arange(images).repeat_interleave(per_image)
    places, sizes = torch.rand(count, 2) * 0.6 + 0.2, torch.rand(count, 2) * 0.35 + 0.05
    return torch.cat((image[:, None], torch.randint(classes, (count, 1)), places, sizes), 1)


def detection_loss(outputs: list[Tensor], boxes: Tensor) -> Tensor:
    """outputs: of each level (B, A * (5 + C), H, W); gains of 640 px and 80 classes."""
    box, objectness, classes = (outputs[0].new_zeros(()) for _ in range(3))
    for level, output in enumerate(outputs):
        batch, _, height, width = output.shape
        raw = output.view(batch, 3, -1, height, width).permute(0, 1, 3, 4, 2).contiguous()
        anchors = output.new_tensor(ANCHORS[level]) / STRIDES[level]
        place, inside, sizes, chosen_anchors, labels = candidates(boxes, anchors, width, height)
        target = torch.zeros_like(raw[..., 0])
        if len(labels):
            chosen = raw[place]
            scores = chosen[:, :4].sigmoid()
            iou = complete_iou(scores[:, :2] * 2 - 0.5, (scores[:, 2:] * 2).square() * chosen_anchors, inside, sizes)
            box = box + (1 - iou).mean()
            target[place] = iou.detach().clamp(min=0)
            wanted = functional.one_hot(labels, chosen.shape[1] - 5).to(chosen.dtype)
            classes = classes + functional.binary_cross_entropy_with_logits(chosen[:, 5:], wanted)
        loss = functional.binary_cross_entropy_with_logits(raw[..., 4], target)
        objectness = objectness + BALANCE[level] * loss
    return (0.05 * box + objectness + 0.5 * classes) * outputs[0].shape[0]


def candidates(boxes: Tensor, anchors: Tensor, width: int, height: int):
    """(image, anchor, row, column), centre within the cell, size, anchor (all in cells) and class of each match."""
    grid = boxes.new_tensor([width, height])
    xy, wh = boxes[:, 2:4] * grid, boxes[:, 4:6] * grid
    ratio = wh[None] / anchors[:, None]
    anchor, row = (torch.maximum(ratio, 1 / ratio).amax(2) < THRESHOLD).nonzero(as_tuple=True)
    xy, wh, image, labels = xy[row], wh[row], boxes[row, 0].long(), boxes[row, 1].long()
    mirrored = grid - xy
    low = (xy % 1 < 0.5) & (xy > 1)
    high = (mirrored % 1 < 0.5) & (mirrored > 1)
    given = torch.stack((torch.ones_like(low[:, 0]), low[:, 0], low[:, 1], high[:, 0], high[:, 1]))
    offset, which = given.nonzero(as_tuple=True)
    shifts = xy.new_tensor([[0, 0], [0.5, 0], [0, 0.5], [-0.5, 0], [0, -0.5]])
    cells = (xy[which] - shifts[offset]).floor()
    column, line = cells[:, 0].long().clamp(0, width - 1), cells[:, 1].long().clamp(0, height - 1)
    inside = xy[which] - torch.stack((column, line), 1)
    return (image[which], anchor[which], line, column), inside, wh[which], anchors[anchor[which]], labels[which]


def complete_iou(center_a: Tensor, size_a: Tensor, center_b: Tensor, size_b: Tensor) -> Tensor:
    """CIoU (Zheng et al. 2020, eq. 9-12) of (K, 2) + (K, 2) -> (K,)."""
    low_a, high_a, low_b, high_b = (
        center_a - size_a / 2, center_a + size_a / 2, center_b - size_b / 2, center_b + size_b / 2
    )  # fmt: skip
    overlap = (torch.minimum(high_a, high_b) - torch.maximum(low_a, low_b)).clamp(min=0).prod(1)
    iou = overlap / (size_a.prod(1) + size_b.prod(1) - overlap + 1e-7)
    diagonal = (torch.maximum(high_a, high_b) - torch.minimum(low_a, low_b)).square().sum(1) + 1e-7
    distance = (center_b - center_a).square().sum(1)
    angle = torch.atan(size_b[:, 0] / size_b[:, 1]) - torch.atan(size_a[:, 0] / size_a[:, 1])
    aspect = angle.square() * (4 / math.pi**2)
    trade_off = (aspect / (aspect - iou + (1 + 1e-7))).detach()
    return iou - (distance / diagonal + aspect * trade_off)
