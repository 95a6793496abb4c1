"""The line about images that turned bad: once, at the end of the epoch that met them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.records import BadSample
from msrun_cli.engine.callbacks.bad_images import BadImageSummary


def lines_of_epochs(summary: BadImageSummary, caplog: pytest.LogCaptureFixture, count: int) -> list[list[str]]:
    """What is said at the end of each of `count` epochs."""
    said = []
    for _ in range(count):
        caplog.clear()
        with caplog.at_level(logging.INFO, "msrun"):
            summary.on_train_epoch_end(None)
        said.append([line.getMessage() for line in caplog.records])
    return said


def test_said_once_at_the_end_of_the_first_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = BadSamples("skip", tmp_path / "bad.csv")
    bad.judge({"train": [BadSample("known before.png", "empty")]}, {"train": 9})
    for name in ("图 a.png", "b.png", "b.png"):  # the second time by another worker
        bad.turned_bad(BadSample(name, "cannot be read"))
    summary = BadImageSummary(bad)
    first, second, third = lines_of_epochs(summary, caplog, 3)
    (line,) = first
    assert line.startswith("2 more images turned bad and were left out: ")
    assert "图 a.png: cannot be read" in line and "b.png" in line and "known before" not in line
    assert second == third == []


def test_a_later_epoch_says_only_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = BadSamples("skip", tmp_path / "bad.csv")
    summary = BadImageSummary(bad)
    bad.turned_bad(BadSample("a.png", "gone"))
    assert len(lines_of_epochs(summary, caplog, 1)[0]) == 1
    bad.turned_bad(BadSample("c.png", "gone"))
    (line,) = lines_of_epochs(summary, caplog, 1)[0]
    assert line.startswith("1 more images") and "c.png" in line and "a.png" not in line


@pytest.mark.parametrize("with_file", [False, True])
def test_nothing_is_said_when_there_were_none(
    with_file: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = BadSamples("skip", tmp_path / "bad.csv" if with_file else None)
    assert lines_of_epochs(BadImageSummary(bad), caplog, 2) == [[], []]
    assert not (tmp_path / "bad.csv").exists()
