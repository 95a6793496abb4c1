"""Running the checks: which ones, on what, and never one that stops the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msrun_cli.common.errors import ConfigError
from msrun_cli.common.status import WARN, worst
from msrun_cli.config.suggest import did_you_mean
from msrun_cli.environment.host import Host
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.registry import CHECKS, GROUPS
from msrun_cli.environment.results import Check, Cost, Outcome, Result, skip


@dataclass(frozen=True)
class Examination:
    """device: "cpu" or "ascend"; results: in the order of the registry."""

    device: str
    results: tuple[Result, ...]

    @property
    def status(self) -> str:
        return worst(result.status for result in self.results)

    def named(self, status: str) -> list[Result]:
        return [result for result in self.results if result.status == status]


def choose(only: Sequence[str], left_out: Sequence[str], quick: bool) -> list[Check]:
    """only, left_out: ids or names of groups, several with commas; quick: nothing that imports or compiles.

    Raises:
        ConfigError: an unknown name, or nothing is left.
    """
    wanted, unwanted = _named("--only", only), _named("--skip", left_out)
    chosen = [check for check in CHECKS if (not only or check.id in wanted) and check.id not in unwanted]
    chosen = [check for check in chosen if not quick or check.cost < Cost.SLOW]
    if not chosen:
        raise ConfigError("No check is left by --only, --skip and --quick. `msrun check-env --list` shows all.")
    return chosen


def _named(option: str, texts: Sequence[str]) -> set[str]:
    names = {name.strip() for text in texts for name in text.split(",") if name.strip()}
    ids = {check.id for check in CHECKS}
    for name in sorted(names - ids - set(GROUPS)):
        close = did_you_mean(name, [*ids, *GROUPS])
        raise ConfigError(
            f"{option} {name}: there is no check or group of that name.{close} Groups: {', '.join(GROUPS)}; "
            "`msrun check-env --list` shows all checks."
        )
    return {check.id for group, checks in GROUPS.items() for check in checks if {check.id, group} & names}


def examine(
    host: Host, device: str, checks: Sequence[Check], started: Callable[[Check], None] = lambda check: None
) -> Examination:
    """device: auto, cpu or ascend. started: told before each check."""
    machine = Machine(host, device)
    results = []
    for check in checks:
        started(check)
        results.append(_run(check, machine))
    return Examination(machine.device, tuple(results))


def _run(check: Check, machine: Machine) -> Result:
    begin = time.perf_counter()
    try:
        if check.device == "ascend" and machine.device != "ascend":
            outcome = skip("no Ascend device was found" if machine.wanted == "auto" else "checks are for a CPU")
        elif check.device == "cpu" and machine.device != "cpu":
            outcome = skip("checks are for an Ascend device")
        else:
            outcome = check.function(machine)
    except Exception as error:  # whatever a broken machine makes of a check: the others still have something to say
        outcome = Outcome(
            WARN,
            f"the check itself failed: {type(error).__name__}: {error}",
            hint="tell the authors of msrun-cli, with the output of `msrun check-env --report -v`",
            details=tuple(traceback.format_exc().splitlines()[-6:]),
        )
    return Result(check.id, check.title, outcome, time.perf_counter() - begin)
