"""The evaluation recipe."""

from __future__ import annotations

import logging

from msrun_cli.builders.data import build_data, build_task
from msrun_cli.builders.device import build_device, build_graph_cache
from msrun_cli.builders.network import build_network, check_class_names, load_weights
from msrun_cli.builders.training import build_evaluation
from msrun_cli.common.errors import ConfigError
from msrun_cli.config.schema import EvalConfig
from msrun_cli.runtime.log import console
from msrun_cli.tasks.run import start_run

log = logging.getLogger("msrun")


def evaluate(cfg: EvalConfig) -> float:
    """Evaluate a checkpoint or foreign weights on a split; returns the objective (map50_95 or top1)."""
    path = cfg.checkpoint or cfg.weights
    if path is None:
        raise ConfigError("Nothing to evaluate: give checkpoint=FILE (of a run) or weights=FILE with model=NAME.")
    run = start_run(cfg)
    device = build_device(cfg, run, trains=False)

    ranks = device.ranks
    data = build_data(cfg.dataset, run.bad_samples_csv if ranks.is_first else None, splits=(cfg.split,))
    split = data.val if cfg.split == "val" else data.train
    task = build_task(cfg, data, device)

    network = build_network(cfg, data.class_names)
    log.info("%s: %s", path, load_weights(network, path, strict=True))
    check_class_names(path, data.class_names)

    graphs = build_graph_cache(cfg, run, device, {"classes": list(data.class_names)})
    result = build_evaluation(cfg, task, split, network, ranks=ranks, graphs=graphs)()
    if not ranks.is_first:
        return float(result.metrics[task.objective])
    report = task.report(run.plots)
    console.print(report.table(result))
    metrics = {name: float(value) for name, value in result.metrics.items()}
    objective = metrics[task.objective]
    run.write_result({"objective": objective, **metrics, "images": result.images, "images_per_s": result.images_per_s})
    log.info("%s", "  ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    log.info("results: %s", ", ".join(str(path) for path in report.save(split, data, result, run.root)))
    log.info("predictions: %s", report.predictions(split, result))
    return objective
