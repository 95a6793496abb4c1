"""The table of `npu-smi info`, in all shapes it has had: lines are split at "|", never at columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")
_PROCESS = re.compile(r"^\d+(\s+\d+)?$")


@dataclass
class Chip:
    """One chip: npu, chip: its numbers; memory_mb: (used, total) of its HBM, or of its memory where it has no HBM."""

    npu: int
    chip: int
    name: str
    health: str
    bus: str = ""
    memory_mb: tuple[int, int] | None = None


@dataclass(frozen=True)
class Process:
    npu: int
    pid: int
    name: str
    memory_mb: int | None


@dataclass
class Table:
    """tool: version of npu-smi."""

    tool: str | None = None
    chips: list[Chip] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)


def parse(text: str) -> Table:
    """Unknown lines are left out; a table that is none has no chips."""
    table = Table()
    match = re.search(r"npu-smi\s+(\S+)", text)
    table.tool = match.group(1) if match else None
    health_column, in_processes = 1, False
    current: Chip | None = None
    for line in text.splitlines():
        if "|" not in line:
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if any(cell.startswith("Process id") for cell in cells):
            in_processes = True
        elif "Health" in cells:
            health_column = cells.index("Health")
        elif in_processes:
            _add_process(table, cells)
        elif _is_first_row(cells, health_column, current is None):
            number, name = cells[0].split(None, 1)
            current = Chip(int(number), 0, name, cells[health_column])
        elif current is not None and _PROCESS.match(cells[0]):
            _complete(current, cells)
            table.chips.append(current)
            current = None
    return table


def _is_first_row(cells: list[str], health_column: int, expected: bool) -> bool:
    """expected: none is half read; a chip may be called just 310, which looks like a second row's numbers."""
    words = cells[0].split()
    if len(words) < 2 or not words[0].isdigit() or len(cells) <= health_column:
        return False
    return cells[health_column].isalpha() and (expected or not words[1].isdigit())


def _complete(chip: Chip, cells: list[str]) -> None:
    """The second row: chip (and device) number, bus, use of cores and memory."""
    chip.chip = int(cells[0].split()[0])
    chip.bus = cells[1] if len(cells) > 1 else ""
    pairs = _PAIR.findall(" ".join(cells[2:]))
    if pairs:
        chip.memory_mb = (int(pairs[-1][0]), int(pairs[-1][1]))


def _add_process(table: Table, cells: list[str]) -> None:
    if len(cells) < 2 or not _PROCESS.match(cells[0]) or not cells[1].isdigit():
        return
    memory = re.match(r"\d+", cells[3]) if len(cells) > 3 else None
    table.processes.append(
        Process(
            int(cells[0].split()[0]),
            int(cells[1]),
            cells[2] if len(cells) > 2 else "",
            int(memory.group(0)) if memory else None,
        )
    )
