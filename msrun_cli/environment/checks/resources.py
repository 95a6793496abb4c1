"""Memory, cores, disk, shared memory."""

from __future__ import annotations

import re
import shlex

from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn

_GIB = 1 << 30
_LIMITS = (
    # (limit, usage) of control groups, version 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def memory(machine: Machine) -> Outcome:
    """What is free, within a container's limit."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB", machine.host.read("/proc/meminfo") or "", flags=re.MULTILINE)
    if match is None:
        return skip("/proc/meminfo cannot be read")
    free, source = int(match.group(1)) * 1024, "/proc/meminfo"
    for limit_file, usage_file in _LIMITS:
        limit, usage = _number(machine, limit_file), _number(machine, usage_file)
        if limit is not None and limit - (usage or 0) < free:
            free, source = max(limit - (usage or 0), 0), limit_file
    found = f"{free / _GIB:.1f} GiB free"
    if free < 4 * _GIB:
        hint = "end other programs, or take a smaller batch_size and fewer workers (dataset.workers)"
        return warn(found, "at least 4 GiB", source, hint)
    return fine(found, "at least 4 GiB", source)


def _number(machine: Machine, path: str) -> int | None:
    text = (machine.host.read(path) or "").strip()
    return int(text) if text.isdigit() else None


def cores(machine: Machine) -> Outcome:
    usable = machine.host.facts.cores
    if usable is None:
        return skip("not known")
    quota = re.match(r"(\d+) (\d+)", machine.host.read("/sys/fs/cgroup/cpu.max") or "")
    if quota and int(quota[2]):
        usable = min(usable, max(1, int(quota[1]) // int(quota[2])))
    if usable < 2:
        return warn(
            f"{usable}",
            "at least 2",
            "affinity, /sys/fs/cgroup/cpu.max",
            "give the container or job more cores, for decoding images needs some of its own: docker run --cpus=4 ...",
        )
    return fine(f"{usable}", "at least 2", "affinity, /sys/fs/cgroup/cpu.max")


def disk(machine: Machine) -> Outcome:
    """Where runs, temporary files and caches go."""
    facts, environ = machine.host.facts, machine.host.environ
    folders = [facts.cwd, environ.get("TMPDIR", "/tmp"), environ.get("MSRUN_CACHE_DIR") or facts.home]
    free = {folder: machine.host.free_bytes(folder) for folder in dict.fromkeys(folders)}
    known = {folder: size for folder, size in free.items() if size is not None}
    if not known:
        return skip("not known")
    folder, least = min(known.items(), key=lambda item: item[1])
    found = f"{least / _GIB:.1f} GiB free in {folder}"
    hint = (
        f"clear {folder} (du -xhd1 {shlex.quote(folder)} | sort -h), or set output_dir, TMPDIR and MSRUN_CACHE_DIR to "
        "a larger disk"
    )
    if least < _GIB // 2:
        return fail(found, "at least 5 GiB", "statvfs", hint)
    return (
        warn(found, "at least 5 GiB", "statvfs", hint) if least < 5 * _GIB else fine(found, "at least 5 GiB", "statvfs")
    )


def shared_memory(machine: Machine) -> Outcome:
    """Data workers hand batches over through it; Docker gives 64 MiB unless asked."""
    free = machine.host.free_bytes("/dev/shm")
    if free is None:
        return skip("there is no /dev/shm")
    found = f"{free / _GIB:.2f} GiB free in /dev/shm"
    if free < _GIB:
        return warn(found, "at least 1 GiB", "statvfs", "docker run --shm-size=8g ..., or dataset.workers=1")
    return fine(found, "at least 1 GiB", "statvfs")


CHECKS = (
    Check("memory", "free memory", Cost.FILES, "any", memory),
    Check("cores", "usable cores", Cost.FILES, "any", cores),
    Check("disk", "free disk space", Cost.FILES, "any", disk),
    Check("shared_memory", "shared memory for data workers", Cost.FILES, "any", shared_memory),
)
