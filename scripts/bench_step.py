#!/usr/bin/env python
"""Time of whole training steps (forward, loss, gradient, clipping, optimizer, moving average) on a constant batch.

    python scripts/bench_step.py --model yolov5n --batch-size 8 --image-size 320 [--amp O0] [--mode graph] [--steps 20]

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
    from msrun_cli.data.records import DetectionData, Split

    overrides = [
        f"model={options.model}",
        f"amp={options.amp}",
        f"batch_size={options.batch_size}",
        f"image_size={options.image_size}",
    ]
    cfg = Composer("train", None).compose(overrides)
    ms.set_context(mode=ms.GRAPH_MODE if options.mode == "graph" else ms.PYNATIVE_MODE)

    from msrun_cli import build

    nothing = Split("train", (), None)
    names = tuple(f"class {index}" for index in range(options.classes))
    data = DetectionData(nothing, nothing, names, tuple(range(options.classes)), ())
    network = build.build_network(cfg, data)
    step = build.build_training(cfg, data, network, steps_per_epoch=1000).step
    step.set_train(True)
    batch = [ms.Tensor(array) for array in constant_batch(np, options)]

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
    parser.add_argument("--steps", type=int, default=20, help="timed steps, at least 10")
    options = parser.parse_args()
    options.steps = max(10, options.steps)
    return options


def constant_batch(np, options: argparse.Namespace):
    """images uint8 (B, S, S, 3) and targets float32 (B, M, 5)."""
    rng = np.random.default_rng(0)
    size, count = options.image_size, options.batch_size
    targets = np.full((count, options.boxes, 5), -1, np.float32)
    filled = max(1, options.boxes // 4)
    targets[:, :filled, 0] = rng.integers(options.classes, size=(count, filled))
    targets[:, :filled, 1:3] = rng.uniform(0.2, 0.8, (count, filled, 2))
    targets[:, :filled, 3:5] = rng.uniform(0.05, 0.4, (count, filled, 2))
    return rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8), targets


if __name__ == "__main__":
    main()
