"""Memory of this process and of the device, in MiB."""

from __future__ import annotations

import resource
import sys

import mindspore as ms


def peak_rss_mib() -> float:
    """Largest resident memory of this process so far, its worker processes not included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def peak_device_mib(target: str) -> float | None:
    """Largest memory that MindSpore handed out on the device so far; None on a CPU, where it is the host's."""
    if target == "CPU":
        return None
    try:
        return ms.runtime.max_memory_allocated() / 2**20
    except (RuntimeError, AttributeError):
        return None
