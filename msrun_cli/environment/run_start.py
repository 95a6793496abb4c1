"""The cheap checks at the start of a run: what would surely fail stops it, the rest are lines in its log."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from msrun_cli.common.errors import DeviceError
from msrun_cli.common.status import FAIL, SKIP, WARN
from msrun_cli.environment.examination import Examination, examine
from msrun_cli.environment.local import LocalHost
from msrun_cli.environment.registry import CHECKS
from msrun_cli.environment.results import Cost, Result

_ABOUT_ASCEND = {check.id for check in CHECKS if check.device == "ascend"}
_CHECKED = ("auto", "cpu", "ascend")
_DEVICE_FILES = ("davinci*", "nvidia*", "dxg")


@functools.cache
def cheap_examination(target: str) -> Examination:
    """The checks that only read files, for a run on `target` (as in device.target). Made once in a process."""
    checks = [check for check in CHECKS if check.cost is Cost.FILES]
    return examine(LocalHost(), target if target in _CHECKED else "cpu", checks)


def require_runnable(target: str) -> None:
    """Called before MindSpore is imported.

    Raises:
        DeviceError: a run on this device would surely fail. With "auto", faults of an Ascend device do not count:
            the run then takes the CPU.
    """
    stopping = [
        result
        for result in cheap_examination(target).results
        if result.status == FAIL
        and result.outcome.stops_run
        and (target != "auto" or result.check not in _ABOUT_ASCEND)
    ]
    if stopping:
        raise DeviceError("\n\n".join(_stopping(target, result) for result in stopping))


def remarks(target: str) -> list[str]:
    """One line for each warning and failure; where "auto" will take the CPU, one says that there is no NPU."""
    silent = {check.id for check in CHECKS if not check.in_run}
    results = [r for r in cheap_examination(target).results if r.status in (WARN, FAIL) and r.check not in silent]
    without_npu = target == "auto" and any(result.check == "device_nodes" for result in results)
    if without_npu:
        results = [r for r in results if r.check == "device_nodes" or r.check not in _ABOUT_ASCEND]
    return [_sentence(result) for result in results]


def is_cpu_alone() -> bool:
    """Whether there is no device file of an NPU or a GPU here."""
    return not any(found for pattern in _DEVICE_FILES for found in Path("/dev").glob(pattern))


def run_facts(target: str) -> dict[str, Any]:
    """For environment.json: by check, what it found."""
    keys = ("status", "found", "expected", "source")
    results = [result for result in cheap_examination(target).results if result.status != SKIP]
    return {result.check: {key: getattr(result.outcome, key) for key in keys} for result in results}


def _stopping(target: str, result: Result) -> str:
    about = f"device={target}: " if result.check in _ABOUT_ASCEND else ""
    return about + _sentence(result)


def _sentence(result: Result) -> str:
    outcome = result.outcome
    expected = f" (expected: {outcome.expected})" if outcome.expected else ""
    return f"check-env {result.check}: {outcome.found}{expected}. {outcome.hint}"
