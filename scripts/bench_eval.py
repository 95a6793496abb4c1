#!/usr/bin/env python
"""Where the time of an evaluation goes, per image.

    python scripts/bench_eval.py --root path/to/coco128 --weights yolov5n.pt [--batch-size 16] [--image-size 640]
        [--torch PYTHON] [OVERRIDES]...

The last line is JSON: forward_ms (network and decoder, BatchNorm folded), plain_forward_ms (not folded),
largest_difference of the two as a part of the largest output, decode_ms (reading, decoding, letterbox, with the readers
that the configuration says), nms_ms (median over the images) and nms_ms_mean, nms_is_exact (the limit on candidates
changes nothing in the first batch), score_ms (pycocotools). Times of forward
passes are medians per image. `--torch` is a Python with PyTorch: torch_forward_ms is what it takes for the same network
with the same folding (scripts/bench_torch.py), measured right before and after, and ratio = forward_ms / that.
Overrides are those of `msrun eval`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from msrun_cli.runtime.process import prepare_process

PASSES = 6


def main() -> None:
    options = parse()
    prepare_process()  # before mindspore is imported
    import mindspore as ms
    import numpy as np

    from msrun_cli.builders.data import build_data, build_task
    from msrun_cli.builders.network import build_network, load_weights
    from msrun_cli.builders.nodes import instantiate
    from msrun_cli.config.composer import Composer
    from msrun_cli.engine.predictor import Predictor
    from msrun_cli.evaluation.coco_map import ground_truth, score
    from msrun_cli.models.folding import Folding
    from msrun_cli.runtime.context import Device

    cfg = Composer("eval", None).compose(overrides_of(options))
    ms.set_context(mode=ms.GRAPH_MODE)
    data = build_data(cfg.dataset, splits=("val",))
    task = build_task(cfg, data, Device("CPU", graph=True, sink=False, sink_size=-1, dvpp=False))
    evaluator = instantiate(cfg.evaluator, _convert_="all")

    started = time.perf_counter()
    batches = list(task.eval_batches(data.val).create_dict_iterator(num_epochs=1, output_numpy=True))
    decode_s = time.perf_counter() - started

    network = build_network(cfg, data.class_names)
    if options.weights:
        load_weights(network, options.weights, strict=True)
    folded = build_network(cfg, data.class_names)
    Folding(network, folded).refresh()
    plain, quick = (Predictor(cell, task.decoder(cell), cfg.batch_size) for cell in (network, folded))

    torch_ms = [torch_forward(options)] if options.torch else []
    images = batches[0]["images"]
    wanted, found = plain(images), quick(images)
    times: dict[str, list[float]] = {"plain": [], "quick": []}
    for _ in range(PASSES):
        for name, predict in (("plain", plain), ("quick", quick)):
            started = time.perf_counter()
            predict(images)
            times[name].append((time.perf_counter() - started) / cfg.batch_size)
    if options.torch:
        torch_ms.append(torch_forward(options))

    nms, detections = [], [None] * len(data.val.records)
    for batch in batches:
        predictions = quick(batch["images"])
        for index, prediction, geometry in zip(batch["index"], predictions, batch["geometry"], strict=True):
            started = time.perf_counter()
            detections[index] = evaluator.detect(prediction, geometry)
            nms.append(time.perf_counter() - started)
    exact = is_exact(evaluator, found)
    truth = ground_truth(data.val, data)
    started = time.perf_counter()
    metrics = score(truth, detections).metrics
    score_s = time.perf_counter() - started

    count = len(nms)
    forward = 1000 * statistics.median(times["quick"])
    result = {
        "forward_ms": round(forward, 2),
        "plain_forward_ms": round(1000 * statistics.median(times["plain"]), 2),
        "largest_difference": float(f"{np.abs(found - wanted).max() / np.abs(wanted).max():.2g}"),
        "decode_ms": round(1000 * decode_s / count, 2),
        "nms_ms": round(1000 * statistics.median(nms), 2),
        "nms_is_exact": exact,
        "nms_ms_mean": round(1000 * statistics.mean(nms), 2),
        "score_ms": round(1000 * score_s / count, 2),
        "torch_forward_ms": torch_ms or None,
        "ratio": round(forward / statistics.mean(torch_ms), 3) if torch_ms else None,
        **{name: round(value, 4) for name, value in metrics.items()},
        "images": count,
        "batch_size": cfg.batch_size,
        "image_size": cfg.image_size,
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(result))


def is_exact(evaluator: Any, predictions: Any) -> bool:
    """Whether NMS over all candidates, however many, finds the same."""
    import numpy as np

    from msrun_cli.evaluation.nms import non_max_suppression

    names = ("confidence", "iou", "max_detections", "multi_label")
    settings = {name: getattr(evaluator, name) for name in names}
    for prediction in predictions:
        found = non_max_suppression(prediction, **settings)
        exact = non_max_suppression(prediction, **settings, max_candidates=prediction.size)
        if not all(np.array_equal(one, other) for one, other in zip(found, exact, strict=True)):
            return False
    return True


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="data in COCO's layout")
    parser.add_argument("--weights", help="of yolov5n")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("overrides", nargs="*", default=[])
    return parser.parse_args()


def overrides_of(options: argparse.Namespace) -> list[str]:
    return [
        "dataset=coco",
        f"dataset.root='{options.root}'",
        "model=yolov5n",
        f"image_size={options.image_size}",
        f"batch_size={options.batch_size}",
        *options.overrides,
    ]


def torch_forward(options: argparse.Namespace) -> float:
    """Milliseconds per image."""
    script = Path(__file__).with_name("bench_torch.py")
    sizes = ["--batch-size", str(options.batch_size), "--image-size", str(options.image_size)]
    command = [options.torch, str(script), "--what", "forward", *sizes]
    environment: dict[str, Any] = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{options.torch} cannot run {script.name}")
    return float(json.loads(done.stdout.splitlines()[-1])["ms_per_image"])


if __name__ == "__main__":
    main()
