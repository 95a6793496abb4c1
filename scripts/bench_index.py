#!/usr/bin/env python
"""Time and memory of indexing an annotation file of COCO's size: cold, and again from the label cache.

    python scripts/bench_index.py [--images 118000] [--boxes 860000]

Everything is made below a temporary folder and removed. The reading runs in fresh processes, without MindSpore. The
last line is JSON: cold_s, cached_s, peak_mib (resident, the larger of both processes), images, boxes, file_mib.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

CLASSES = 80

READ = """
import json, resource, sys, time
started = time.perf_counter()
from msrun_cli.data.coco import read_coco
imported = time.perf_counter()
data = read_coco(sys.argv[1])
seconds = time.perf_counter() - imported
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
records = data.train.records
boxes = sum(len(records[index].labels) for index in range(len(records)))
print(json.dumps({"s": seconds, "peak_mib": peak, "images": len(records), "boxes": boxes, "notes": data.notes}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=118_000)
    parser.add_argument("--boxes", type=int, default=860_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="msrun-bench-index-") as name:
        root = Path(name) / "data"
        file = write_dataset(root, options.images, options.boxes)
        environment = {**os.environ, "MSRUN_CACHE_DIR": str(Path(name) / "cache")}
        runs = [read(root, environment) for _ in range(2)]
        size = file.stat().st_size / 2**20
    if runs[0]["notes"] != runs[1]["notes"]:
        raise SystemExit(f"the cached index says something else: {runs[0]['notes']} and {runs[1]['notes']}")
    result = {
        "cold_s": round(runs[0]["s"], 2),
        "cached_s": round(runs[1]["s"], 2),
        "peak_mib": round(max(run["peak_mib"] for run in runs), 1),
        "images": runs[0]["images"],
        "boxes": runs[0]["boxes"],
        "file_mib": round(size, 1),
    }
    print(json.dumps(result))


def read(root: Path, environment: dict[str, str]) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(root)], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def write_dataset(root: Path, images: int, boxes: int) -> Path:
    """COCO's keys and sizes, with random boxes; the image files are empty, since nobody opens them here."""
    rng = random.Random(0)
    folder = root / "train2017"
    folder.mkdir(parents=True)
    path = root / "annotations" / "instances_train2017.json"
    path.parent.mkdir()
    with path.open("w", encoding="utf-8") as file:
        file.write('{"info": {"year": 2017}, "licenses": [], "images": [')
        for number in range(images):
            name = f"{number:012d}.jpg"
            (folder / name).touch()
            entry = {"license": 3, "file_name": name, "coco_url": f"http://images.cocodataset.org/train2017/{name}"}
            entry |= {"height": 480, "width": 640, "date_captured": "2013-11-14 11:18:45", "id": number}
            file.write((", " if number else "") + json.dumps(entry))
        file.write('], "annotations": [')
        for number in range(boxes):
            file.write((", " if number else "") + json.dumps(annotation(rng, number, images)))
        categories = [
            {"supercategory": "thing", "id": index, "name": f"class {index}"} for index in range(1, CLASSES + 1)
        ]
        file.write(f'], "categories": {json.dumps(categories)}}}')
    return path


def annotation(rng: random.Random, number: int, images: int) -> dict:
    x, y = round(rng.uniform(0, 500), 2), round(rng.uniform(0, 400), 2)
    width, height = round(rng.uniform(5, 130), 2), round(rng.uniform(5, 75), 2)
    outline = [x, y, x + width, y, x + width, round(y + height, 2), x, round(y + height, 2)]
    return {
        "segmentation": [outline],
        "area": round(width * height, 4),
        "iscrowd": int(number % 100 == 0),
        "image_id": rng.randrange(images),
        "bbox": [x, y, width, height],
        "category_id": rng.randint(1, CLASSES),
        "id": number + 1,
    }


if __name__ == "__main__":
    main()
