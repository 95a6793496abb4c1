"""`check-env`: no Hydra, no configuration, and nothing that a broken MindSpore, numpy or OpenCV could stop."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msrun_cli.common.errors import ConfigError
from msrun_cli.common.status import FAIL, WARN

if TYPE_CHECKING:
    from rich.console import Console

    from msrun_cli.environment.results import Check


@dataclass(frozen=True)
class Wishes:
    """Options of the command line."""

    verbose: bool = False
    json: bool = False
    report: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    list: bool = False
    quick: bool = False
    strict: bool = False
    device: str = "auto"
    root: str | None = None
    explain: str | None = None


def run(wishes: Wishes) -> int:
    """Exit code: 0 fine, 1 a check failed (or warned, with `strict`), 2 usage."""
    for stream in (sys.stdout, sys.stderr):  # names of files may not fit the terminal's encoding
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if wishes.explain is not None:
            return _explain(wishes.explain, wishes.json)
        if wishes.list:
            return _list(wishes.json)
        return _check(wishes)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `| head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _check(wishes: Wishes) -> int:
    from msrun_cli.environment.examination import choose, examine
    from msrun_cli.environment.local import LocalHost
    from msrun_cli.environment.machine import Machine
    from msrun_cli.environment.tree import TreeHost
    from msrun_cli.reporting.environment_check import report_block, report_json, report_table

    checks = choose(wishes.only, wishes.skip, wishes.quick)
    host = LocalHost() if wishes.root is None else TreeHost(wishes.root)
    with _progress() as started:
        examination = examine(host, wishes.device, checks, started)
    if wishes.json:
        print(json.dumps(report_json(examination), indent=2))  # in ASCII, whatever the locale
    elif wishes.report:
        versions = [copy.version for copies in Machine(host).packages.values() for copy in copies]
        print(report_block(examination, host, versions, wishes.verbose))
    else:
        _console().print(report_table(examination, wishes.verbose))
    wrong = examination.status == FAIL or wishes.strict and examination.status == WARN
    return 1 if wrong else 0


def _list(as_json: bool) -> int:
    from msrun_cli.environment.registry import GROUPS
    from msrun_cli.reporting.environment_check import checks_json, checks_table

    if as_json:
        print(json.dumps(checks_json(GROUPS), indent=2))
    else:
        _console().print(checks_table(GROUPS))
    return 0


def _explain(name: str, as_json: bool) -> int:
    from msrun_cli.environment.explain import explain_lines
    from msrun_cli.reporting.environment_check import explanations_json, explanations_text

    lines = _Counted(_lines(name))
    found = explain_lines(lines)
    if as_json:
        print(json.dumps(explanations_json(found, lines.count), indent=2))
    else:
        print(explanations_text(found, lines.count))
    return 0


class _Counted:
    """An iterator that knows how many items it gave."""

    def __init__(self, items: Iterable[str]) -> None:
        self.items, self.count = items, 0

    def __iter__(self) -> Iterator[str]:
        for item in self.items:
            self.count += 1
            yield item


def _lines(name: str) -> Iterator[str]:
    """Of a file or, for "-", of standard input; a log may hold bytes that are no text."""
    try:
        if name == "-":
            yield from io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
        else:
            with open(name, encoding="utf-8", errors="replace") as file:
                yield from file
    except OSError as error:
        raise ConfigError(
            f"--explain {name}: the log cannot be read ({error.strerror}). Give a text file, or - for standard input."
        ) from error


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Callable[[Check], None]]:
    """What is being checked, on stderr, where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda check: None
        return
    with console.status("checking ...") as status:
        yield lambda check: status.update(f"checking {check.id} ...")
