#!/usr/bin/env python
"""What 8, 64 and 1024 devices give, computed from a measured step and the speed of the links, and what holds it back.

    python scripts/scaling.py --step-ms 100 --batch-size 16 --model yolov5s          counts the model's parameters
    python scripts/scaling.py --step-ms 100 --batch-size 16 --parameters 7.2e6 --images 118287 --host-images-per-s 2000

--step-ms and --host-images-per-s are measurements of yours: scripts/bench_step.py and scripts/bench_pipeline.py give
them, or images_per_s in metrics.csv of a run on one device. The formulas and the sources of the link speeds are in
docs/scaling.md. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

GRADIENT_BYTES = 4  # the reducer sends float32, whatever the precision of the network
BACKWARD = 2 / 3  # of a step: the part in which gradients appear one after the other
FEW_STEPS = 100  # an epoch of fewer updates hardly trains


@dataclass(frozen=True)
class Job:
    """step_s: of one device without communication; inside, between: bytes per second and direction of the links of a
    device inside a host and between hosts, as far as they can be used; delay_s: of one message; images: of the
    training split; host_images_per_s: what the CPU of one host reads and augments, None = not known.
    """

    step_s: float
    batch: int
    parameters: float
    per_host: int
    inside: float
    between: float
    delay_s: float
    images: int
    host_images_per_s: float | None = None


@dataclass(frozen=True)
class Result:
    """Times in ms; efficiencies are parts of devices x the speed of one: the first when communication waits for the
    whole gradient, the second when it hides behind the backward pass.
    """

    devices: int
    hosts: int
    communication_ms: float
    efficiency: float
    efficiency_hidden: float
    images_per_s: float
    steps_per_epoch: int
    held_back_by: str


def communication_s(job: Job, devices: int) -> float:
    """All-reduce of the gradients: a ring inside each host, rings of the hosts (one for each device of a host) between.

    A ring of n sends 2 (n - 1) / n of the bytes over each link, in 2 (n - 1) messages.
    """
    size = job.parameters * GRADIENT_BYTES
    local = min(devices, job.per_host)
    hosts = -(-devices // job.per_host)
    time_s = _ring_s(size, local, job.inside, job.delay_s)
    return time_s + _ring_s(size / local, hosts, job.between, job.delay_s)


def _ring_s(size: float, members: int, speed: float, delay_s: float) -> float:
    return 2 * (members - 1) * (size / members / speed + delay_s)


def predict(job: Job, devices: int) -> Result:
    sent_s = communication_s(job, devices)
    hosts = -(-devices // job.per_host)
    read = math.inf if job.host_images_per_s is None else hosts * job.host_images_per_s
    images = devices * job.batch
    wanted = images / (job.step_s + sent_s)
    hidden = images / (job.step_s + max(0.0, sent_s - BACKWARD * job.step_s))
    ideal, speed = images / job.step_s, min(wanted, read)
    steps = job.images // images
    causes = {
        "reading (dataset.workers, dataset.cache)": read < wanted,
        "links (larger batch_size)": sent_s > 0.1 * job.step_s,
        "too few updates per epoch (smaller batch_size, more epochs)": steps < FEW_STEPS,
    }
    held_back_by = "; ".join(text for text, applies in causes.items() if applies) or "nothing"
    efficiency, best = speed / ideal, min(hidden, read) / ideal
    return Result(devices, hosts, 1000 * sent_s, efficiency, best, speed, steps, held_back_by)


def count_parameters(model: str) -> int:
    import mindspore as ms

    from msrun_cli.builders.network import build_network
    from msrun_cli.config.composer import Composer

    ms.set_context(mode=ms.PYNATIVE_MODE)
    cfg = Composer("train", None).compose([f"model={model}"])
    names = [str(number) for number in range(80 if cfg.model.task == "detection" else 1000)]
    return sum(parameter.size for parameter in build_network(cfg, names).trainable_params())


def table(results: list[Result]) -> str:
    head = "| devices | hosts | all-reduce ms | efficiency | if hidden | images/s | steps/epoch | held back by |"
    rows = [
        f"| {r.devices} | {r.hosts} | {r.communication_ms:.2f} | {r.efficiency:.0%} | {r.efficiency_hidden:.0%} "
        f"| {r.images_per_s:.0f} | {r.steps_per_epoch} | {r.held_back_by} |"
        for r in results
    ]
    return "\n".join([head, "|" + "---|" * 8, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, required=True, help="measured, one device")
    parser.add_argument("--batch-size", type=int, required=True, help="images per device and step")
    parser.add_argument("--model", help="count the parameters of this model (80 or 1000 classes)")
    parser.add_argument("--parameters", type=float, help="trained parameters")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 8, 64, 1024])
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--inside-gb-s", type=float, default=28.0, help="one direction of a device's link in a host")
    parser.add_argument("--between-gb-s", type=float, default=25.0, help="of a device's network port")
    parser.add_argument("--link-efficiency", type=float, default=0.7, help="part of these that collectives reach")
    parser.add_argument("--delay-us", type=float, default=10.0, help="of one message")
    parser.add_argument("--images", type=int, default=118287, help="of the training split; default: COCO train2017")
    parser.add_argument("--host-images-per-s", type=float, help="measured: what one host reads and augments")
    options = parser.parse_args()
    if (options.model is None) == (options.parameters is None):
        parser.error("give either --model or --parameters")
    usable = 1e9 * options.link_efficiency
    job = Job(
        options.step_ms / 1000,
        options.batch_size,
        options.parameters or count_parameters(options.model),
        options.per_host,
        options.inside_gb_s * usable,
        options.between_gb_s * usable,
        options.delay_us / 1e6,
        options.images,
        options.host_images_per_s,
    )
    results = [predict(job, devices) for devices in options.devices]
    sent_mb = GRADIENT_BYTES * job.parameters / 1e6
    print(f"{Path(__file__).name}: {job.parameters / 1e6:.2f} million parameters, {sent_mb:.1f} MB a step")
    print(table(results))
    print(json.dumps({"job": asdict(job), "results": [asdict(result) for result in results]}))


if __name__ == "__main__":
    main()
