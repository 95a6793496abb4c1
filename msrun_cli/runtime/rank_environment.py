"""What a launched process finds in its environment. Imports nothing heavy."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from msrun_cli.common.errors import ConfigError

JOB = "MSRUN_JOB"  # the same for all processes of a job on a host, those they start themselves included
RUN_FOLDER = "MSRUN_RUN_FOLDER"
LAST_WORDS = "this rank ends"  # how the last line of a failed rank's log begins
PARENT = "MSRUN_PARENT"  # process id of the msrun that watches the job

# Set by MindSpore's launcher; what a shell has of them must not reach a new job.
OF_MINDSPORE = ("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_TOPO_TIMEOUT")
OF_RANK_TABLES = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE")

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # of prctl, Linux


def rank() -> int | None:
    """Number of this process in its job; None = not started by `launch`."""
    if RUN_FOLDER not in os.environ or os.environ.get("MS_ROLE") != "MS_WORKER":
        return None
    return int(os.environ["RANK_ID"])


def is_scheduler() -> bool:
    """Whether this process lets the ranks find one another."""
    return RUN_FOLDER in os.environ and os.environ.get("MS_ROLE") == "MS_SCHED"


def foreign_launcher() -> str | None:
    """What another launcher than ours has set; None = nothing."""
    role = os.environ.get("MS_ROLE")
    return None if role is None or RUN_FOLDER in os.environ else f"MS_ROLE={role}"


def refuse_foreign_launcher(command: str) -> None:
    """Each process would train for itself, in a run folder of its own, and the scheduler, too."""
    found = foreign_launcher()
    if found is not None:
        raise ConfigError(
            f"another launcher has started this process ({found}). msrun starts its processes itself: call it once "
            f"per host, such as msrun {command} launch=local launch.workers=8. If your shell has "
            f"{found.partition('=')[0]} from earlier, unset it."
        )


def failure_file(logs: Path, number: int) -> Path:
    """Where a rank leaves its error: {"code": exit code, "text": str}."""
    return logs / f"rank_{number}_error.json"


def adopt_orphans(wanted: bool) -> None:
    """Whether this process becomes the parent of processes whose own parent has ended."""
    _prctl(_SET_SUBREAPER, int(wanted))


def die_with_parent() -> None:
    """End this process when the msrun that watches it ends, however that ends.

    MindSpore's launcher stands in between until it has started all processes, so this waits for it to leave first.
    """
    parent = int(os.environ[PARENT])
    for _ in range(6000):
        if os.getppid() == parent:
            break
        time.sleep(0.01)
    _prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    import ctypes  # not for --help

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
