"""The recipe that examines a dataset."""

from __future__ import annotations

import io
import json
import logging
import sys

from msrun_cli.builders.checked_data import build_check_options, build_checked_data
from msrun_cli.common.errors import DataError, DataWarning
from msrun_cli.common.status import FAIL, WARN
from msrun_cli.config.schema import CheckDataConfig
from msrun_cli.data.doctor.examination import Examination, examine
from msrun_cli.reporting.data_check import progress_display, report_json, report_tables
from msrun_cli.reporting.data_pictures import save_report
from msrun_cli.runtime.log import console


def check_data(cfg: CheckDataConfig) -> int:
    """Print, and save if wished, what is found; returns 0.

    Raises DataError when a check failed, DataWarning when one warned under `strict`.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files and classes may not fit the terminal's encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    _log_to_stderr()
    data, refusal = build_checked_data(cfg)
    options = build_check_options(cfg)
    with progress_display() as stage:
        examination = examine(data, refusal, options, stage)
    about = {
        "dataset": "imagefolder" if cfg.folder is not None else cfg.dataset.name,
        "model": cfg.model.name,
        "image_size": cfg.image_size,
        "batch_size": cfg.batch_size,
    }
    report = report_json(examination, about)
    if cfg.json:
        print(json.dumps(report, indent=2))  # in ASCII, whatever the locale
    else:
        console.print(report_tables(examination))
    if cfg.save is not None:
        written = save_report(examination, report, cfg.save, options, cfg.seed)
        print("saved:", ", ".join(map(str, written)), file=sys.stderr)
    return _verdict(examination, cfg.strict)


def _log_to_stderr() -> None:
    """What readers log (shapes are being generated ...) must not get between the lines of --json."""
    log = logging.getLogger("msrun")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stderr))
    log.propagate = False


def _verdict(examination: Examination, strict: bool) -> int:
    named = {status: [item.check for item in examination.findings if item.status == status] for status in (FAIL, WARN)}
    if named[FAIL]:
        raise DataError(f"failed: {', '.join(named[FAIL])}.")
    if named[WARN] and strict:
        raise DataWarning(f"warnings, which --strict counts as errors: {', '.join(named[WARN])}.")
    return 0
