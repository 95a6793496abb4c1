#!/usr/bin/env python
"""Time of whole training steps (forward, loss, gradient, clipping, optimizer, moving average) on a constant batch.

    python scripts/bench_step.py --model yolov5n --batch-size 8 --image-size 320 [--amp O0] [--mode graph] [--steps 20]
    python scripts/bench_step.py --model resnet50 --batch-size 16 --image-size 224 [--classes 1000]

The last line is JSON: compile_s, step_ms (median), images_per_s, peak_mib (resident memory of the process).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time

from msrun_cli.runtime.process import prepare_process


def main() -> None:
    options = parse()
    prepare_process()  # before mindspore is imported
    import mindspore as ms
    import numpy as np

    from msrun_cli.config.composer import Composer

    cfg = Composer("train", None).compose([f"model={options.model}"])
    is_detector = cfg.model.task == "detection"
    overrides = [
        *([] if is_detector else ["dataset=imagefolder", "dataset.root=."]),
        f"model={options.model}",
        f"amp={options.amp}",
        f"batch_size={options.batch_size}",
        f"image_size={options.image_size}",
    ]
    cfg = Composer("train", None).compose(overrides)
    ms.set_context(mode=ms.GRAPH_MODE if options.mode == "graph" else ms.PYNATIVE_MODE)

    from msrun_cli.builders.data import build_task
    from msrun_cli.builders.network import build_network
    from msrun_cli.builders.training import build_training
    from msrun_cli.kernels.library import kernel_library
    from msrun_cli.runtime.context import Device

    data = empty_data(options.classes, is_detector)
    task = build_task(cfg, data, Device("CPU", graph=True, sink=False, sink_size=-1, dvpp=False))
    network = build_network(cfg, data.class_names)
    library = kernel_library(options.kernels)
    step = build_training(cfg, task, network, steps_per_epoch=1000, kernels=library).step
    step.set_train(True)
    targets = boxes(np, options) if is_detector else labels(np, options)
    batch = [ms.Tensor(array) for array in (images(np, options), targets)]

    started = time.perf_counter()
    step(*batch)[0].asnumpy()
    compile_s = time.perf_counter() - started
    step(*batch)[0].asnumpy()  # the second step still allocates
    milliseconds = []
    for _ in range(options.steps):
        started = time.perf_counter()
        step(*batch)[0].asnumpy()
        milliseconds.append(1000 * (time.perf_counter() - started))
    median = statistics.median(milliseconds)
    result = {
        "model": options.model,
        "amp": options.amp,
        "mode": options.mode,
        "batch_size": options.batch_size,
        "image_size": options.image_size,
        "compile_s": round(compile_s, 2),
        "step_ms": round(median, 1),
        "step_ms_min": round(min(milliseconds), 1),
        "images_per_s": round(1000 * options.batch_size / median, 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="yolov5n")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--boxes", type=int, default=32, help="rows of the target array, a quarter of them filled")
    parser.add_argument("--amp", default="O0")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    parser.add_argument("--kernels", choices=("auto", "on", "off"), default="auto", help="as device.kernels")
    parser.add_argument("--steps", type=int, default=20, help="timed steps, at least 10")
    options = parser.parse_args()
    options.steps = max(10, options.steps)
    return options


def empty_data(classes: int, is_detector: bool):
    """Data that only tells the names of its classes."""
    from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
    from msrun_cli.data.records import DetectionData, Split

    names = tuple(f"class {index}" for index in range(classes))
    if is_detector:
        nothing = Split("train", (), None)
        return DetectionData(nothing, nothing, names, tuple(range(classes)), ())
    return ImageFolderData(LabelledImages("train"), LabelledImages("val"), names)


def images(np, options: argparse.Namespace):
    """uint8 (B, S, S, 3)."""
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def labels(np, options: argparse.Namespace):
    """int32 (B,)."""
    return np.random.default_rng(1).integers(options.classes, size=options.batch_size).astype(np.int32)


def boxes(np, options: argparse.Namespace):
    """float32 (B, M, 5)."""
    rng, count = np.random.default_rng(1), options.batch_size
    targets = np.full((count, options.boxes, 5), -1, np.float32)
    filled = max(1, options.boxes // 4)
    targets[:, :filled, 0] = rng.integers(options.classes, size=(count, filled))
    targets[:, :filled, 1:3] = rng.uniform(0.2, 0.8, (count, filled, 2))
    targets[:, :filled, 3:5] = rng.uniform(0.05, 0.4, (count, filled, 2))
    return targets


if __name__ == "__main__":
    main()
