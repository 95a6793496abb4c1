"""The recipe that says what holds a training back: the training recipe, timed."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

from msrun_cli.builders.data import build_data, build_task
from msrun_cli.builders.device import build_device
from msrun_cli.builders.profile import build_about, build_settings, job_options, job_words, training_words
from msrun_cli.config.schema import ProfileConfig
from msrun_cli.profiling.document import write_document
from msrun_cli.profiling.levels import compare_levels
from msrun_cli.profiling.memory import release_device
from msrun_cli.profiling.outcome import Outcome, facts_of
from msrun_cli.profiling.pipeline import measure_pipeline
from msrun_cli.profiling.proposals import advice, propose
from msrun_cli.profiling.trials import TrialRunner, best_overrides, paste_line, try_all
from msrun_cli.profiling.verdict import judge
from msrun_cli.reporting.profile_page import write_page
from msrun_cli.reporting.profile_pictures import draw_pictures
from msrun_cli.reporting.profile_tables import profile_tables
from msrun_cli.runtime.log import console
from msrun_cli.tasks.profile_steps import profile_steps
from msrun_cli.tasks.run import start_run

log = logging.getLogger("msrun")


def profile(cfg: ProfileConfig) -> float:
    """Measure, judge, try, report; returns images per second."""
    began = time.perf_counter()
    wanted = cfg.profile
    run = start_run(cfg)
    device = build_device(cfg, run)

    # data
    data = build_data(cfg.dataset, run.bad_samples_csv if device.ranks.is_first else None, splits=("train",))
    task = build_task(cfg, data, device)
    outcome = Outcome(build_about(cfg, run, device), build_settings(cfg, task, device), wanted.what)
    batches = None
    if wanted.what != "step":
        log.info("reading the input pipeline alone for %.0f s ...", wanted.data_seconds)
        batches = task.train_batches()
        outcome.data = measure_pipeline(batches, cfg.epochs, wanted.data_seconds)
        outcome.settings = dataclasses.replace(outcome.settings, workers=batches.readers)

    # steps
    if wanted.what != "data":
        outcome.steps = profile_steps(cfg, run, task, device, batches)
        outcome.settings = dataclasses.replace(outcome.settings, peak_mib=outcome.steps.peak_rss_mib)
        outcome.notes += outcome.steps.notes
        outcome.facts = facts = facts_of(outcome.steps, outcome.data, device.target)
        outcome.verdict = verdict = judge(facts)
        outcome.proposals = propose(verdict, facts, outcome.settings, outcome.data)
        outcome.advice = advice(verdict, facts, outcome.settings, outcome.data)

    if not device.ranks.is_first:
        return 0.0

    # trials, each in a process of its own
    release_device(device.target)
    runner = None
    if wanted["try"] or wanted.amp:
        runner = TrialRunner(job_words(), job_options(), run.root / "trials")
    if runner is not None and wanted["try"] and outcome.steps is not None and outcome.proposals:
        outcome.proposals, outcome.noise = try_all(outcome.proposals, runner.run, outcome.steps.speeds, log.info)
        outcome.paste = paste_line(training_words(), best_overrides(outcome.proposals))
    if runner is not None and wanted.amp:
        outcome.levels = compare_levels(list(wanted.amp), runner.run, log.info)
    outcome.seconds = time.perf_counter() - began

    # report
    document = outcome.as_json(wanted.top)
    written = write_document(run.root, document)
    pictures = draw_pictures(document, run.plots)
    page = write_page(document, pictures, run.root / "profile.html")
    console.print(profile_tables(document, wanted.top))
    log.info("profile: %s; page: %s", written, page)
    log.info("pictures: %s", ", ".join(str(path) for path in pictures.values()))
    result = _result(outcome)
    run.write_result(result)
    return float(result["objective"])


def _result(outcome: Outcome) -> dict[str, Any]:
    """return_value.json: a sweep over profiles maximises images per second."""
    steps, data = outcome.steps, outcome.data
    speed = steps.images_per_s if steps is not None else data.images_per_s if data is not None else 0.0
    return {
        "objective": speed,
        "images_per_s": speed,
        "step_ms": None if steps is None else steps.summary.step_ms.median,
        "compile_s": None if steps is None else steps.compile_s,
        "data_images_per_s": None if data is None else data.images_per_s,
        "verdict": None if outcome.verdict is None else outcome.verdict.main,
        "train_s": outcome.seconds,
    }
