"""Two profiles side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from msrun_cli.reporting.profile_tables import PART_WORDS

_TYPES = 8  # rows


def compare_tables(first: dict[str, Any], second: dict[str, Any], name: str, other: str) -> Group:
    """name, other: what to call them."""
    text = Text(f"A: {name}\nB: {other}\n")
    parts: list[Any] = [text, _settings(first, second), _numbers(first, second)]
    if first["operators"] is not None and second["operators"] is not None:
        parts.append(_operators(first["operators"], second["operators"]))
    verdicts = Text()
    for letter, document in (("A", first), ("B", second)):
        if document["verdict"] is not None:
            verdicts.append(f"{letter}: {' '.join(document['verdict']['sentences'])}\n")
    return Group(*parts, verdicts)


def _settings(first: dict[str, Any], second: dict[str, Any]) -> Table | Text:
    """Only what differs."""
    rows = []
    for section in ("settings", "device"):
        one, two = first[section], second[section]
        keys = [key for key in dict.fromkeys([*one, *two]) if one.get(key) != two.get(key)]
        rows += [(key, one.get(key), two.get(key)) for key in keys]
    rows += [(key, first[key], second[key]) for key in ("msrun", "mindspore", "what") if first[key] != second[key]]
    overrides = [" ".join(document["overrides"]) for document in (first, second)]
    if overrides[0] != overrides[1]:
        rows.append(("overrides", *overrides))
    if not rows:
        return Text("The settings are the same.")
    table = Table(title="Settings that differ")
    for heading in ("setting", "A", "B"):
        table.add_column(heading, overflow="fold")
    for key, one, two in rows:
        table.add_row(key, escape(str(one)), escape(str(two)))
    return table


def measured(document: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """(value, unit) by words, of what was measured."""
    found: dict[str, tuple[float, str]] = {}
    if document["step"] is not None:
        step, memory = document["step"], document["memory"]
        found["images/s"] = (document["images_per_s"], "")
        found["step, median"] = (step["step_ms"]["median"], "ms")
        found |= {PART_WORDS[name]: (value, "ms") for name, value in step["breakdown_ms"].items()}
        found["device idles"] = (100 * document["device_idle"], "%")
        optional = {
            "compilation": (document["compile_s"], "s"),
            "memory peak of the process": (memory["peak_rss_mib"], "MiB"),
            "memory peak of the device": (memory["peak_device_mib"], "MiB"),
        }
        found |= {words: (value, unit) for words, (value, unit) in optional.items() if value is not None}
    if document["data"] is not None:
        found["input pipeline alone, images/s"] = (document["data"]["images_per_s"], "")
    return found


def _numbers(first: dict[str, Any], second: dict[str, Any]) -> Table:
    table = Table(title="Measured")
    table.add_column("", no_wrap=True)
    for heading in ("A", "B", "B / A"):
        table.add_column(heading, justify="right", no_wrap=True)
    one, two = measured(first), measured(second)
    for words in dict.fromkeys([*one, *two]):
        cells = [_cell(values.get(words)) for values in (one, two)]
        both = words in one and words in two and one[words][0]
        table.add_row(words, *cells, f"x{two[words][0] / one[words][0]:.2f}" if both else "-")
    return table


def _cell(found: tuple[float, str] | None) -> str:
    return "-" if found is None else f"{found[0]:.1f} {found[1]}".strip()


def _operators(first: dict[str, Any], second: dict[str, Any]) -> Table:
    """The types with the largest difference in time."""
    one, two = ({row["name"]: row["ms"] for row in operators["by_type"]} for operators in (first, second))
    differences = {name: abs(two.get(name, 0.0) - one.get(name, 0.0)) for name in [*one, *two]}
    names = sorted(differences, key=lambda name: -differences[name])[:_TYPES]
    table = Table(title="Operators whose time differs most, ms per step")
    table.add_column("type", overflow="fold")
    for heading in ("A", "B", "B - A"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in names:
        a, b = one.get(name, 0.0), two.get(name, 0.0)
        table.add_row(escape(name), f"{a:.2f}", f"{b:.2f}", f"{b - a:+.2f}")
    return table
