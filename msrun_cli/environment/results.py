"""What a check is and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from msrun_cli.common.status import FAIL, PASS, SKIP, WARN

if TYPE_CHECKING:
    from msrun_cli.environment.machine import Machine


class Cost(IntEnum):
    """FILES: reads files and variables, milliseconds. COMMANDS: starts a quick tool. SLOW: imports or compiles."""

    FILES = 0
    COMMANDS = 1
    SLOW = 2


@dataclass(frozen=True)
class Outcome:
    """found, expected: one line each; source: file or command read; hint: the command that mends it, "" when fine.

    stops_run: a run on the device that was looked at would surely fail
    """

    status: str
    found: str
    expected: str = ""
    source: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()
    stops_run: bool = False


@dataclass(frozen=True)
class Check:
    """id: stable, for --only, --skip and JSON; title: for --list; device: "any", or the one it is about.

    in_run: whether its warnings are worth a line in the log of each run
    """

    id: str
    title: str
    cost: Cost
    device: str
    function: Callable[[Machine], Outcome]
    in_run: bool = True


@dataclass(frozen=True)
class Result:
    """The outcome of one check, and how long it took."""

    check: str
    title: str
    outcome: Outcome
    seconds: float

    @property
    def status(self) -> str:
        return self.outcome.status

    def as_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "check": self.check,
            "title": self.title,
            "status": outcome.status,
            "expected": outcome.expected,
            "found": outcome.found,
            "source": outcome.source,
            "hint": outcome.hint,
            "details": list(outcome.details),
            "seconds": round(self.seconds, 3),
        }


def fine(found: str, expected: str = "", source: str = "", details: tuple[str, ...] = ()) -> Outcome:
    return Outcome(PASS, found, expected, source, details=details)


def warn(found: str, expected: str, source: str, hint: str, details: tuple[str, ...] = ()) -> Outcome:
    return Outcome(WARN, found, expected, source, hint, details)


def fail(
    found: str, expected: str, source: str, hint: str, details: tuple[str, ...] = (), stops_run: bool = False
) -> Outcome:
    return Outcome(FAIL, found, expected, source, hint, details, stops_run)


def skip(reason: str) -> Outcome:
    return Outcome(SKIP, reason)
