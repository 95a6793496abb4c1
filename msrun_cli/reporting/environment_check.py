"""What `check-env` shows: the table, JSON, the block for an issue thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from msrun_cli import __version__
from msrun_cli.common.status import FAIL, PASS, SKIP, WARN
from msrun_cli.environment.examination import Examination
from msrun_cli.environment.explain import Explanation
from msrun_cli.environment.host import Host
from msrun_cli.environment.redact import Redactor, shown_variables
from msrun_cli.environment.results import Check, Result
from msrun_cli.reporting.statuses import status_cell

SCHEMA_VERSION = 1


def report_json(examination: Examination) -> dict[str, Any]:
    """The document of --json (docs/check-env.md)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "msrun": __version__,
        "status": examination.status,
        "device": examination.device,
        "counts": {status: len(examination.named(status)) for status in (PASS, WARN, FAIL, SKIP)},
        "checks": [result.as_json() for result in examination.results],
    }


def report_table(examination: Examination, verbose: bool) -> Group:
    """One row for each check that was made; below, on lines that can be copied, what to do.

    verbose: also source, details, times, and why checks were skipped
    """
    table = Table(title="Environment", show_lines=verbose)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    for result in examination.results:
        if result.status != SKIP:
            table.add_row(result.check, status_cell(result.status), _words(result, verbose))
    left_out = examination.named(SKIP)
    parts: list[Any] = [table]
    if left_out and verbose:
        parts.append(
            Text("\n".join(["not checked:", *(f"  {r.check}: {r.outcome.found}" for r in left_out)]), style="dim")
        )
    elif left_out:
        parts.append(Text(f"not checked: {', '.join(result.check for result in left_out)}", style="dim"))
    hints = [result for result in (*examination.named(FAIL), *examination.named(WARN)) if result.outcome.hint]
    if hints:
        # Below the table and not in it: a command has to be copied in one piece.
        parts.append(Text("what to do:", style="bold"))
        parts += [Text(f"  {result.check}: {result.outcome.hint}") for result in hints]
    return Group(*parts, Text(summary(examination)))


def _words(result: Result, verbose: bool) -> Text:
    # Text and not markup: a path may have square brackets.
    outcome = result.outcome
    words = Text(outcome.found)
    if outcome.expected and (verbose or result.status != PASS):
        words.append(f"\n  expected: {outcome.expected}", style="dim")
    if verbose:
        if outcome.source:
            words.append(f"\n  source: {outcome.source}", style="dim")
        for line in outcome.details:
            words.append(f"\n  {line}", style="dim")
        words.append(f"\n  {result.seconds:.2f} s", style="dim")
    elif result.check == "smoke" and result.status == FAIL:
        for line in outcome.details[-8:]:
            words.append(f"\n  | {line}", style="dim")
    return words


def summary(examination: Examination) -> str:
    counts = ", ".join(
        f"{count} {word}{'s' if word == 'warning' and count > 1 else ''}"
        for status, word in ((PASS, "passed"), (WARN, "warning"), (FAIL, "failed"), (SKIP, "not checked"))
        if (count := len(examination.named(status)))
    )
    device = {"cpu": "the CPU", "ascend": "the Ascend device"}[examination.device]
    failed = [result.check for result in examination.named(FAIL)]
    if failed:
        return f"{counts}. Mend first: {failed[0]}. For {device}; --device chooses another, -v shows more."
    return f"{counts}. {device[0].upper()}{device[1:]} is ready, as far as these checks see."


def report_block(examination: Examination, host: Host, versions: Sequence[str], verbose: bool) -> str:
    """Markdown to copy into an issue thread, without secrets, addresses and names."""
    lines = [f"### msrun check-env ({__version__})", "", "```text", f"device: {examination.device}"]
    for result in examination.results:
        outcome = result.outcome
        if result.status == SKIP and not verbose:
            continue
        lines.append(f"[{result.status.upper()}] {result.check}: {outcome.found}")
        if result.status in (WARN, FAIL):
            lines += [f"    expected: {outcome.expected}", f"    source: {outcome.source}"]
        if result.status in (WARN, FAIL) or verbose:
            lines += [f"    {line}" for line in outcome.details]
    skipped = [result.check for result in examination.named(SKIP)]
    if skipped and not verbose:
        lines.append(f"not checked: {', '.join(skipped)}")
    lines += ["", "variables:", *(f"  {name}={value}" for name, value in shown_variables(host.environ).items()), "```"]
    redact = Redactor(host, versions)
    return "\n".join(redact(line) for line in lines)


def checks_table(groups: dict[str, tuple[Check, ...]]) -> Table:
    """For --list."""
    table = Table(title="Checks")
    for heading in ("group", "check", "for", "cost"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", overflow="fold")
    for group, checks in groups.items():
        for position, check in enumerate(checks):
            shown = "" if position else group
            table.add_row(shown, check.id, check.device, check.cost.name.lower(), check.title)
    return table


def explanations_text(found: Sequence[Explanation], lines: int) -> str:
    if not found:
        return f"no known error text in {lines} lines. `msrun check-env` looks at the machine itself."
    return "\n\n".join(item.paragraph() for item in found)


def explanations_json(found: Sequence[Explanation], lines: int) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "lines": lines, "errors": [item.as_json() for item in found]}


def checks_json(groups: dict[str, tuple[Check, ...]]) -> list[dict[str, str]]:
    """For --list --json."""
    return [
        {"check": c.id, "group": group, "device": c.device, "cost": c.cost.name.lower(), "title": c.title}
        for group, checks in groups.items()
        for c in checks
    ]
