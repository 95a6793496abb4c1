"""The arithmetic of scripts/scaling.py against cases that can be done by hand."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "scaling.py"
spec = importlib.util.spec_from_file_location("scaling", SCRIPT)
scaling = importlib.util.module_from_spec(spec)
sys.modules["scaling"] = scaling
spec.loader.exec_module(scaling)

# 4 MB of gradients, links of 1 GB/s, no delay.
JOB = scaling.Job(0.1, 10, 1e6, 8, 1e9, 1e9, 0.0, 100_000)


def test_rings():
    assert scaling.communication_s(JOB, 1) == 0
    assert scaling.communication_s(JOB, 2) == pytest.approx(0.004)  # each sends its half twice
    assert scaling.communication_s(JOB, 8) == pytest.approx(0.007)
    # two hosts: as one, and then an eighth of the bytes between them
    assert scaling.communication_s(JOB, 16) == pytest.approx(0.007 + 0.0005)
    delayed = dataclasses.replace(JOB, delay_s=1e-3)
    assert scaling.communication_s(delayed, 16) == pytest.approx(0.0075 + 14e-3 + 2e-3)


def test_efficiency_and_what_holds_back():
    alone, eight = scaling.predict(JOB, 1), scaling.predict(JOB, 8)
    assert (alone.efficiency, alone.images_per_s, alone.held_back_by) == (1, 100, "nothing")
    assert eight.efficiency == pytest.approx(100 / 107) and eight.efficiency_hidden == 1
    assert eight.images_per_s == pytest.approx(80 / 0.107)
    slow = dataclasses.replace(JOB, parameters=1e8)  # 0.7 s of communication, 0.0667 of them hidden
    assert scaling.predict(slow, 8).efficiency == pytest.approx(1 / 8)
    assert scaling.predict(slow, 8).efficiency_hidden == pytest.approx(0.1 / (0.1 + 0.7 - 0.2 / 3))
    assert "batch_size" in scaling.predict(slow, 8).held_back_by
    starved = dataclasses.replace(JOB, host_images_per_s=400)
    assert scaling.predict(starved, 16).images_per_s == 800
    assert "dataset.workers" in scaling.predict(starved, 16).held_back_by
    assert scaling.predict(JOB, 1024).held_back_by.startswith("too few updates")
    assert scaling.predict(JOB, 1024).steps_per_epoch == 9


def test_the_command(tmp_path):
    words = [sys.executable, str(SCRIPT), "--step-ms", "100", "--batch-size", "16", "--parameters", "7.2e6"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [result["devices"] for result in found["results"]] == [1, 8, 64, 1024]
    assert "7.20 million parameters, 28.8 MB a step" in done.stdout
    done = subprocess.run(words[:-2], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "either --model or --parameters" in done.stderr
