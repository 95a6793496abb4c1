"""Environment variables that must stand before mindspore is imported. Imports nothing heavy itself."""

from __future__ import annotations

import _thread
import faulthandler
import os
import shutil
import signal
import sys
import threading

from msrun_cli.runtime.mindspore_versions import onednn_falls_back

ONEDNN_ISA = "ONEDNN_MAX_CPU_ISA"

# What this process set itself, so that the log can tell it from the user's own settings.
set_here: dict[str, str] = {}

_BLOCKED = {signal.SIGINT, signal.SIGCHLD}
_FORWARDER = "msrun-interrupts"
_WAKE_UP = signal.SIGURG  # without a handler, the system ignores it


def prepare_process() -> None:
    """Set defaults that the user has not set.

    ONEDNN_MAX_CPU_ISA=AVX2: the oneDNN of MindSpore 2.9 and 2.10 falls to a reference convolution on AVX-512
    processors, which makes a training step many times slower. GLOG_v=3: MindSpore's own log shows errors only.
    """
    for name, value in ((ONEDNN_ISA, "AVX2"), ("GLOG_v", "3")):
        if name not in os.environ and (name != ONEDNN_ISA or onednn_falls_back()):
            os.environ[name] = set_here[name] = value
    _forward_interrupts()


def _forward_interrupts() -> None:
    """Bring Ctrl-C to Python's own handler, whatever MindSpore installs.

    While it runs an operator, MindSpore has a handler of its own that turns SIGINT into SIGTERM. So SIGINT is blocked
    in all threads, which inherit this one's mask, and a thread that waits for it wakes the main thread.
    The same thread alone takes SIGCHLD: MindSpore's handler for it writes to the log, which can lock a thread for ever
    that was just allocating memory.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    signal.signal(_WAKE_UP, lambda _number, _frame: None)
    if not any(thread.name == _FORWARDER for thread in threading.enumerate()):
        threading.Thread(target=_forward, args=[threading.get_ident()], name=_FORWARDER, daemon=True).start()


def _forward(main_thread: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGINT})
        _thread.interrupt_main(signal.SIGINT)
        signal.pthread_kill(main_thread, _WAKE_UP)  # out of sleep() and its like


def names_on_path() -> list[str]:
    """Names under which MindSpore's launcher would start this very interpreter, when its folder stands first on PATH.

    The launcher takes `python` and `python3` alone. In a folder of the system, such as /usr/bin, either may be missing
    or be another version.
    """
    folder = os.path.dirname(sys.executable)
    own = os.path.realpath(sys.executable)
    return [name for name in ("python", "python3") if _program(folder, name) == own]


def is_on_path(name: str) -> bool:
    """Whether PATH as it is leads to this interpreter."""
    return _program(os.environ.get("PATH", ""), name) == os.path.realpath(sys.executable)


def _program(path: str, name: str) -> str | None:
    found = shutil.which(name, path=path)
    return os.path.realpath(found) if found else None


def tell_of_crashes() -> None:
    """A crash in a library prints the Python call it came from, for a process that nobody watches."""
    if not faulthandler.is_enabled():
        faulthandler.enable(file=2, all_threads=False)


def unblock_signals() -> None:
    """Undo what a parent's `prepare_process` left in this new process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def onednn_sentence() -> str:
    """One line for the log about the instruction set of CPU kernels."""
    value = os.environ.get(ONEDNN_ISA)
    if not onednn_falls_back():
        return f"{ONEDNN_ISA} has no effect: the oneDNN of this MindSpore is not slower on an AVX-512 processor"
    if value is None:
        return f"{ONEDNN_ISA} is not set: convolutions on an AVX-512 processor may be many times slower"
    owner = "set by msrun, since AVX-512 kernels are slower here" if ONEDNN_ISA in set_here else "your own setting"
    return f"{ONEDNN_ISA}={value} ({owner})"
