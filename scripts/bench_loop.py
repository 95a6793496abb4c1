#!/usr/bin/env python
"""What the training loop costs beside the training step: `msrun train` against a bare loop over the same step and data.

    python scripts/bench_loop.py [--rounds 9] [--steps 20] [OVERRIDES]...

Both run in turns on the same compiled step and the same pipeline. The loop of `msrun train` logs, records and looks for
NaN and overflow as always; evaluation and checkpoints, which come once per epoch, are left out. The last line is JSON:
bare_ms and train_ms per step (medians of the rounds) and percent, what the loop adds (median of the rounds' ratios).
Overrides are those of `msrun train`; the default is its default.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from msrun_cli.runtime.process import prepare_process


def main() -> None:
    options = parse()
    prepare_process()  # before mindspore is imported
    import mindspore as ms

    from msrun_cli.builders.data import build_data, build_task
    from msrun_cli.builders.network import build_network
    from msrun_cli.builders.training import build_training
    from msrun_cli.config.composer import Composer
    from msrun_cli.kernels.library import kernel_library
    from msrun_cli.runtime.context import Device

    cfg = Composer("train", None).compose([*options.overrides, f"max_steps={options.steps}", "logger.progress=plain"])
    cfg = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
    ms.set_context(mode=ms.GRAPH_MODE)
    device = Device("CPU", graph=True, sink=False, sink_size=-1, dvpp=False)
    task = build_task(cfg, build_data(cfg.dataset), device)
    steps_per_epoch = task.preview().get_dataset_size()
    if options.steps > steps_per_epoch:
        raise SystemExit(f"--steps {options.steps}: an epoch of this data has {steps_per_epoch} steps")
    network = build_network(cfg, task.data.class_names)
    training = build_training(cfg, task, network, steps_per_epoch, kernels=kernel_library("auto"))
    training.step.set_train(True)

    bare_loop(task, training.step, 5)  # compiles; the first steps still allocate
    bare, trained = [], []
    for _ in range(options.rounds):
        bare.append(bare_loop(task, training.step, options.steps))
        trained.append(train_loop(cfg, task, training, device, steps_per_epoch, options.steps))
    ratios = [after / before for before, after in zip(bare, trained, strict=True)]
    result = {
        "bare_ms": round(1000 * statistics.median(bare), 2),
        "train_ms": round(1000 * statistics.median(trained), 2),
        "percent": round(100 * (statistics.median(ratios) - 1), 2),
        "percent_runs": [round(100 * (ratio - 1), 2) for ratio in ratios],
        "steps": options.steps,
        "model": cfg.model.name,
        "batch_size": cfg.batch_size,
        "image_size": cfg.image_size,
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("overrides", nargs="*", default=[])
    return parser.parse_args()


def bare_loop(task: Any, step: Any, steps: int) -> float:
    """Seconds per step."""
    batches = task.train_batches()
    iterator = batches.create_tuple_iterator(num_epochs=1)
    next(iterator)  # readers start
    started = time.perf_counter()
    for batch in itertools.islice(iterator, steps):
        loss = step(*batch)[0]
    loss.asnumpy()
    return (time.perf_counter() - started) / steps


def train_loop(cfg: Any, task: Any, training: Any, device: Any, steps_per_epoch: int, steps: int) -> float:
    """Seconds per step, from the end of the first one to the end of the last one."""
    from mindspore.train import Callback

    from msrun_cli.builders.callbacks import build_callbacks, build_diagnosis
    from msrun_cli.engine.callbacks.state import TrainState
    from msrun_cli.engine.data_sink import run_steps
    from msrun_cli.runtime.run_folder import RunFolder

    class Clock(Callback):
        def __init__(self) -> None:
            super().__init__()
            self.ends: list[float] = []

        def on_train_step_end(self, run_context: Any) -> None:
            self.ends.append(time.perf_counter())

    state = TrainState(cfg.epochs, steps_per_epoch, cfg.batch_size, task.objective)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        diagnose = build_diagnosis(run, task, training.step, training.step)
        callbacks = build_callbacks(cfg, run, state, task, training, lambda: None, device, {}, diagnose)
        once_per_epoch = (callbacks.evaluation, callbacks.saver)
        in_order = [callback for callback in callbacks.in_order if callback not in once_per_epoch]
        run_steps(training.step, task.train_batches(), [*in_order, clock], state, None, len(training.term_names))
        callbacks.close()
    if len(clock.ends) != steps:
        raise SystemExit(f"{len(clock.ends)} steps were trained in place of {steps}")
    return (clock.ends[-1] - clock.ends[0]) / (steps - 1)


if __name__ == "__main__":
    main()
