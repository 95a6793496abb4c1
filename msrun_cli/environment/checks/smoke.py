"""One compiled step on the device, in a process of its own: a mismatch of versions may end in a crash."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from msrun_cli.environment.explain import explain_lines
from msrun_cli.environment.host import Output
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn

PROGRAM = "msrun_cli.runtime.smoke"
_TIMEOUT_S = {"CPU": 180, "Ascend": 600}  # an Ascend compiles its first operators for minutes
_TAIL = 15


def smoke(machine: Machine) -> Outcome:
    device = "Ascend" if machine.device == "ascend" else "CPU"
    executable = machine.host.facts.executable
    # An empty working directory: compilers leave files there, and nothing in it hides a package.
    with tempfile.TemporaryDirectory(prefix="msrun-smoke-") as folder:
        variables = {"PYTHONPATH": _python_path(machine), "MS_OM_PATH": folder, "MS_COMPILER_CACHE_PATH": folder}
        output = machine.host.run([executable, "-m", PROGRAM, device], _TIMEOUT_S[device], variables, folder)
    source = f"python -m {PROGRAM} {device}"
    expected = "a compiled step with numpy's numbers"
    if output.problem == "missing":
        return skip(f"{executable} cannot be run")
    report = _report(output)
    details = tuple(output.tail(_TAIL))
    if not output.ok or report is None or report.get("error"):
        reason = str(report["error"]) if report and report.get("error") else _reason(output)
        return fail(reason, expected, source, _remedy(output, device), details)
    found = (
        f"MindSpore {report['mindspore']} on {device}: import {report['import_s']:.1f} s, step {report['step_s']:.1f} s"
    )
    errors = [line for line in output.text.splitlines() if re.match(r"\s*\[(ERROR|CRITICAL)\]", line)]
    if errors:
        return warn(
            f"{found}, but it printed errors: {errors[0].strip()}", expected, source, _remedy(output, device), details
        )
    return fine(found, expected, source)


def _python_path(machine: Machine) -> str:
    """The user's own, and where this program is when it runs from a checkout."""
    folders = [os.path.abspath(f) for f in machine.host.environ.get("PYTHONPATH", "").split(os.pathsep) if f]
    own = Path(__file__).resolve().parents[3]
    return os.pathsep.join([*folders, *([] if own.name.endswith("-packages") else [str(own)])])


def _report(output: Output) -> dict[str, Any] | None:
    for line in reversed(output.tail(_TAIL)):
        if line.startswith("{"):
            try:
                report = json.loads(line)
            except ValueError:
                return None
            return report if isinstance(report, dict) and "import_s" in report else None
    return None


def _reason(output: Output) -> str:
    if output.problem or output.signal is not None:
        return output.ending()
    return (output.tail(1) or [output.ending()])[0].strip()


def _remedy(output: Output, device: str) -> str:
    # That a crash calls for check-env is no news here.
    known = [found for found in explain_lines(output.text.splitlines()) if found.error.id != "segfault"]
    if known:
        return known[0].error.remedy
    if output.signal is not None and device == "Ascend":
        return (
            "mend the checks above first (msrun check-env --skip smoke): MindSpore, CANN and driver that do not belong "
            "together crash"
        )
    return f"python -m {PROGRAM} {device} shows it by itself; pip install --force-reinstall mindspore if it is damaged"


CHECKS = (Check("smoke", "a compiled step on the device", Cost.SLOW, "any", smoke),)
