"""Tables that MindSpore's profiler writes on an Ascend only: step trace, communication, dataset queues, memory.

Their layout is that of MindSpore 2.7 to 2.10 (docs/profile.md). All of them are optional.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msrun_cli.profiling.csv_rows import read_rows

_STEP_COLUMNS = {
    "computing": "Computing",
    "communication": "Communication",
    "communication_not_overlapped": "Communication(Not Overlapped)",
    "overlapped": "Overlapped",
    "free": "Free",
    "preparing": "Preparing",
}


@dataclass(frozen=True)
class AscendTables:
    """step_trace: milliseconds by part, sums over the whole profile, and "rows", the number of its rows;
    communication, dataset, memory_mib: see the functions below. None = there is no such table.
    """

    step_trace: dict[str, float] | None = None
    communication: dict[str, Any] | None = None
    dataset: dict[str, Any] | None = None
    memory_mib: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "step_trace_ms": self.step_trace,
            "communication": self.communication,
            "dataset": self.dataset,
            "memory_mib": self.memory_mib,
        }


def read_ascend_tables(folder: Path, notes: list[str]) -> AscendTables | None:
    """None when none of the tables is there. Sentences on damaged files are added to `notes`."""

    def read(pattern: str, reader: Callable[[Path], Any]) -> Any:
        path = next(iter(sorted(folder.glob(pattern))), None) if folder.is_dir() else None
        if path is None:
            return None
        try:
            return reader(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            notes.append(f"{path} cannot be read ({type(error).__name__}: {error}).")
            return None

    tables = AscendTables(
        step_trace=read("step_trace_time.csv", read_step_trace),
        communication=read("communication.json", read_communication),
        dataset=read("minddata_pipeline_summary_*.json", read_dataset_summary)
        or read("dataset.csv", read_dataset_times),
        memory_mib=read("memory_record.csv", read_memory),
    )
    return None if tables == AscendTables() else tables


def read_step_trace(path: Path) -> dict[str, float] | None:
    """Milliseconds of all rows together, by part. The file holds microseconds; without step marks it has one row."""
    rows = list(read_rows(path))
    if not rows:
        return None
    sums = {
        part: sum(float(row[column] or 0) for row in rows) / 1000
        for part, column in _STEP_COLUMNS.items()
        if column in rows[0]
    }
    return {**sums, "rows": float(len(rows))}


def read_communication(path: Path) -> dict[str, Any] | None:
    """operators: the ten longest by name, with elapsed and waiting milliseconds; elapsed_ms, wait_ms: of all."""
    steps = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for step in steps.values():
        for kind in ("p2p", "collective"):
            for name, about in step.get(kind, {}).items():
                times = about.get("Communication Time Info", {})
                if name.startswith("Total"):
                    continue
                entry = found.setdefault(name.split("@")[0], [0.0, 0.0])
                entry[0] += float(times.get("Elapse Time(ms)", 0))
                entry[1] += float(times.get("Wait Time(ms)", 0))
    if not found:
        return None
    longest = sorted(found.items(), key=lambda item: -item[1][0])
    return {
        "elapsed_ms": sum(elapsed for elapsed, _ in found.values()),
        "wait_ms": sum(wait for _, wait in found.values()),
        "operators": [{"name": name, "elapsed_ms": spent, "wait_ms": wait} for name, (spent, wait) in longest[:10]],
    }


def read_dataset_summary(path: Path) -> dict[str, Any] | None:
    """stages: name, workers, and how often their output queue was empty or how full it was, in per cent; the
    profiler's own warning. The first stage hands batches to the device: an empty queue there is a device that waits.
    """
    summary = json.loads(path.read_text(encoding="utf-8"))
    names = summary.get("pipeline_ops") or []
    stages = [
        {
            "name": name,
            "workers": _at(summary.get("num_workers"), index),
            "queue_empty_pct": _at(summary.get("queue_empty_freq_pct"), index),
            "queue_used_pct": _at(summary.get("queue_utilization_pct"), index),
            "cpu_pct": _at(summary.get("avg_cpu_pct"), index),
        }
        for index, name in enumerate(names)
    ]
    warning = " ".join(map(str, [*summary.get("bottleneck_warning", []), *summary.get("bottleneck_suggestion", [])]))
    names_of_times = ("per_batch_time", "per_pipeline_time", "per_push_queue_time")
    times = {f"{name}_ms": _mean(summary.get(name)) for name in names_of_times}
    return {"stages": stages, "warning": warning or None, **times} if stages else None


def read_dataset_times(path: Path) -> dict[str, Any] | None:
    """stages: operations of the pipeline with their mean milliseconds and how often they happened."""
    stages = [
        {
            "name": f"{row['Operation']} {row['Stage']}".strip(),
            "mean_ms": float(row["Avg. time (us)"]) / 1000,
            "count": int(float(row["Occurrences"])),
        }
        for row in read_rows(path)
    ]
    return {"stages": stages} if stages else None


def read_memory(path: Path) -> float | None:
    """MiB at most allocated by MindSpore. A "MB" of the file is 1000 KiB."""
    values = [float(row["Total Allocated(MB)"]) for row in read_rows(path) if row["Total Allocated(MB)"]]
    return max(values) * 1000 / 1024 if values else None


def _at(values: Any, index: int) -> float | None:
    """A number of a list; -1 stands for "not measured"."""
    if not isinstance(values, list) or index >= len(values) or not isinstance(values[index], (int, float)):
        return None
    return None if values[index] < 0 else float(values[index])


def _mean(values: Any) -> float | None:
    numbers = [value for value in values if isinstance(value, (int, float)) and value >= 0] if values else []
    return statistics.fmean(numbers) if numbers else None
