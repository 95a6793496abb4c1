"""Operators from the folder that MindSpore's profiler leaves, in the layout of a CPU or of an Ascend.

The folder is called `<host>_<process>_<time>_ascend_ms` on every device. Files that are missing or damaged leave their
part of the answer empty; what could not be read is named in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msrun_cli.profiling.ascend_tables import AscendTables, read_ascend_tables
from msrun_cli.profiling.csv_rows import read_rows
from msrun_cli.profiling.operators import OperatorRun

TIMESTAMPS = "FRAMEWORK/cpu_op_execute_timestamp_0.txt"
DETAILS = "FRAMEWORK/cpu_op_detail_info_0.csv"
MEMORY = "FRAMEWORK/cpu_ms_memory_record_0.txt"
KERNELS = "ASCEND_PROFILER_OUTPUT/kernel_details.csv"
TRACE = "ASCEND_PROFILER_OUTPUT/trace_view.json"
_NO_PHASE = ("HCCL", "COMMUNICATION")  # accelerator cores of kernels that wait for other devices

T = TypeVar("T")


@dataclass
class RawProfile:
    """runs: executions of operators; ascend: its own tables; memory_mib: largest amount that MindSpore handed out."""

    folder: Path
    runs: list[OperatorRun] = field(default_factory=list)
    ascend: AscendTables | None = None
    memory_mib: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def trace(self) -> Path | None:
        """For a viewer of Chrome traces."""
        return self.folder / TRACE if (self.folder / TRACE).is_file() else None


def find_raw_profile(parent: Path) -> Path | None:
    """The newest folder of MindSpore's profiler below `parent`."""
    found = sorted(parent.glob("*_ascend_ms"), key=lambda path: path.stat().st_mtime) if parent.is_dir() else []
    return found[-1] if found else None


def read_raw_profile(folder: Path) -> RawProfile:
    raw = RawProfile(folder)
    if (folder / KERNELS).is_file():
        raw.runs = _guarded(raw, KERNELS, _kernels) or []
    elif (folder / TIMESTAMPS).is_file():
        raw.runs = _guarded(raw, TIMESTAMPS, _cpu_operators) or []
    else:
        raw.notes.append(f"MindSpore's profiler left no table of operators in {folder}.")
    if (folder / MEMORY).is_file():
        raw.memory_mib = _guarded(raw, MEMORY, _memory)
    raw.ascend = read_ascend_tables(folder / "ASCEND_PROFILER_OUTPUT", raw.notes)
    return raw


def _guarded(raw: RawProfile, name: str, read: Callable[[Path], T]) -> T | None:
    try:
        return read(raw.folder)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raw.notes.append(f"{raw.folder / name} cannot be read ({type(error).__name__}: {error}).")
        return None


def _cpu_operators(folder: Path) -> list[OperatorRun]:
    """Lines of `name;HostCpuOps;start_ns,duration_ms,thread start_ns,duration_ms,thread ...`."""
    types = _types(folder / DETAILS)
    found = []
    with (folder / TIMESTAMPS).open(encoding="utf-8") as lines:
        for line in lines:
            name, _, rest = line.rstrip("\n").split(";", 2)
            kind = types.get(name) or _type_of(name)
            for run in rest.split():
                start_ns, duration_ms, _ = run.split(",", 2)
                # From nanoseconds as integers: as a float, the start would be rounded to a quarter of a microsecond.
                found.append(OperatorRun(name, kind, int(start_ns) / 1000, float(duration_ms) * 1000))
    return found


def _types(path: Path) -> dict[str, str]:
    """Full name of an operator -> its type."""
    if not path.is_file():
        return {}
    return {row["full_op_name"]: row["op_type"] for row in read_rows(path)}


def _type_of(name: str) -> str:
    """`Default/network-Net/Conv2D-op12` -> Conv2D."""
    return name.rsplit("/", 1)[-1].partition("-op")[0]


def _kernels(folder: Path) -> list[OperatorRun]:
    return [
        OperatorRun(row["Name"], row["Type"], float(row["Start Time(us)"]), float(row["Duration(us)"]))
        for row in read_rows(folder / KERNELS)
        if row.get("Accelerator Core", "").upper() not in _NO_PHASE
    ]


def _memory(folder: Path) -> float:
    rows = read_rows(folder / MEMORY)
    return max((float(row["Total Allocated(Byte)"]) for row in rows), default=0.0) / 2**20
