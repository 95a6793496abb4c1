"""MindSpore's profiler around some steps. What it writes and prints goes into one folder."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore.profiler as msprof

from msrun_cli.runtime.mindspore_versions import profile_communication

log = logging.getLogger("msrun")

PRINTED = "analysis.log"


class ProfilerSession:
    """start() ... stop() once. Where the profiler fails, `error` says how, and training goes on.

    folder: what it leaves is below; on_ascend: also communication, memory and the queues of the dataset
    """

    def __init__(self, folder: Path, on_ascend: bool) -> None:
        self.folder, self.on_ascend = folder, on_ascend
        self.error: str | None = None
        self._profiler: Any = None

    def start(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _printed_to(self.folder / PRINTED):
                self._profiler = msprof.profile(
                    start_profile=False,
                    profile_memory=True,
                    data_process=self.on_ascend,
                    on_trace_ready=msprof.tensorboard_trace_handler(str(self.folder)),
                    **(profile_communication() if self.on_ascend else {}),
                )
                self._profiler.start()
        except (RuntimeError, ValueError, TypeError, OSError, AttributeError) as error:
            self._failed("start", error)

    def stop(self) -> None:
        """Also analyses, in a process of its own; takes seconds."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        try:
            with _printed_to(self.folder / PRINTED):
                profiler.stop()
        except (RuntimeError, ValueError, TypeError, OSError, AttributeError) as error:
            self._failed("stop", error)

    def _failed(self, what: str, error: Exception) -> None:
        self._profiler = None
        self.error = f"MindSpore's profiler did not {what} ({type(error).__name__}: {str(error).splitlines()[0]})"
        log.warning("%s: the profile has no operators.", self.error)


@contextmanager
def _printed_to(path: Path) -> Iterator[None]:
    """Standard output and error of this process and its children go to a file: the profiler prints bars."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for number in (1, 2):
            os.dup2(target, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(target)
