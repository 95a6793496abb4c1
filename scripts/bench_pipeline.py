#!/usr/bin/env python
"""Images per second of the detection input pipeline, and where the time goes.

    python scripts/bench_pipeline.py --root DIR [--cache none|ram|disk] [--workers N|auto] [--image-size 640]
        [--batch-size 16] [--processes] [--eval] [--seconds 10] [OVERRIDES]...

DIR holds a data set in COCO's layout. A small one is repeated until it has --images records, each of them decoded on
its own, so that what is kept of one epoch does not help in the next unless --cache says so. With a cache, the figures
are those of later epochs, after everything was read once.

The last line is JSON: images_per_s (median of five runs), images_per_s_runs, cpu_ms_per_image (processor time of all
threads, which other programs on the machine hardly change; null with --processes), ms_per_stage (processor time of one
picture in one thread), workers, cache, ... Overrides are those of `msrun train`, for instance
train_transforms.mosaic.probability=0.5.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from typing import Any

from msrun_cli.runtime.process import prepare_process

RUNS = 5


def main() -> None:
    options = parse()
    prepare_process()  # before mindspore is imported
    from msrun_cli.builders.data import build_data, build_task
    from msrun_cli.config.composer import Composer
    from msrun_cli.data.records import DetectionData, Split
    from msrun_cli.runtime.context import Device

    cfg = Composer("train", None).compose(overrides_of(options))
    data: DetectionData = build_data(cfg.dataset)
    # With a cache the data set stays as it is: otherwise copies of one picture would be cached several times.
    times = 1 if options.cache != "none" else -(-options.images // len(data.train.records))
    split = Split("train", tuple(data.train.records) * times, data.train.annotation_file)
    data = replace(data, train=split, val=split)

    task = build_task(cfg, data, Device("CPU", graph=True, sink=False, sink_size=-1, dvpp=False))
    batches = task.eval_batches(data.val) if options.eval else task.train_batches()
    iterator = endless(batches, evaluation=options.eval)
    rows = 2 * len(batches.rows) if options.cache != "none" else 4
    for _ in range(rows):  # threads start, caches fill
        next(iterator)
    runs, cpu_ms = zip(*(timed(iterator, options.seconds / RUNS) for _ in range(RUNS)), strict=True)
    result: dict[str, Any] = {
        "images_per_s": round(statistics.median(runs), 1),
        "images_per_s_runs": [round(rate, 1) for rate in runs],
        "cpu_ms_per_image": None if batches.processes else round(statistics.median(cpu_ms), 2),
        "ms_per_stage": stages(batches, options),
        "workers": batches.readers,
        "processes": batches.processes,
        "cache": options.cache,
        "pipeline": "evaluation" if options.eval else "training",
        "image_size": options.image_size,
        "batch_size": options.batch_size,
        "records": len(split.records),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }
    for stage, milliseconds in result["ms_per_stage"].items():
        print(f"{stage:24s} {milliseconds:7.2f} ms")
    print(json.dumps(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--cache", choices=("none", "ram", "disk"), default="none")
    parser.add_argument("--workers", default="2", help="a number or auto")
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=2048, help="records in an epoch, at least")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--eval", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("overrides", nargs="*", default=[])
    return parser.parse_args()


def overrides_of(options: argparse.Namespace) -> list[str]:
    return [
        "dataset=coco",
        f"dataset.root='{options.root}'",
        f"image_size={options.image_size}",
        f"batch_size={options.batch_size}",
        f"dataset.workers={options.workers}",
        f"dataset.python_multiprocessing={options.processes}",
        f"dataset.cache={options.cache}",
        *options.overrides,
    ]


def endless(batches: Any, *, evaluation: bool) -> Any:
    """Batch after batch; the training's iterator passes the ends of epochs by itself."""
    while True:
        iterator = batches.create_tuple_iterator(num_epochs=1 if evaluation else 1_000_000, output_numpy=True)
        yield from iterator
        while not evaluation:
            yield from iterator


def timed(iterator: Any, seconds: float) -> tuple[float, float]:
    """(images per second, milliseconds of processor time per image)."""
    started, cpu, images = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds:
        images += len(next(iterator)[0])
    return images / (time.perf_counter() - started), (time.process_time() - cpu) / images * 1e3


def stages(batches: Any, options: argparse.Namespace) -> dict[str, float]:
    """See data.stage_times."""
    from msrun_cli.data.stage_times import stage_times

    time.sleep(1)  # readers fill the queue and rest
    count = len(batches.rows.samples.pictures.records)
    first = 0 if options.eval else 50 * count  # an epoch that nobody has read
    warm_up = min(128, count) // 4  # fills what is kept of neighbours
    times = stage_times(batches.rows, first, pictures=min(128, count) - warm_up, seconds=60, warm_up=warm_up)
    return {name: round(milliseconds, 3) for name, milliseconds in times.ms.items()}


if __name__ == "__main__":
    main()
