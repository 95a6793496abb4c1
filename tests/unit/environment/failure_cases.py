"""Cases of failures: a healthy machine, what spoils it, and the check that must name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machines import Machine, healthy

Spoil = Callable[[Machine], None]


@dataclass
class Cases:
    params: list[object] = field(default_factory=list)

    def __call__(self, check: str, status: str, hint: str) -> Callable[[Spoil], Spoil]:
        """Registers the function as a machine with that fault. hint: a part of the remedy."""

        def register(spoil: Spoil) -> Spoil:
            self.params.append(pytest.param(spoil, check, status, hint, id=spoil.__name__))
            return spoil

        return register


def examine_spoilt(folder: Path, spoil: Spoil, check: str, status: str, hint: str) -> None:
    machine = healthy(folder)
    assert machine.check(check).status == "pass", "the healthy machine must pass"
    spoil(machine)
    result = machine.check(check)
    assert result.status == status, result
    assert hint in result.outcome.hint, result
    assert result.outcome.found and result.outcome.expected and result.outcome.source, result
