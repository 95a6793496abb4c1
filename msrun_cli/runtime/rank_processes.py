"""The processes of a launched job on this host: started by MindSpore's launcher, watched and ended here.

MindSpore's launcher leaves when it has started the ranks and, on the first host, their scheduler. This process adopts
them, so that it learns of each end at once (the launcher's own watch takes most of a minute). A file name below
`logs` is the launcher's: worker_<rank>.log, scheduler.log. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msrun_cli.common.errors import DeviceError
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.process import names_on_path

LAUNCHER = "mindspore.parallel.cluster.run"
SCHEDULER = -1  # in place of a rank


@dataclass(frozen=True)
class Place:
    """Where this host stands in the job.

    workers: ranks on each host; first: the lowest rank of this one; node: number of this host; master, port: of the
    scheduler, which runs on host 0.
    """

    workers: int
    nodes: int
    node: int
    master: str
    port: int

    @property
    def ranks(self) -> range:
        return range(self.node * self.workers, (self.node + 1) * self.workers)

    @property
    def total(self) -> int:
        return self.workers * self.nodes


@dataclass
class RankProcesses:
    """running: process id by rank (SCHEDULER = the scheduler); ended: how each rank ended, its exit code or minus the
    number of the signal that killed it, in the order of their ends; scheduler_code: the same of the scheduler, None =
    it runs, or on another host.
    """

    place: Place
    logs: Path
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    running: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    scheduler_code: int | None = None

    def start(self, words: Sequence[str], run: Path, timeout_s: int, bind_cores: bool) -> None:
        """Start `python WORDS` once for each rank.

        Raises DeviceError when MindSpore's launcher cannot.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        for name in [rank_environment.failure_file(self.logs, rank) for rank in self.place.ranks]:
            name.unlink(missing_ok=True)
        rank_environment.adopt_orphans(True)
        command = launcher_command(self.place, self.logs, timeout_s, bind_cores, words)
        path = self.logs / f"launcher_{self.place.node}.log"
        with path.open("wb") as log:
            # A session of its own: a Ctrl-C of the terminal reaches the ranks from here alone.
            code = subprocess.run(
                command, env=self._environment(run), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            ).returncode
        if code:
            self.end()
            raise DeviceError(
                f"MindSpore's launcher ended with code {code}: {last_lines(path, 1)} (all of it: {path})."
            )
        self.running = self._found()

    def look(self) -> None:
        """Take note of processes that ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                self._note(process, os.waitstatus_to_exitcode(status))

    def _note(self, process: int, code: int) -> None:
        rank = next((rank for rank, other in self.running.items() if other == process), None)
        if rank is None:
            # One that ended before it was looked for, or else a helper that a rank left behind.
            missing = [rank for rank in self.place.ranks if rank not in self.running and rank not in self.ended]
            if not missing:
                return
            rank = missing[0]
        self.running.pop(rank, None)
        if rank == SCHEDULER:
            self.scheduler_code = code
        else:
            self.ended[rank] = code

    def failed(self) -> int | None:
        """The rank that ended first with an error."""
        return next((rank for rank, code in self.ended.items() if code != 0), None)

    def finished(self) -> bool:
        return len(self.ended) == self.place.workers

    def signal(self, number: int) -> None:
        """To the ranks, not to what they started themselves."""
        for rank, process in self.running.items():
            if rank != SCHEDULER:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    def end(self) -> None:
        """Kill whatever of the job is left on this host, and wait until it is gone."""
        for _ in range(100):
            left = list(self._processes())
            for process, _environment in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            self.look()
            if not left:
                break
            time.sleep(0.05)
        rank_environment.adopt_orphans(False)

    def _found(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for process, environment in self._processes():
            role, rank = environment.get("MS_ROLE"), environment.get("RANK_ID", "")
            if role == "MS_SCHED":
                found[SCHEDULER] = process
            elif role == "MS_WORKER" and rank.isdigit() and os.getpid() == _parent_of(process):
                found[int(rank)] = process
        return found

    def _processes(self) -> Iterator[tuple[int, dict[str, str]]]:
        """(id, environment) of the living processes of the job."""
        mark = f"{rank_environment.JOB}={self.job}".encode()
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                content = Path(entry.path, "environ").read_bytes()
            except OSError:  # ended meanwhile, or another user's
                continue
            if mark in content.split(b"\0"):
                pairs = (item.decode(errors="replace").partition("=") for item in content.split(b"\0"))
                yield int(entry.name), {name: value for name, _, value in pairs}

    def _environment(self, run: Path) -> dict[str, str]:
        foreign = (*rank_environment.OF_MINDSPORE, *rank_environment.OF_RANK_TABLES)
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        return environment | {
            # MindSpore's launcher starts `python` from PATH, which must be this one.
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONUNBUFFERED": "1",
            rank_environment.JOB: self.job,
            rank_environment.RUN_FOLDER: str(run),
            rank_environment.PARENT: str(os.getpid()),
        }


def launcher_command(place: Place, logs: Path, timeout_s: int, bind_cores: bool, words: Sequence[str]) -> list[str]:
    """The command line of MindSpore's launcher for the ranks of this host."""
    return [
        sys.executable, "-m", LAUNCHER,
        f"--worker_num={place.total}",
        f"--local_worker_num={place.workers}",
        f"--node_rank={place.node}",
        f"--master_addr={place.master}",
        f"--master_port={place.port}",
        f"--log_dir={logs}",
        "--join=False",
        f"--cluster_time_out={timeout_s}",
        f"--bind_core={bind_cores}",
        _python(), *words,
    ]  # fmt: skip


def last_lines(path: Path, number: int) -> str:
    """The last lines of a log that are not MindSpore's own chatter (all, where there are no others)."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"({path} is not there)"
    kept = [line for line in lines if line.strip()]
    return "\n".join(([line for line in kept if not is_chatter(line)] or kept)[-number:])


def is_chatter(line: str) -> bool:
    """A line of MindSpore's own log, such as "[WARNING] DISTRIBUTED(1234,7f...,python):..."."""
    return line.startswith(("[WARNING] ", "[INFO] ", "[ERROR] ", "[CRITICAL] ", "[TRACE] ")) and "(" in line[:40]


def _python() -> str:
    """The name under which PATH has this interpreter; MindSpore's launcher takes no other words.

    Raises DeviceError where there is none: another Python would run the ranks, or none.
    """
    names = names_on_path()
    if names:
        return names[0]
    raise DeviceError(
        f"neither `python` nor `python3` in {os.path.dirname(sys.executable)} is {sys.executable}, and MindSpore's "
        f"launcher starts ranks under these names only. Make a virtual environment, whose names are right: "
        f"{sys.executable} -m venv .venv, and install msrun-cli and mindspore there."
    )


def _parent_of(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None
