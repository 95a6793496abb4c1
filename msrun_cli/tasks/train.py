"""The training recipe."""

from __future__ import annotations

import logging
import shlex
import time
from typing import Any

from msrun_cli.builders.callbacks import build_callbacks, build_diagnosis
from msrun_cli.builders.data import build_data, build_task, require_same_data
from msrun_cli.builders.device import build_device, build_graph_cache, build_sink
from msrun_cli.builders.network import build_network, freeze_parameters, load_weights, read_resumed, synchronize
from msrun_cli.builders.training import build_evaluation, build_training
from msrun_cli.common.errors import Interrupted, TrainingError
from msrun_cli.config.schema import TrainConfig
from msrun_cli.engine.callbacks.early_stopping import out_of_patience
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import assign_all
from msrun_cli.engine.data_sink import run_steps
from msrun_cli.engine.resume import go_on
from msrun_cli.reporting.plots import plot_curves
from msrun_cli.runtime.log import console
from msrun_cli.runtime.ranks import Ranks
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.tasks.run import start_run

log = logging.getLogger("msrun")


def train(cfg: TrainConfig) -> float:
    """Train, evaluate and leave a run folder; returns the objective (the best value of save_best_on)."""
    run = start_run(cfg)
    device = build_device(cfg, run)
    ranks = device.ranks

    # data
    data = build_data(cfg.dataset, run.bad_samples_csv if ranks.is_first else None)
    task = build_task(cfg, data, device)
    preview = task.preview()
    report = task.report(run.plots)
    if ranks.is_first:
        first = next(preview.create_dict_iterator(num_epochs=1, output_numpy=True))
        log.info("first training batch: %s", report.first_batch(first))
    facts = task.facts()
    require_same_data(facts, ranks)

    # where to start
    best = cfg.save_best_on or task.objective
    state = TrainState(cfg.epochs, preview.get_dataset_size(), cfg.batch_size * ranks.count, best)
    resumed = read_resumed(cfg)
    start = (0, 0) if resumed is None else go_on(resumed, state, facts)
    goal = min(state.total_steps, cfg.max_steps or state.total_steps)
    if state.step >= goal and state.evaluated_step == state.step:
        return _nothing_left(run, state, "give more with epochs=N (and max_steps=null)")
    if out_of_patience(state, cfg.early_stopping.patience):
        return _nothing_left(run, state, "early stopping ended it; go on with early_stopping.patience=null or more")
    sink_size = build_sink(cfg, device, state, goal)
    batches = task.train_batches(start)

    # network
    network = build_network(cfg, data.class_names)
    size = sum(parameter.size for parameter in network.trainable_params())
    log.info("%s with %d classes: %s parameters", cfg.model.name, len(data.class_names), f"{size:,}".replace(",", " "))
    if cfg.weights is not None and resumed is None:
        log.info("weights %s: %s", cfg.weights, load_weights(network, cfg.weights, strict=False))
    synchronize(cfg, network, device.target)
    freeze_parameters(cfg, network)

    # train step: loss, precision, loss scale, optimizer, schedule, average
    training = build_training(cfg, task, network, state.steps_per_epoch, ranks, device.kernels)
    if resumed is not None:
        assign_all(resumed, training.parameters)
        log.info("going on from %s: step %d, epoch %d", resumed.path, state.step, start[0] + 1)
    ranks.broadcast(training.parameters)
    graphs = build_graph_cache(cfg, run, device, facts)
    evaluate = build_evaluation(cfg, task, data.val, training.eval_network, training.refresh, ranks, graphs)

    # run
    diagnose = build_diagnosis(run, task, network, training.step)
    callbacks = build_callbacks(cfg, run, state, task, training, evaluate, device, facts, diagnose, graphs)
    log.info(
        "training: %d epochs of %d steps, batch %s, %d px, amp %s, loss scale %s; run folder %s",
        cfg.epochs, state.steps_per_epoch, f"{ranks.count} x {cfg.batch_size}" if ranks.count > 1 else cfg.batch_size,
        cfg.image_size, cfg.amp.level, cfg.loss_scale.type, run.root,
    )  # fmt: skip
    started = time.perf_counter()
    try:
        with callbacks.stop_requests:
            callbacks.catch_up()
            if state.step < goal and state.stop_reason is None:
                run_steps(training.step, batches, callbacks.in_order, state, sink_size, len(training.term_names))
    except RuntimeError:
        if state.signal is None:
            raise
        callbacks.saver.save_last(alone=True)  # the signal ended the data workers too, in the middle of a batch
    finally:
        callbacks.close()
    seconds = time.perf_counter() - started

    # result
    if ranks.is_first:
        _draw_curves(run)
    if state.signal is not None:
        saved = run.checkpoints / "last.ckpt"
        raise Interrupted(
            f"stopped by {state.stop_reason} at step {state.step}; saved {saved}. Go on with: "
            f"msrun train resume={shlex.quote(str(run.root))}",
            state.signal,
        )
    if cfg.parallel.mode == "data_parallel":
        _require_same_network(ranks, training.parameters)
    if not ranks.is_first:
        return float(state.best or 0.0)
    result = callbacks.evaluation.result
    console.print(report.table(result))
    run.write_result(_summary(state, callbacks.recorder, seconds))
    log.info("trained in %.0f s, %s", seconds, _ending(state))
    log.info("predictions: %s", report.predictions(data.val, result))
    return float(state.best or 0.0)


def _require_same_network(ranks: Ranks, parameters: list[Any]) -> None:
    """Data parallel training is right only while all ranks hold the same network."""
    others = ranks.differing(parameters)
    if others:
        raise TrainingError(
            f"ranks {', '.join(map(str, others))} hold other parameters than rank 0, so their gradients were not "
            "averaged. Do not use these checkpoints; a custom loss or network may draw random numbers of its own."
        )
    if ranks.count > 1:
        log.info("all %d ranks hold the same parameters", ranks.count)


def _draw_curves(run: RunFolder) -> None:
    try:
        log.info("curves: %s", ", ".join(str(path) for path in plot_curves(run.metrics_csv, run.plots)))
    except OSError as error:  # the folder may have been removed, or the disk is full
        log.warning("no curves: %s: %s", error.filename, error.strerror)


def _ending(state: TrainState) -> str:
    text = f"{state.skipped} steps skipped"
    return f"{text}, stopped by {state.stop_reason}" if state.stop_reason else text


def _nothing_left(run: RunFolder, state: TrainState, advice: str) -> float:
    log.info(
        "nothing left to train: %s has done %d steps of %d epochs; %s",
        run.root, state.step, state.epoch, advice,
    )  # fmt: skip
    return float(state.best or 0.0)


def _summary(state: TrainState, recorder: Any, seconds: float) -> dict[str, Any]:
    speeds = sorted(recorder.images_per_s)
    return {
        "objective": state.best,
        **state.metrics,
        "save_best_on": state.save_best_on,
        "best_epoch": state.best_epoch,
        "images_per_s": speeds[len(speeds) // 2] if speeds else None,
        "compile_s": recorder.compile_s,
        "train_s": seconds,
        "epochs": state.epoch,
        "steps": state.step,
        "overflows": state.skipped,
        "stopped_by": state.stop_reason,
    }
