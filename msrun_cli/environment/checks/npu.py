"""The NPUs: device nodes, npu-smi, health, memory, the kind of chip, the variables that choose devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msrun_cli.environment.machine import Machine
from msrun_cli.environment.npu_smi import Chip
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import version_key

_MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_NO_TABLE = "npu-smi gives no table"
_DOCKER = "start the container with --device=/dev/davinci0 " + " ".join(f"--device={node}" for node in _MANAGERS)


def device_nodes(machine: Machine) -> Outcome:
    """A cheap look that needs no tool: the nodes exist and this user may open them."""
    nodes, host = machine.device_nodes, machine.host
    source = "/dev/davinci*, " + ", ".join(_MANAGERS)
    if host.environ.get("MS_SIMULATION_LEVEL"):
        return skip("MS_SIMULATION_LEVEL is set: MindSpore simulates the devices")
    if not nodes:
        return fail(
            "no /dev/davinci*",
            "one node for each NPU",
            source,
            f"{_DOCKER}, or install the driver; without an NPU: device=cpu",
            stops_run=True,
        )
    missing = [node for node in _MANAGERS if not host.exists(node)]
    if missing:
        return fail(f"{len(nodes)} NPUs, but no {', '.join(missing)}", source, source, _DOCKER)
    closed = [node for node in (*nodes, *_MANAGERS) if not host.may_open(node)]
    if closed:
        hint = f"sudo usermod -a -G HwHiAiUser {host.facts.user}, then log in again; in a container: --group-add"
        return fail(f"no permission for {', '.join(closed)}", "read and write", source, hint)
    return fine(f"{len(nodes)} NPUs", "nodes that can be opened", source)


_TOOL_FAULTS = (
    (
        "-8005",
        "npu-smi cannot start the driver's management (ret -8005)",
        "restart the host if driver or firmware were upgraded (sudo reboot); else free the card from other containers "
        "(docker ps, docker stop NAME), add the user to its group (sudo usermod -a -G HwHiAiUser $USER), or start the "
        "container with --privileged",
    ),
    (
        "-8020",
        "the card is used by another container (ret -8020)",
        "stop the other container (docker ps, docker stop NAME), or map another /dev/davinciN into this one",
    ),
)


def tool(machine: Machine) -> Outcome:
    if machine.smi is None:
        hint = "export PATH=$PATH:/usr/local/sbin; in a container mount /usr/local/bin/npu-smi of the host"
        judge = warn if machine.device_nodes else fail
        return judge("no npu-smi", "npu-smi on PATH", "PATH, /usr/local/bin, /usr/local/sbin", hint)
    output, source = machine.npu_output, f"{machine.smi} info"
    for mark, found, hint in _TOOL_FAULTS:
        if re.search(rf"ret\w* is {mark}\b", output.text):
            return fail(found, "a table", source, hint, tuple(output.tail(5)))
    if output.problem or output.signal is not None or (output.code != 0 and not machine.npus.chips):
        found = f"{output.ending()}: {(output.tail(1) or ['no output'])[0]}"
        hint = "run `npu-smi info` by hand; dmesg and /var/log/npu/slog tell more"
        return fail(found, "a table", source, hint, tuple(output.tail(5)))
    chips = machine.npus.chips
    if not chips:
        return warn(
            "no NPU in its output", "a table of NPUs", source, "run `npu-smi info` by hand", tuple(output.tail(5))
        )
    names = sorted({chip.name for chip in chips})
    return fine(f"{len(chips)} x {', '.join(names)}, npu-smi {machine.npus.tool or '?'}", "a table", source)


def health(machine: Machine) -> Outcome:
    chips = machine.npus.chips
    if not chips:
        return skip(_NO_TABLE)
    sick = [chip for chip in chips if chip.health.upper() != "OK"]
    if not sick:
        return fine(f"{len(chips)} OK", "OK", "npu-smi info")
    listed = ", ".join(f"NPU {chip.npu} chip {chip.chip}: {chip.health}" for chip in sick)
    hint = f"npu-smi info -t health -i {sick[0].npu} -c {sick[0].chip} tells the error code"
    well = [str(index) for index, chip in enumerate(chips) if chip not in sick]
    if well:
        hint += f"; choose another device: export ASCEND_RT_VISIBLE_DEVICES={','.join(well)}"
    judge = warn if all(chip.health.lower() == "warning" for chip in sick) else fail
    return judge(listed, "OK", "npu-smi info", hint)


def memory(machine: Machine) -> Outcome:
    """MindSpore gives up when less than half of the device's memory is free."""
    chips = [chip for chip in machine.npus.chips if chip.memory_mb and chip.memory_mb[1]]
    if not chips:
        return skip(_NO_TABLE)
    busy = [index for index, chip in enumerate(chips) if _used(chip) > 0.5]
    details = tuple(
        f"NPU {process.npu}: process {process.pid} {process.name}, {process.memory_mb or '?'} MB"
        for process in machine.npus.processes
    )
    expected = "at least half of the memory free"
    buffers = _buffers_mb(machine.host.environ)
    least = min(chip.memory_mb[1] for chip in chips if chip.memory_mb)
    if buffers > least / 2:
        found = f"HCCL_BUFFSIZE: {buffers} of {least} MB for each group of devices"
        hint = "export HCCL_BUFFSIZE=200, which is the default"
        return fail(found, expected, "npu-smi info, HCCL_BUFFSIZE", hint, details)
    if not busy:
        return fine(f"at most {_words(max(chips, key=_used))}", expected, "npu-smi info", details)
    listed = ", ".join(f"device {index}: {_words(chips[index])}" for index in busy)
    free = [index for index in range(len(chips)) if index not in busy]
    processes = " ".join(str(process.pid) for process in machine.npus.processes)
    hint = f"end what uses them: kill {processes}" if processes else "npu-smi info, on the host, lists who uses them"
    if free:
        hint = f"export ASCEND_RT_VISIBLE_DEVICES={','.join(map(str, free))}"
    chosen = _chosen(machine.host.environ, len(chips))
    return (fail if chosen in busy else warn)(listed, expected, "npu-smi info", hint, details)


def _buffers_mb(environ: Mapping[str, str]) -> int:
    """What HCCL takes for each group, a buffer to send and one to receive (CANN's page on it). 0 = not set."""
    size = environ.get("HCCL_BUFFSIZE", "")
    return 2 * int(size) if size.isdigit() else 0


def _used(chip: Chip) -> float:
    used, total = chip.memory_mb or (0, 0)
    return used / total if total else 0.0


def _words(chip: Chip) -> str:
    used, total = chip.memory_mb or (0, 0)
    return f"{used} of {total} MB in use"


def _chosen(environ: Mapping[str, str], count: int) -> int:
    """Index of the device that a run takes."""
    visible = _numbers(environ.get("ASCEND_RT_VISIBLE_DEVICES")) or list(range(count))
    wanted = environ.get("DEVICE_ID", "0")
    position = int(wanted) if wanted.isdigit() else 0
    return visible[position] if position < len(visible) else 0


def chip_kind(machine: Machine) -> Outcome:
    chips = machine.npus.chips
    if not chips:
        return skip(_NO_TABLE)
    name, known = chips[0].name, machine.chip
    expected = "a chip that MindSpore trains on (910B1 to 910B4, Ascend910)"
    if known is None:
        return warn(name, expected, "npu-smi info", "this chip is in no table: see MindSpore's hardware list")
    if not known.trains:
        return fail(
            name,
            expected,
            f"npu-smi info; {known.source}",
            "msrun train device=cpu, or train on an Atlas 800T/900 (910B, Ascend910); this chip infers with MindSpore "
            "Lite",
        )
    release = machine.mindspore.version if machine.mindspore else None
    if known.last_mindspore and release and version_key(release) > version_key(known.last_mindspore):
        return warn(
            f"{name} with MindSpore {release}",
            f"MindSpore up to {known.last_mindspore} for this chip",
            f"npu-smi info; {known.source}",
            f"MindSpore {known.last_mindspore} is the last with custom operators for it",
        )
    return fine(name, expected, "npu-smi info")


def visible_devices(machine: Machine) -> Outcome:
    """A list that is empty, malformed or out of range leaves MindSpore without the device."""
    environ, count = machine.host.environ, len(machine.device_nodes)
    value = environ.get("ASCEND_RT_VISIBLE_DEVICES")
    source = "ASCEND_RT_VISIBLE_DEVICES, ASCEND_VISIBLE_DEVICES, DEVICE_ID"
    expected = f"numbers from 0 to {count - 1}, ascending" if count else "numbers of devices, ascending"
    fault = _list_fault(value, count)
    if fault:
        hint = f"export ASCEND_RT_VISIBLE_DEVICES={','.join(map(str, range(count or 1)))}, or unset it"
        return fail(f"ASCEND_RT_VISIBLE_DEVICES={value}: {fault}", expected, source, hint, stops_run=True)
    visible = count if value is None else len(_numbers(value) or [])
    chosen = environ.get("DEVICE_ID")
    if chosen is not None and (not chosen.isdigit() or visible and int(chosen) >= visible):
        found = f"DEVICE_ID={chosen}, with {visible} visible devices"
        return fail(found, f"a number below {visible}", source, "export DEVICE_ID=0, or unset it", stops_run=True)
    runtime = environ.get("ASCEND_VISIBLE_DEVICES")
    asked = None if runtime is None else _runtime_count(runtime)
    if runtime and (asked is None or count and asked != count):
        return warn(
            f"ASCEND_VISIBLE_DEVICES={runtime}, {count} nodes in /dev",
            "as many nodes as it names",
            source,
            "start the container again with the devices you want: docker run -e ASCEND_VISIBLE_DEVICES=0-7 ...",
        )
    return fine("all devices" if value is None else f"devices {value}", expected, source)


def _list_fault(value: str | None, count: int) -> str | None:
    if value is None:
        return None
    numbers = _numbers(value)
    if not value.strip():
        return "an empty list means no device"
    if numbers is None:
        return "not a list of numbers"
    if len(set(numbers)) < len(numbers):
        return "a device stands twice"
    if sorted(numbers) != numbers:
        return "not ascending"
    beyond = [number for number in numbers if number >= count]
    if count and beyond:
        return f"there are {count} devices here, counted from 0 (a container counts its own)"
    return None


def _numbers(value: str | None) -> list[int] | None:
    """[0, 2] of "0,2"; None where it is no such list."""
    parts = [part.strip() for part in (value or "").split(",")]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else None


def _runtime_count(value: str) -> int | None:
    """How many devices the container runtime's "0-3,5" names; None where it is no such list."""
    total = 0
    for part in value.split(","):
        match = re.fullmatch(r"\s*(?:Ascend)?-?(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            return None
        total += int(match[2]) - int(match[1]) + 1 if match[2] else 1
    return total


CHECKS = (
    Check("device_nodes", "device nodes of the NPUs and permissions", Cost.FILES, "ascend", device_nodes),
    Check("npu_smi", "npu-smi answers", Cost.COMMANDS, "ascend", tool),
    Check("npu_health", "health of the NPUs", Cost.COMMANDS, "ascend", health),
    Check("npu_memory", "device memory in use by others", Cost.COMMANDS, "ascend", memory),
    Check("chip", "MindSpore trains on this chip", Cost.COMMANDS, "ascend", chip_kind),
    Check("visible_devices", "variables that choose devices", Cost.FILES, "ascend", visible_devices),
)
