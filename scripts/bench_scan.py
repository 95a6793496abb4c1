"""Time the scan of image files without decoding: files per second with 1, 2 and the default number of threads.

    python scripts/bench_scan.py                 # 118 287 links (as many as COCO train2017) to 64 generated JPEGs
    python scripts/bench_scan.py --files 10000

The files are in the page cache, as after a first epoch; a first look is bound by the disk. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from msrun_cli.data.doctor.checked import paths_view
from msrun_cli.data.scan import scan_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=118_287)
    wanted = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        records = paths_view("files", linked_files(Path(folder), wanted)).records
        seconds = {}
        for name, workers in (("1", 1), ("2", 2), ("default", None)):
            started = time.perf_counter()
            assert scan_images(records, workers=workers) == []
            seconds[name] = round(time.perf_counter() - started, 2)
            print(f"{name} threads: {seconds[name]:.2f} s, {wanted / seconds[name]:.0f} files/s")
    print(json.dumps({"files": wanted, "seconds": seconds}))


def linked_files(folder: Path, count: int, different: int = 64) -> list[str]:
    """`count` names for `different` JPEGs of 640x480 pixels, about 120 kB each."""
    rng = np.random.default_rng(0)
    for number in range(min(different, count)):
        picture = cv2.resize(rng.integers(0, 256, (120, 160, 3), np.uint8), (640, 480))
        cv2.imwrite(str(folder / f"{number}.jpg"), picture)
    paths = [str(folder / f"{number}.jpg") for number in range(count)]
    for number in range(different, count):
        os.link(paths[number % different], paths[number])
    return paths


if __name__ == "__main__":
    main()
