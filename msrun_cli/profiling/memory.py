"""Memory of this process and of the device, in MiB."""

from __future__ import annotations

import gc
import logging
import resource
import sys

import mindspore as ms

log = logging.getLogger("msrun")


def peak_rss_mib() -> float:
    """Largest resident memory of this process so far, its worker processes not included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def release_device(target: str) -> None:
    """Give back what this process holds of the device and no longer uses, for another process."""
    gc.collect()
    if target != "CPU":
        try:
            ms.runtime.empty_cache()
        except (RuntimeError, AttributeError) as error:
            log.warning("the device's memory is not given back to the trials (%s)", str(error).splitlines()[0])


def peak_device_mib(target: str) -> float | None:
    """Largest memory that MindSpore handed out on the device so far; None on a CPU, where it is the host's."""
    if target == "CPU":
        return None
    try:
        return ms.runtime.max_memory_allocated() / 2**20
    except (RuntimeError, AttributeError):
        return None
