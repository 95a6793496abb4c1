#!/usr/bin/env python
"""How cost grows: reading the labels from 1 000 to 118 000 images, a training step with the batch size.

    python scripts/bench_growth.py [--images 1000 10000 118000] [--batch-sizes 2 4 8 16] [--model yolov5n]
        [--image-size 320]

The last line is JSON: for each number of images index_us_per_image (cold), cached_us_per_image, peak_mib and, above the
smallest set, kib_per_image; for each batch size step_ms, ms_per_image and peak_mib; image_growth and batch_growth, the
largest cost per image over that of the smallest set or batch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BOXES_PER_IMAGE = 7.3  # of COCO


def main() -> None:
    options = parse()
    sets = [index(count) for count in sorted(options.images)]
    first = sets[0]
    for row in sets[1:]:
        more = row["images"] - first["images"]
        row["kib_per_image"] = round(1024 * (row["peak_mib"] - first["peak_mib"]) / more, 2)
    steps = [step(options, size) for size in sorted(options.batch_sizes)]
    result = {
        "sets": sets,
        "steps": steps,
        "image_growth": growth(sets, "index_us_per_image"),
        "batch_growth": growth(steps, "ms_per_image"),
        "model": options.model,
        "image_size": options.image_size,
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 10_000, 118_000])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--model", default="yolov5n")
    parser.add_argument("--image-size", type=int, default=320)
    return parser.parse_args()


def index(images: int) -> dict[str, Any]:
    found = run("bench_index.py", "--images", str(images), "--boxes", str(round(images * BOXES_PER_IMAGE)))
    return {
        "images": images,
        "index_us_per_image": round(1e6 * found["cold_s"] / images, 1),
        "cached_us_per_image": round(1e6 * found["cached_s"] / images, 1),
        "peak_mib": found["peak_mib"],
    }


def step(options: argparse.Namespace, batch_size: int) -> dict[str, Any]:
    sizes = ["--batch-size", str(batch_size), "--image-size", str(options.image_size)]
    found = run("bench_step.py", "--model", options.model, *sizes)
    milliseconds = found["step_ms"]
    return {
        "batch_size": batch_size,
        "step_ms": milliseconds,
        "ms_per_image": round(milliseconds / batch_size, 2),
        "peak_mib": found["peak_mib"],
    }


def growth(rows: list[dict[str, Any]], cost: str) -> float:
    return round(max(row[cost] for row in rows) / rows[0][cost], 3)


def run(script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
