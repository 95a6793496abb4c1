"""A job of several processes: what the parent does. It composes nothing again and imports no MindSpore."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shlex
import shutil
import signal
import socket
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from msrun_cli import __version__
from msrun_cli.common.errors import DeviceError, Interrupted, LaunchError
from msrun_cli.common.files import write_text
from msrun_cli.config.inherit import flat
from msrun_cli.environment.explain import explain_lines
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.log_follower import LogFollower
from msrun_cli.runtime.meeting import Meeting, invite, visit
from msrun_cli.runtime.rank_processes import Place, RankProcesses, last_lines
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.tasks.run import create_run, describe_host

_LOOK_S = 0.1
_GRACE_S = 4  # after the first failure: other ranks that fail by themselves say why
_STOP_S = 60  # after an interrupt: ranks finish the step and save
_OTHERS_S = 60  # for the other hosts to end, when the ranks of this one are done

_CRASH = " A library crashed: msrun check-env looks whether MindSpore, CANN and driver belong together."
_SIGNAL_HINTS = {
    signal.SIGKILL: " The system does that when memory runs out: see `dmesg`.",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT, signal.SIGFPE), _CRASH),
}


def launch(cfg: DictConfig, task: str) -> float | None:
    """Run `task` ("module:function") in every process of cfg.launch on this host and watch them; returns the objective.

    Raises:
        LaunchError: a rank failed. Interrupted: a signal stopped the job. DeviceError, ConfigError: it cannot start.
    """
    place = _place(cfg.launch)
    meeting, run = _meet(cfg, place)
    settings = run.logs / f"node_{place.node}.yaml"
    write_text(settings, OmegaConf.to_yaml(cfg, resolve=True))
    ranks = RankProcesses(place, run.logs)
    words = ["-m", "msrun_cli.tasks.rank", str(settings), task]
    os.environ.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    with _Signals() as signals:
        try:
            ranks.start(words, run.root, cfg.launch.timeout_s, cfg.launch.bind_cores)
            print(_started(place, run), flush=True)
            _watch(ranks, signals, run, meeting)
            meeting.done(_OTHERS_S)
        except Interrupted as stop:
            if stop.saved:
                meeting.done(_OTHERS_S)
            else:
                meeting.failed(f"host {place.node} was interrupted.")
            raise
        except Exception as error:
            meeting.failed(f"host {place.node}: {error}")
            raise
        finally:
            ranks.end()
            meeting.close()
    return _objective(run)


def _place(launch: Any) -> Place:
    """Where this host stands, with a port that is free.

    Raises DeviceError when host 0 is another one than this, or its port is taken.
    """
    port = _free_port(launch.master) if launch.port is None else launch.port
    if launch.node_rank == 0:
        _require_port(launch.master, port)
    return Place(launch.workers, launch.nodes, launch.node_rank, launch.master, port)


def _meet(cfg: DictConfig, place: Place) -> tuple[Meeting, RunFolder]:
    """The other hosts, and the folder of the run: host 0 makes it, the others use one of that name beside their own."""
    own = Path(HydraConfig.get().runtime.output_dir)
    timeout_s = cfg.launch.timeout_s
    if place.nodes == 1:
        return Meeting(), create_run(cfg)
    facts = _facts(cfg, place)
    where = f"{place.master}:{place.port + 1}"
    if place.node == 0:
        print(f"waiting at {where} for {place.nodes - 1} other hosts, up to {timeout_s} s ...", flush=True)
        meeting = invite(place.master, place.port + 1, facts, own.name, timeout_s)
        return meeting, create_run(cfg)
    print(f"host {place.node} of {place.nodes}: asking {where}, up to {timeout_s} s ...", flush=True)
    meeting, name = visit(place.master, place.port + 1, facts, timeout_s)
    with contextlib.suppress(OSError):
        own.rmdir()  # made by Hydra, still empty
    run = RunFolder(own.parent / name)
    describe_host(run, place.node, cfg.device.target)
    return meeting, run


def _facts(cfg: DictConfig, place: Place) -> dict[str, Any]:
    """What all hosts must agree on."""
    settings = flat({key: value for key, value in OmegaConf.to_container(cfg, resolve=True).items() if key != "launch"})
    versions = {"msrun-cli": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}
    with contextlib.suppress(PackageNotFoundError):
        versions["MindSpore"] = version("mindspore")
    return {
        "node": place.node,
        "nodes": place.nodes,
        "workers": place.workers,
        "versions": versions,
        "settings": {key: value for key, value in settings.items() if key != "output_dir"},
    }


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _require_port(host: str, port: int) -> None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _free_port(host)
            raise DeviceError(
                f"launch.port={port} is taken on {host} by another program, perhaps another training. Set another one "
                f"(launch.port={free} is free now)."
            ) from error
        raise DeviceError(
            f"launch.master={host}: port {port} cannot be opened there ({error.strerror}). With launch.node_rank=0 it "
            "must be an address of this host."
        ) from error


def _started(place: Place, run: RunFolder) -> str:
    first, last = place.ranks.start, place.ranks.stop - 1
    which = f"ranks {first} to {last}" if first < last else f"rank {first}"
    return f"{which} of {place.total} started; what each says: {run.logs}/worker_*.log"


def _watch(ranks: RankProcesses, signals: _Signals, run: RunFolder, meeting: Meeting) -> None:
    """Until all ranks of this host have ended well. Raises LaunchError or Interrupted."""
    log = run.logs / "worker_0.log"
    follower = LogFollower(log, hidden=rank_environment.LAST_WORDS) if ranks.place.node == 0 else None
    failed_at: float | None = None
    while not ranks.finished():
        time.sleep(_LOOK_S)
        ranks.look()
        if follower is not None:
            follower.show()
        signals.pass_on(ranks)
        elsewhere = meeting.problem()
        if elsewhere is not None and ranks.failed() is None:
            raise LaunchError(f"{elsewhere} The ranks of this host were ended{_checkpoint_hint(run)}.")
        if failed_at is None and (ranks.failed() is not None or ranks.scheduler_code):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() > failed_at + (_STOP_S if signals.first else _GRACE_S):
            break
        if signals.given_up():
            break
    ranks.end()
    if follower is not None:
        follower.show()
    if ranks.failed() is not None or not ranks.finished():
        raise _error(ranks, signals, run)


def _error(ranks: RankProcesses, signals: _Signals, run: RunFolder) -> Exception:
    """What is said to the user: the first failure, the end of its log, and where the rest is."""
    failures = {rank: _failure(run.logs, rank, code) for rank, code in ranks.ended.items() if code != 0}
    stopped = {rank: text for rank, (code, text) in failures.items() if code in (130, 143)}
    if stopped and (signals.first or len(stopped) == len(failures)):
        rank = min(stopped)
        return Interrupted(stopped[rank], failures[rank][0] - 128)
    if signals.first:
        text = f"interrupted before the ranks could save their state{_checkpoint_hint(run)}."
        return Interrupted(text, signals.first, saved=False)
    rank = ranks.failed()
    if rank is None:
        _show_end(run.logs / "scheduler.log")
        return LaunchError(
            f"the scheduler, through which the ranks meet, ended with code {ranks.scheduler_code}, so all processes "
            f"were ended. If its port was taken, set another launch.port{_checkpoint_hint(run)}."
        )
    path = run.logs / f"worker_{rank}.log"
    _show_end(path)
    return LaunchError(
        f"rank {rank} of {ranks.place.total} failed: {failures[rank][1]} The other ranks were ended. What each said is "
        f"in {run.logs}{_checkpoint_hint(run)}."
    )


def _show_end(path: Path) -> None:
    """The last lines of a log, and what the log doctor knows about all of it."""
    print(f"--- the end of {path} ---\n{last_lines(path, 15)}\n---", file=sys.stderr)
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for explanation in explain_lines(lines)[:3]:
            print(f"known error: {explanation.paragraph()}", file=sys.stderr)
    sys.stderr.flush()


def _checkpoint_hint(run: RunFolder) -> str:
    if not (run.checkpoints / "last.ckpt").is_file():
        return ""
    return f"; go on from the last checkpoint with: msrun train resume={shlex.quote(str(run.root))}"


def _failure(logs: Path, rank: int, code: int) -> tuple[int, str]:
    """(exit code, what is known) of a rank that ended with an error."""
    if code < 0:
        name = signal.Signals(-code).name
        return code, f"it was killed by the signal {name}.{_SIGNAL_HINTS.get(-code, '')}"
    try:
        said = json.loads(rank_environment.failure_file(logs, rank).read_text(encoding="utf-8"))
        return int(said["code"]), str(said["text"])
    except (OSError, ValueError, KeyError):
        return code, f"it ended with code {code} without a word of explanation."


def _objective(run: RunFolder) -> float | None:
    try:
        value = json.loads((run.root / "return_value.json").read_text(encoding="utf-8"))["objective"]
        return None if value is None else float(value)
    except (OSError, ValueError, KeyError):
        return None


class _Signals:
    """Ctrl-C and SIGTERM go to the ranks, which stop together and save; a second Ctrl-C ends all at once.

    first: number of the first signal, 0 = none.
    """

    def __init__(self) -> None:
        self.first = 0
        self._passed_on = False
        self._again = False
        self._at = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def pass_on(self, ranks: RankProcesses) -> None:
        if self.first and not self._passed_on:
            self._passed_on = True
            print("stopping all ranks (Ctrl-C once more to leave at once) ...", flush=True)
            ranks.signal(self.first)

    def given_up(self) -> bool:
        """Whether the ranks have had their time."""
        return self._again or (self._passed_on and time.monotonic() > self._at + _STOP_S)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.first:
            self.first, self._at = number, time.monotonic()
        elif number == signal.SIGINT:
            self._again = True
