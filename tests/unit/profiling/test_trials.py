from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from msrun_cli.profiling import trials
from msrun_cli.profiling.document import write_document
from msrun_cli.profiling.levels import compare_levels
from msrun_cli.profiling.proposals import FAILED, FASTER, SLOWER, UNCLEAR, Proposal
from msrun_cli.profiling.trials import (
    Trial,
    TrialRunner,
    best_overrides,
    combined,
    gain_of,
    outcome_of,
    paste_line,
    run_process,
    try_all,
)

SLOW, FAST = 100.0, 130.0


def speeds(around: float, spread: float = 0.02, count: int = 20) -> list[float]:
    return (around * (1 + spread * np.random.default_rng(1).standard_normal(count))).tolist()


def trial(around: float, batch_size: int = 8, **more) -> Trial:
    totals = [1000 * batch_size / speed for speed in speeds(around)]
    return Trial(Path("x"), {"settings": {"batch_size": batch_size}, "step": {"totals_ms": totals}, **more})


@pytest.mark.parametrize(
    ("speed", "noise", "outcome"),
    [
        (130, 0.0, FASTER),
        (70, 0.0, SLOWER),
        (100, 0.0, UNCLEAR),
        (102, 0.0, UNCLEAR),  # surely faster, but not by enough
        (130, 0.5, UNCLEAR),  # equal measurements differ by more
    ],
)
def test_outcomes(speed: float, noise: float, outcome: str) -> None:
    gain = gain_of(speeds(100), speeds(speed, 0.002), noise)
    assert gain.low < gain.value < gain.high
    assert gain.value == pytest.approx(speed / 100, rel=0.02)
    assert outcome_of(gain) == outcome


def test_all_are_tried_and_only_faster_ones_are_recommended() -> None:
    measured = {
        "batch_size=16": trial(FAST, 16),
        "dataset.workers=1": trial(110),
        "amp=O2": trial(60),
        "device.sink=on": Trial(Path("x"), None, "exit code 1: no such device"),
        "as_it_is": trial(SLOW),
        "batch_size=16 dataset.workers=1": trial(150, 16),
    }
    ran, said = [], []

    def run(name: str, *overrides: str) -> Trial:
        ran.append((name, overrides))
        return measured[name]

    proposals = [
        Proposal((name,), "why", "caveat" if "batch" in name else None)
        for name in ("batch_size=16", "dataset.workers=1", "amp=O2", "device.sink=on")
    ]
    found, noise = try_all(proposals, run, speeds(SLOW), said.append)
    assert [item.outcome for item in found] == [FASTER, FASTER, SLOWER, FAILED, FASTER]
    assert found[3].error == "exit code 1: no such device" and found[3].gain is None
    assert noise < 0.02
    # those that were faster are measured together, too
    assert ran[-1] == ("batch_size=16 dataset.workers=1", ("batch_size=16", "dataset.workers=1"))
    assert found[-1].caveat == "caveat"
    assert best_overrides(found) == ("batch_size=16", "dataset.workers=1")
    assert any("device.sink=on: exit code 1" in line for line in said)


def test_what_measured_slower_is_never_recommended() -> None:
    found, _ = try_all(
        [Proposal(("amp=O2",), "")], lambda name, *_: trial(60 if "amp" in name else 100), speeds(100), print
    )
    assert found[0].outcome == SLOWER and best_overrides(found) == ()
    assert paste_line(["model=yolov5n"], best_overrides(found)) is None


def test_words_of_a_trial() -> None:
    words = [
        "amp=O1",
        "amp.level=O3",
        "amp.dtype=bfloat16",
        "+x=1",
        "profile.try=true",
        "profile.amp=[O0,O2]",
        "hydra.run.dir=a",
        "epochs=3",
    ]
    assert combined(words, ["amp=O2", "profile.try=false", "profile.amp=[]"]) == [
        "amp.dtype=bfloat16",
        "+x=1",
        "epochs=3",
        "amp=O2",
        "profile.try=false",
        "profile.amp=[]",
    ]
    assert paste_line(['dataset.root="/a b"', "amp=O0"], ["amp=O2"]) == "msrun train 'dataset.root=\"/a b\"' amp=O2"


def test_a_trial_reads_the_document_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(command, output):
        seen.append(command)
        output.write_text("note\nerror: batch_size=1000: too few pictures.\n")
        if "batch_size=1000" in command:
            return 3
        write_document(output.parent, {"settings": {"batch_size": 8}, "step": {"totals_ms": [80.0, 100.0]}})
        return 0

    monkeypatch.setattr(trials, "run_process", run)
    runner = TrialRunner(["epochs=3"], ["--config-dir", "my dir"], tmp_path / '试 "x"')
    assert runner.run("amp=O2", "amp=O2").speeds == [100.0, 80.0]
    failed = runner.run("batch_size=1000", "batch_size=1000")
    assert failed.document is None and failed.error == "exit code 3: batch_size=1000: too few pictures."
    command = seen[0]
    assert command[1:6] == ["-m", "msrun_cli", "profile", "--config-dir", "my dir"]
    assert "epochs=3" in command and "profile.try=false" in command and command[-1] == "hydra.mode=RUN"
    (place,) = [word for word in command if word.startswith("hydra.run.dir=")]
    assert place.endswith('试 \\"x\\"/amp=O2"')


def test_a_process_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    began = time.monotonic()
    assert run_process([sys.executable, "-c", child], tmp_path / "out.log", timeout_s=0.5) == 124
    assert time.monotonic() - began < 15
    assert "not done after" in (tmp_path / "out.log").read_text()
    assert run_process([sys.executable, "-c", "print('中'); raise SystemExit(3)"], tmp_path / "out.log") == 3


def test_an_interrupt_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen] = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named)
            started.append(self)

        def wait(self, timeout=None):
            if len(started) == 1 and timeout is not None and timeout > 100:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_process([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "out.log")
    assert started[0].poll() is not None


def level_document(around: float, losses: list[float | None], memory: float) -> Trial:
    found = trial(
        around,
        losses=losses,
        images_per_s=around,
        compile_s=12.0,
        memory={"peak_rss_mib": memory, "peak_device_mib": None},
    )
    assert found.document is not None
    found.document["step"]["step_ms"] = {"median": 1000 * 8 / around, "p10": 1.0, "p90": 2.0}
    return found


def test_levels_are_compared_with_the_first() -> None:
    measured = {
        "amp=O0": level_document(100, [2.0, 1.0, 0.8], 1000),
        "amp=O2": level_document(150, [2.02, 0.9], 700),
        "amp=O3": Trial(Path("x"), None, "exit code 1: no kernel"),
        "amp=O1": level_document(150, [2.02, None], 700),  # not finite
    }
    words = []

    def run(name: str, *overrides: str) -> Trial:
        words.append(overrides)
        return measured[name]

    rows = compare_levels(["O0", "O2", "O3", "O1", "O0"], run, lambda text: None)
    assert words[1] == ("amp=O2", "profile.what=step")
    assert [row["level"] for row in rows] == ["O0", "O2", "O3", "O1"]
    base, half, failed, odd = rows
    assert odd["loss_after"] is None and odd["loss_difference_after"] is None
    assert (base["outcome"], half["outcome"], failed["error"]) == (None, FASTER, "exit code 1: no kernel")
    assert half["loss_difference"] == pytest.approx(0.01)
    assert failed.keys() == {"level", "error"}
    # after as many steps as all levels have made
    assert half["after_steps"] == 1 and half["loss_difference_after"] == pytest.approx(-0.1)
    assert (base["peak_rss_mib"], half["peak_rss_mib"]) == (1000, 700)
