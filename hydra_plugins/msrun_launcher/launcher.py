"""Hydra launcher that runs each job of a sweep in a process of its own.

MindSpore fixes the device target when it is first used, so jobs of one process could not differ in it, and memory of
one job would stay with the next.

Hydra executes plugin modules without entering them in sys.modules, where a dataclass with postponed annotations fails:
no `from __future__ import annotations` here.
"""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

_GRACE_S = 60  # an interrupted job saves its state
_NOT_FOR_JOBS = ("hydra.mode", "hydra.sweep", "hydra/sweeper", "hydra.sweeper", "hydra/launcher", "hydra.launcher")


@dataclass
class MsrunLauncherConf:
    _target_: str = "hydra_plugins.msrun_launcher.launcher.MsrunLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="msrun", node=MsrunLauncherConf, provider="msrun_launcher")


class MsrunLauncher(Launcher):
    """Jobs run one after the other; a failed job does not keep the next from running.

    The task must offer `child_command(overrides) -> list[str]`, the command line of one job, and
    `child_failed(label, exit_code, folder)`.
    """

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.task: Any = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        results = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            results.append(self._launch_one(number, list(overrides), initial_job_idx + len(job_overrides)))
        return results

    def _launch_one(self, number: int, overrides: list[str], total: int) -> JobReturn:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
        folder.mkdir(parents=True, exist_ok=True)
        label = " ".join(filter_overrides(overrides)) or "no overrides"
        print(f"job {number + 1} of {total}: {label}", file=sys.stderr, flush=True)

        own = [text for text in self.config.hydra.overrides.hydra if not text.lstrip("+~").startswith(_NOT_FOR_JOBS)]
        own = [text for text in own if not text.startswith("hydra.run.dir")]
        words = [*overrides, *own, f"hydra.run.dir={_quoted(str(folder))}", "hydra.mode=RUN"]
        code = _run(self.task.child_command(words))
        return self._result(config, overrides, folder, label, code)

    def _result(self, config: DictConfig, overrides: list[str], folder: Path, label: str, code: int) -> JobReturn:
        result = JobReturn(overrides=overrides, working_dir=str(folder), task_name=str(config.hydra.job.name))
        result.cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        result.hydra_cfg = OmegaConf.masked_copy(config, ["hydra"])
        # A failed job has no objective, which sweepers take for a failed trial. With JobStatus.FAILED, Hydra's basic
        # sweeper would raise and skip the jobs that are left.
        result.status = JobStatus.COMPLETED
        result.return_value = _objective(folder) if code == 0 else None
        if code:
            self.task.child_failed(label, code, str(folder))
        return result


def _quoted(text: str) -> str:
    """A value of Hydra's override grammar that means exactly `text`."""
    return '"' + text.replace('"', '\\"') + '"'


def _objective(folder: Path) -> float | None:
    try:
        value = json.loads((folder / "return_value.json").read_text(encoding="utf-8"))["objective"]
        return None if value is None else float(value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        logging.getLogger("msrun").warning("no objective in %s: %s", folder / "return_value.json", error)
        return None


def _run(command: list[str]) -> int:
    """Exit code of the command. It gets a session of its own, so that an interrupt reaches it once: from here."""
    with _terminate_as_exit():
        process = subprocess.Popen(command, start_new_session=True)
        try:
            return process.wait()
        except BaseException as error:
            _stop(process, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise


def _stop(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """Ask once, wait for the state to be saved, then end the process; a second Ctrl-C ends it at once."""
    try:
        process.send_signal(first)
        process.wait(_GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def _terminate_as_exit() -> Iterator[None]:
    """SIGTERM would end this process at once and leave the job behind; here it unwinds the stack instead."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(143)

    try:
        previous = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
