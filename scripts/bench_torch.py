#!/usr/bin/env python
"""The same work in PyTorch, to compare with: run it with a Python that has PyTorch. Nothing else here needs it.

    PYTHON scripts/bench_torch.py --what forward --model yolov5n --batch-size 16 --image-size 640
    PYTHON scripts/bench_torch.py --what step --model yolov5n --batch-size 8 --image-size 320
    PYTHON scripts/bench_torch.py --what step --model resnet50 --batch-size 8 --image-size 224

forward: evaluation, BatchNorm folded into the convolutions. step: what `bench_step.py` does: forward from pixels of 8
bits, loss, gradient, clipping, SGD with momentum in two groups, moving average.
The last line is JSON: ms (median per batch), ms_per_image, torch.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_loss import detection_loss, random_boxes


def conv_block(
    channels_in: int, channels: int, kernel: int = 1, stride: int = 1, padding: int | None = None
) -> nn.Module:
    padding = kernel // 2 if padding is None else padding
    convolution = nn.Conv2d(channels_in, channels, kernel, stride, padding, bias=FOLDED)
    return nn.Sequential(convolution, *norms(channels), nn.SiLU(inplace=True))


def norms(channels: int) -> list[nn.Module]:
    return [] if FOLDED else [nn.BatchNorm2d(channels)]


FOLDED = False  # set once by main, before a network is made


class Residual(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_block(channels, channels), conv_block(channels, channels, 3))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


class CrossStage(nn.Module):
    def __init__(self, channels_in: int, channels: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        half = channels // 2
        self.deep = nn.Sequential(conv_block(channels_in, half), *(Residual(half, shortcut) for _ in range(depth)))
        self.flat = conv_block(channels_in, half)
        self.join = conv_block(2 * half, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat((self.deep(x), self.flat(x)), 1))


class Pyramid(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = conv_block(channels, channels // 2), conv_block(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.first(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.last(torch.cat(maps, 1))


class YOLOv5n(nn.Module):
    """The layers of msrun_cli.models.yolov5 at width 0.25 and depth 0.33, 80 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.to8 = nn.Sequential(
            conv_block(3, 16, 6, 2, 2), conv_block(16, 32, 3, 2), CrossStage(32, 32, 1),
            conv_block(32, 64, 3, 2), CrossStage(64, 64, 2),
        )  # fmt: skip
        self.to16 = nn.Sequential(conv_block(64, 128, 3, 2), CrossStage(128, 128, 3))
        self.to32 = nn.Sequential(
            conv_block(128, 256, 3, 2), CrossStage(256, 256, 1), Pyramid(256), conv_block(256, 128)
        )
        self.up = nn.Upsample(scale_factor=2)
        self.middle = nn.Sequential(CrossStage(256, 128, 1, False), conv_block(128, 64))
        self.out8 = CrossStage(128, 64, 1, False)
        self.down8, self.out16 = conv_block(64, 64, 3, 2), CrossStage(128, 128, 1, False)
        self.down16, self.out32 = conv_block(128, 128, 3, 2), CrossStage(256, 256, 1, False)
        self.heads = nn.ModuleList([nn.Conv2d(channels, 255, 1) for channels in (64, 128, 256)])

    def forward(self, x: Tensor) -> list[Tensor]:
        level8 = self.to8(x)
        level16 = self.to16(level8)
        top = self.to32(level16)
        middle = self.middle(torch.cat((self.up(top), level16), 1))
        maps = [self.out8(torch.cat((self.up(middle), level8), 1))]
        maps.append(self.out16(torch.cat((self.down8(maps[0]), middle), 1)))
        maps.append(self.out32(torch.cat((self.down16(maps[1]), top), 1)))
        return [head(found) for head, found in zip(self.heads, maps, strict=True)]


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=FOLDED), *norms(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride, 1, bias=FOLDED), *norms(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, 4 * channels, 1, bias=FOLDED), *norms(4 * channels),
        )  # fmt: skip
        same = stride == 1 and channels_in == 4 * channels
        projection = nn.Conv2d(channels_in, 4 * channels, 1, stride, bias=FOLDED)
        self.shortcut = nn.Identity() if same else nn.Sequential(projection, *norms(4 * channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    def __init__(self) -> None:
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=FOLDED), *norms(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        blocks, channels_in = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for index in range(count):
                blocks.append(Bottleneck(channels_in, 64 << stage, 2 if stage and index == 0 else 1))
                channels_in = 4 * (64 << stage)
        super().__init__(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


NETWORKS = {"yolov5n": YOLOv5n, "resnet50": ResNet50}


def main() -> None:
    global FOLDED
    options = parse()
    FOLDED = options.what == "forward"
    torch.manual_seed(0)
    network = NETWORKS[options.model]()
    size = options.image_size
    run = evaluation(network, torch.rand(options.batch_size, 3, size, size)) if FOLDED else training(network, options)
    for _ in range(3):
        run()
    seconds = []
    for _ in range(options.passes):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    median = 1000 * statistics.median(seconds)
    per_image = round(median / options.batch_size, 2)
    settings = {name: getattr(options, name) for name in ("what", "model", "batch_size", "image_size")}
    print(json.dumps({"ms": round(median, 1), "ms_per_image": per_image, **settings, "torch": torch.__version__}))


def evaluation(network: nn.Module, images: Tensor):
    network.eval()

    def run() -> None:
        with torch.inference_mode():
            network(images)

    return run


def training(network: nn.Module, options: argparse.Namespace) -> Callable[[], None]:
    batch, size = options.batch_size, options.image_size
    pixels = torch.randint(256, (batch, size, size, 3), dtype=torch.uint8)
    average = copy.deepcopy(network).eval()
    optimizer = torch.optim.SGD(groups(network), lr=1e-4, momentum=0.9, nesterov=True)
    if isinstance(network, YOLOv5n):
        targets, loss = random_boxes(batch, options.boxes, 80), detection_loss
    else:
        targets, loss = torch.randint(1000, (batch,)), functional.cross_entropy

    def run() -> None:
        optimizer.zero_grad()
        images = pixels.permute(0, 3, 1, 2).contiguous().float() / 255
        loss(network(images), targets).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
        follow(average, network)

    return run


def groups(network: nn.Module) -> list[dict]:
    """Weight decay for the kernels alone."""
    kernels = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in network.parameters() if parameter.ndim == 1]
    return [{"params": kernels, "weight_decay": 5e-4}, {"params": vectors, "weight_decay": 0.0}]


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module) -> None:
    values = [value for value in network.state_dict().values() if value.is_floating_point()]
    averages = [value for value in average.state_dict().values() if value.is_floating_point()]
    torch._foreach_lerp_(averages, values, 1e-3)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=("forward", "step"), default="forward")
    parser.add_argument("--model", choices=tuple(NETWORKS), default="yolov5n")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--boxes", type=int, default=8, help="in each image")
    parser.add_argument("--passes", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
