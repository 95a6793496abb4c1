#!/usr/bin/env python
"""Memory of a training step by what it holds, at each precision level.

    python scripts/bench_memory.py --model yolov5n --batch-size 8 --image-size 320 [--levels O0,O1,O2,O3]
    python scripts/bench_memory.py --model resnet50 --batch-size 16 --image-size 224 [--classes 1000] [--device ascend]

The last line is JSON, in MiB for each level: parameters (with running statistics), gradients, optimizer (its state, and
the loss scale), average (EMA), activations, total (their sum), and peak.

How each is found
  parameters, gradients, optimizer, average: bytes of the arrays that the train step has.
  activations: one forward pass in PyNative mode under `mindspore.saved_tensors_hooks`, which is told each tensor that
      the automatic gradient keeps for the backward pass. Tensors that share memory count once, parameters not at all; a
      part of another tensor counts as one of its own. Copies of weights in half precision are among them. Nothing else
      is counted: neither a kernel's working memory nor what lives for a moment. A compiled graph may free more.
  peak: the device's own counter over two whole steps in graph mode. A CPU has none (null), so there "source" says
      tensors; on other devices it says tensors and counters.
saving_O2 is 1 - total at O2 / total at O0, claim the published saving of 30 %, claim_holds whether it is reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from msrun_cli.runtime.process import prepare_process

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_step import boxes, empty_data, images, labels  # noqa: E402

CLAIM = 0.30
MIB = 2**20
SIZES = ("parameters_mib", "gradients_mib", "optimizer_mib", "average_mib", "activations_mib")


def main() -> None:
    options = parse()
    prepare_process()  # before mindspore is imported
    import mindspore as ms

    device = {"cpu": "CPU", "ascend": "Ascend", "gpu": "GPU"}[options.device]
    ms.set_device(device)
    levels = {level: measured(options, level, device) for level in options.levels.split(",")}
    result: dict[str, Any] = {
        "model": options.model,
        "batch_size": options.batch_size,
        "image_size": options.image_size,
        "device": device,
        "source": "tensors" if device == "CPU" else "tensors and counters",
        "levels": levels,
    }
    if {"O0", "O2"} <= set(levels):
        saving = 1 - levels["O2"]["total_mib"] / levels["O0"]["total_mib"]
        result |= {"saving_O2": round(saving, 3), "claim": CLAIM, "claim_holds": saving >= CLAIM}
    print(json.dumps(result))


def measured(options: argparse.Namespace, level: str, device: str) -> dict[str, float | None]:
    """Sizes at one level, in MiB."""
    import mindspore as ms
    import numpy as np

    ms.set_context(mode=ms.PYNATIVE_MODE)
    network, training, is_detector = build(options, level)
    targets = boxes(np, options) if is_detector else labels(np, options)
    batch = [ms.Tensor(array) for array in (images(np, options), targets)]
    step = training.step
    step.set_train(True)
    owned = {parameter.name for parameter in network.get_parameters()}
    averages = [] if training.eval_network is None else list(training.eval_network.get_parameters())
    state = [item for item in step.get_parameters() if item.name not in owned | {item.name for item in averages}]
    activations, gradients = kept_for_backward(step, batch)
    sizes = (bytes_of(network.get_parameters()), gradients, bytes_of(state), bytes_of(averages), activations)
    found: dict[str, float | None] = {name: round(size / MIB, 2) for name, size in zip(SIZES, sizes, strict=True)}
    found["total_mib"] = round(sum(sizes) / MIB, 2)
    found["peak_mib"] = None if device == "CPU" else round(peak_bytes(step, batch) / MIB, 2)
    return found


def build(options: argparse.Namespace, level: str):
    """(network, training with loss and optimizer around it, whether it is a detector)."""
    from msrun_cli.builders.data import build_task
    from msrun_cli.builders.network import build_network
    from msrun_cli.builders.training import build_training
    from msrun_cli.config.composer import Composer
    from msrun_cli.runtime.context import Device

    composer = Composer("train")
    is_detector = composer.compose([f"model={options.model}"]).model.task == "detection"
    cfg = composer.compose(
        [
            *([] if is_detector else ["dataset=imagefolder", "dataset.root=."]),
            *(f"model={options.model}", f"amp={level}", f"optimizer={options.optimizer}"),
            *(f"batch_size={options.batch_size}", f"image_size={options.image_size}", f"ema={options.ema}"),
        ]
    )
    data = empty_data(options.classes, is_detector)
    task = build_task(cfg, data, Device("CPU", graph=False, sink=False, sink_size=-1, dvpp=False))
    network = build_network(cfg, data.class_names)
    return network, build_training(cfg, task, network, steps_per_epoch=1000), is_detector


def kept_for_backward(step, batch) -> tuple[int, int]:
    """(bytes of the tensors that the backward pass of this step needs, without parameters; bytes of the gradients)."""
    import mindspore as ms

    parameters = {parameter.data_ptr() for parameter in step.get_parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor):
        sizes[tensor.data_ptr()] = max(tensor.nbytes, sizes.get(tensor.data_ptr(), 0))
        return tensor  # kept, so that its memory is not given to another tensor that would then count as the same

    def loss(*inputs):
        return step.forward(*inputs)[0]

    scale = ms.Tensor(1.0, ms.float32)
    with ms.saved_tensors_hooks(pack, lambda tensor: tensor):
        gradients = ms.grad(loss, None, step.weights)(*batch, scale)
    kept = sum(size for pointer, size in sizes.items() if pointer not in parameters)
    return kept, bytes_of(gradients)


def bytes_of(tensors) -> int:
    return sum(int(tensor.nbytes) for tensor in tensors)


def peak_bytes(step, batch) -> int:
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.runtime.empty_cache()
    ms.runtime.reset_max_memory_allocated()
    for _ in range(2):  # the second step still allocates
        step(*batch)[0].asnumpy()
    return int(ms.runtime.max_memory_allocated())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="yolov5n")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--boxes", type=int, default=32, help="rows of the target array, a quarter of them filled")
    parser.add_argument("--levels", default="O0,O1,O2,O3")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adamw", "lion"), default="sgd")
    parser.add_argument("--ema", choices=("on", "off"), default="on")
    parser.add_argument("--device", choices=("cpu", "ascend", "gpu"), default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
