#!/usr/bin/env python
"""All benchmarks, one after the other: a table and one JSON file. `bash scripts/bench.sh` calls it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from msrun_cli.common.files import write_json

SCRIPTS = Path(__file__).parent
ROUNDS = 3


def main() -> None:
    options = parse()
    coco = options.data / "coco128"
    if not coco.is_dir():
        raise SystemExit(f"{coco} is missing: --data must hold coco128 in COCO's layout")
    found: dict[str, Any] = {"machine": machine()}
    for name, command in commands(options, coco).items():
        found[name] = run(name, command)
        write_json(options.file, found)
    for name, rivals in steps(options).items():
        found[name] = in_turns(rivals)
        write_json(options.file, found)
    found["start_s"] = starts()
    write_json(options.file, found)
    show(found)
    print(f"written: {options.file}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with coco128")
    parser.add_argument("--file", type=Path, default=Path("bench.json"))
    parser.add_argument("--weights", help="yolov5n.pt")
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--mindyolo", help="a Python with MindYOLO")
    parser.add_argument("--mindyolo-config", help="configs/yolov5/yolov5n.yaml of MindYOLO")
    options = parser.parse_args()
    if bool(options.mindyolo) != bool(options.mindyolo_config):
        parser.error("--mindyolo and --mindyolo-config belong together")
    return options


def commands(options: argparse.Namespace, coco: Path) -> dict[str, list[str]]:
    pipeline = ["bench_pipeline.py", "--root", str(coco)]
    weights = ["--weights", options.weights] if options.weights else []
    other = ["--torch", options.torch] if options.torch else []
    listed = {
        "pipeline": pipeline,
        "pipeline, cache=ram": [*pipeline, "--cache", "ram"],
        "pipeline, evaluation": [*pipeline, "--eval"],
        "index": ["bench_index.py"],
        "scan": ["bench_scan.py"],
        "loop": ["bench_loop.py"],
        "evaluation": ["bench_eval.py", "--root", str(coco), *weights, *other],
        "memory": ["bench_memory.py"],
        "growth": ["bench_growth.py"],
    }
    return {name: [sys.executable, str(SCRIPTS / parts[0]), *parts[1:]] for name, parts in listed.items()}


def steps(options: argparse.Namespace) -> dict[str, dict[str, list[str]]]:
    """Training steps, ours and those of others on the same batch, by the program that does them."""
    yolo = ["--batch-size", "8", "--image-size", "320"]
    resnet = ["--batch-size", "8", "--image-size", "224"]
    found: dict[str, dict[str, list[str]]] = {}
    for model, sizes in (("yolov5n", yolo), ("resnet50", resnet)):
        words = ["--model", model, *sizes]
        classes = "1000" if model == "resnet50" else "80"
        rivals = {"ours": [sys.executable, str(SCRIPTS / "bench_step.py"), *words, "--classes", classes]}
        if options.torch:
            rivals["PyTorch"] = [options.torch, str(SCRIPTS / "bench_torch.py"), "--what", "step", *words]
        found[f"step {model}"] = rivals
    if options.mindyolo:
        script = str(SCRIPTS / "bench_mindyolo.py")
        found["step yolov5n"]["MindYOLO"] = [options.mindyolo, script, "--config", options.mindyolo_config, *yolo]
    return found


def in_turns(rivals: dict[str, list[str]]) -> dict[str, Any]:
    """Each program ROUNDS times in turns, since a machine's speed changes by the hour: times, ratios, median ratios."""
    rounds = [{name: run(name, command) for name, command in rivals.items()} for _ in range(ROUNDS)]
    milliseconds = [
        {name: figures.get("step_ms", figures.get("ms")) for name, figures in each.items()} for each in rounds
    ]
    result: dict[str, Any] = {f"{name} ms": [each[name] for each in milliseconds] for name in rivals}
    for name in list(rivals)[1:]:
        ratios = [round(each["ours"] / each[name], 2) for each in milliseconds]
        result[f"ratio to {name}"], result[f"ratio to {name}, median"] = ratios, statistics.median(ratios)
    return {**result, "ours": rounds[-1]["ours"]}


def run(name: str, command: list[str]) -> dict[str, Any]:
    print(f"== {name}: {' '.join(command)}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode} of {' '.join(command)}")
    return json.loads(done.stdout.splitlines()[-1])


def starts() -> dict[str, float]:
    """Seconds of `msrun train` with the default configuration to the end of its first step, from nothing and again."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="msrun-bench-start-") as folder:
        environment = {**os.environ, "MSRUN_CACHE_DIR": f"{folder}/cache", "PYTHONUNBUFFERED": "1"}
        for name in ("first", "again"):
            command = [sys.executable, "-m", "msrun_cli", "train", f"output_dir={folder}", "logger.progress=plain"]
            started = time.perf_counter()
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if "first step included" in line:
                        seconds[name] = round(time.perf_counter() - started, 1)
                        break
                process.kill()
    return seconds


def machine() -> dict[str, Any]:
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    packages = ("mindspore", "numpy", "opencv-python", "msrun-cli")
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
        "load_average": round(os.getloadavg()[0], 2),
    }


def show(found: dict[str, Any]) -> None:
    table = Table("benchmark", "figure", "value")
    for name, figures in found.items():
        for key, value in flat(figures):
            table.add_row(name, key, str(value))
            name = ""
        table.add_section()
    Console(width=110).print(table)


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Figures inside lists and tables under joined names; a list of plain numbers is one figure."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{key} {name}".strip())
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for place, inner in enumerate(value):
            yield from flat(inner, f"{key} {place + 1}")
    else:
        yield key, value


if __name__ == "__main__":
    main()
