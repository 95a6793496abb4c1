"""How verdicts look in tables."""

from __future__ import annotations

from rich.text import Text

from msrun_cli.common.status import FAIL, PASS, SKIP, WARN

_STYLES = {PASS: "green", WARN: "yellow", FAIL: "bold red", SKIP: "dim"}


def status_cell(status: str) -> Text:
    return Text(status.upper(), style=_STYLES[status])
