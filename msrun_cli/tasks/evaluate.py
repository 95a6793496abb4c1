"""The evaluation recipe."""

from __future__ import annotations

import logging

from msrun_cli import build
from msrun_cli.common.errors import ConfigError
from msrun_cli.config.schema import EvalConfig
from msrun_cli.runtime.log import console
from msrun_cli.tasks.run import start_run

log = logging.getLogger("msrun")


def evaluate(cfg: EvalConfig) -> float:
    """Evaluate a checkpoint or foreign weights on a split; returns the objective (map50_95)."""
    path = cfg.checkpoint or cfg.weights
    if path is None:
        raise ConfigError("Nothing to evaluate: give checkpoint=FILE (of a run) or weights=FILE with model=NAME.")
    run = start_run(cfg)
    build.build_device(cfg, run)

    data = build.build_data(cfg.dataset, run.bad_samples_csv, splits=(cfg.split,))
    for note in data.notes:
        log.info("%s", note)
    split = data.val if cfg.split == "val" else data.train

    network = build.build_network(cfg, data)
    log.info("%s: %s", path, build.load_weights(network, path, strict=True))

    result = build.build_evaluation(cfg, data, split, network)()
    report = build.build_report(cfg, data, run)
    console.print(report.table(result))
    metrics = {name: float(value) for name, value in result.metrics.items()}
    seconds = result.predict_s + result.nms_s
    run.write_result(
        {"objective": metrics["map50_95"], **metrics, "images": result.images, "images_per_s": result.images / seconds}
    )
    log.info("%s", "  ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    log.info("detections: %s", report.save(split, data, result, run.root / "detections.json"))
    log.info("predictions: %s", report.predictions(split, result))
    return metrics["map50_95"]
