"""Reading what MindSpore's profiler writes, in the layouts of a CPU and of an Ascend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from raw_folders import NETWORK, write_ascend, write_cpu

from msrun_cli.profiling.ascend_tables import read_dataset_times
from msrun_cli.profiling.operators import summarize_operators
from msrun_cli.profiling.raw_tables import find_raw_profile, read_raw_profile


def test_cpu(tmp_path: Path) -> None:
    raw = read_raw_profile(write_cpu(tmp_path))
    assert raw.notes == [] and raw.ascend is None
    assert raw.memory_mib == 5
    assert raw.trace is not None and raw.trace.name == "trace_view.json"
    assert [(run.type, run.duration_us) for run in raw.runs] == [
        ("Conv2D", 2500),
        ("Conv2D", 3500),
        ("Conv2DBackpropFilter", 4000),  # not in the table of details: its name tells
        ("Conv2DBackpropFilter", 4000),
    ]
    assert raw.runs[1].start_us - raw.runs[0].start_us == pytest.approx(1e6, abs=0.5)
    summary = summarize_operators(raw.runs, 2)
    assert summary is not None
    assert summary.phases_ms == pytest.approx({"forward": 3, "backward": 4, "update": 0})
    assert summary.busy_ms == pytest.approx(7, abs=0.01)


def test_ascend(tmp_path: Path) -> None:
    raw = read_raw_profile(write_ascend(tmp_path))
    assert raw.notes == []
    assert [(run.name, run.start_us, run.duration_us) for run in raw.runs] == [
        (f"{NETWORK}/Conv2D-op0", 1000.5, 200),
        (f"Gradients/{NETWORK}/Grad_Conv2D/Conv2DBackpropFilter-op0", 1300.5, 300),
        (f"{NETWORK}/Conv2D-op0", 3000.5, 220),
    ]  # what waits for other devices is no computing
    tables = raw.ascend
    assert tables is not None
    assert tables.step_trace == {
        "computing": 6,
        "communication": 3,
        "communication_not_overlapped": 2.5,
        "overlapped": 0.5,
        "free": 1.5,
        "preparing": 0,
        "rows": 1,
    }
    assert tables.communication is not None
    assert (tables.communication["elapsed_ms"], tables.communication["wait_ms"]) == (11, 3)
    assert tables.communication["operators"][0] == {"name": "hcom_broadcast__2", "elapsed_ms": 8, "wait_ms": 2}
    assert tables.dataset is not None
    queue, generator = tables.dataset["stages"]
    assert queue["queue_empty_pct"] == 72.5 and generator["queue_empty_pct"] is None and generator["workers"] == 8
    assert tables.dataset["per_batch_time_ms"] == 13 and "bottleneck. More workers." in tables.dataset["warning"]
    assert tables.memory_mib == 2000


def test_operations_of_the_dataset(tmp_path: Path) -> None:
    out = write_ascend(tmp_path) / "ASCEND_PROFILER_OUTPUT"
    assert read_dataset_times(out / "dataset.csv") == {
        "stages": [{"name": "GeneratorOp run", "mean_ms": 1.5005, "count": 20}]
    }
    (out / "minddata_pipeline_summary_0.json").unlink()
    tables = read_raw_profile(out.parent).ascend
    assert tables is not None and tables.dataset is not None and tables.dataset["stages"][0]["count"] == 20


def test_damaged_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = write_ascend(tmp_path)
    out = folder / "ASCEND_PROFILER_OUTPUT"
    (out / "communication.json").write_text('{"step')
    (out / "kernel_details.csv").write_text("Name,Type\nx,y\n")
    raw = read_raw_profile(folder)
    assert raw.runs == [] and raw.ascend is not None and raw.ascend.step_trace is not None
    assert len(raw.notes) == 2 and "kernel_details.csv" in raw.notes[0] and "communication.json" in raw.notes[1]


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    raw = read_raw_profile(tmp_path)
    assert raw.runs == [] and raw.ascend is None and "no table of operators" in raw.notes[0]


def test_the_newest_folder_is_found(tmp_path: Path) -> None:
    assert find_raw_profile(tmp_path / "nowhere") is None and find_raw_profile(tmp_path) is None
    old, new = tmp_path / "z_1_1_ascend_ms", tmp_path / "a_2_2_ascend_ms"
    for age, folder in ((100, old), (50, new)):
        folder.mkdir()
        os.utime(folder, (age * -1 + 1e9, age * -1 + 1e9))
    assert find_raw_profile(tmp_path) == new
