#!/usr/bin/env python
"""Time of whole training steps of MindYOLO, to compare with: run it with a Python that has MindYOLO. Nothing else here
needs it. The configuration is one of a checkout of MindYOLO.

    PYTHON scripts/bench_mindyolo.py --config configs/yolov5/yolov5n.yaml --batch-size 8 --image-size 320

Its own train step as it comes, compiled: forward, loss, gradient, clipping, optimizer, moving average; float32, on a
constant batch. The last line is JSON: compile_s, step_ms (median), mindyolo.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from importlib.metadata import version

STEPS_PER_EPOCH = 1000


def main() -> None:
    options = parse()
    # as `msrun train` sets it: without it a step takes 5 to 15 times as long on an AVX-512 processor
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    step = make_step(options)
    images, targets = batch(options)

    def run() -> float:
        started = time.perf_counter()
        step(images, targets)[0].asnumpy()
        return time.perf_counter() - started

    compile_s = run()
    run()  # the second step still allocates
    median = 1000 * statistics.median(run() for _ in range(options.steps))
    settings = {"batch_size": options.batch_size, "image_size": options.image_size}
    figures = {"compile_s": round(compile_s, 2), "step_ms": round(median, 1)}
    print(json.dumps({**figures, **settings, "mindyolo": version("mindyolo")}))


def make_step(options: argparse.Namespace):
    from mindyolo.models import create_loss, create_model
    from mindyolo.optim import EMA, create_group_param, create_optimizer
    from mindyolo.utils.config import Config, load_config
    from mindyolo.utils.train_step_factory import create_train_step_fn, get_gradreducer, get_loss_scaler

    cfg = Config(load_config(options.config)[0])
    made = [create_model("yolov5", cfg.network, num_classes=options.classes) for _ in range(2)]
    network, average = made[0].set_train(True), made[1]
    loss = create_loss(**cfg.loss, anchors=cfg.network.anchors, stride=cfg.network.stride, nc=options.classes)
    groups = create_group_param(
        params=network.trainable_params(), steps_per_epoch=STEPS_PER_EPOCH, epochs=3, accumulate=1,
        total_batch_size=options.batch_size, **cfg.optimizer,
    )  # fmt: skip
    optimizer = create_optimizer(
        params=groups, optimizer="momentum", lr=cfg.optimizer.lr_init, momentum=cfg.optimizer.momentum, nesterov=True
    )
    return create_train_step_fn(
        task="detect", network=network, loss_fn=loss, optimizer=optimizer, loss_ratio=1.0,
        scaler=get_loss_scaler("static", 1024), reducer=get_gradreducer(False, optimizer.parameters),
        ema=EMA(network, average), ms_jit=True, clip_grad=True,
    )  # fmt: skip


def batch(options: argparse.Namespace):
    """Images float32 (B, 3, S, S) in 0..1, targets float32 (B, M, 6): image, class, x, y, w, h; class -1 is no box."""
    import mindspore as ms
    import numpy as np

    rng, count, filled = np.random.default_rng(1), options.batch_size, max(1, options.boxes // 4)
    images = rng.random((count, 3, options.image_size, options.image_size), dtype=np.float32)
    targets = np.full((count, options.boxes, 6), -1, np.float32)
    targets[:, :, 0] = np.arange(count)[:, None]
    targets[:, :filled, 1] = rng.integers(options.classes, size=(count, filled))
    targets[:, :filled, 2:4] = rng.uniform(0.2, 0.8, (count, filled, 2))
    targets[:, :filled, 4:6] = rng.uniform(0.05, 0.4, (count, filled, 2))
    return ms.Tensor(images), ms.Tensor(targets)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="configs/yolov5/yolov5n.yaml of MindYOLO")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--boxes", type=int, default=32, help="rows of the target array, a quarter of them filled")
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
