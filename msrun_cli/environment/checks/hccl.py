"""What several devices need to talk to each other: links, ports, names, variables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msrun_cli.environment.driver import install_folder
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn

_NUMBERS = {
    "HCCL_CONNECT_TIMEOUT": (1, 7200),
    "HCCL_EXEC_TIMEOUT": (0, 2147483647),
    "HCCL_BUFFSIZE": (1, 65536),
    "HCCL_IF_BASE_PORT": (1024, 65520),
    "HCCL_WHITELIST_DISABLE": (0, 1),
    "MS_SCHED_PORT": (1, 65535),
    "MS_WORKER_NUM": (1, 65535),
    "RANK_SIZE": (1, 65535),
}
_HCCL_PORT, _SCHEDULER_PORT = 16666, 8118


@dataclass(frozen=True)
class _Link:
    """What hccn_tool says of one device; None where it does not tell."""

    device: int
    link: str | None
    health: str | None
    address: str | None

    def words(self) -> str:
        return (
            f"device {self.device}: link {self.link or '?'}, net health {self.health or '?'}, ip {self.address or '-'}"
        )


def links(machine: Machine) -> Outcome:
    count = len(machine.device_nodes)
    if count < 2:
        return skip("fewer than two NPUs")
    tool = _hccn_tool(machine)
    if tool is None:
        hint = (
            f"export PATH=$PATH:{install_folder(machine.host, 'Driver')}/driver/tools; in a container mount that folder"
        )
        return warn("no hccn_tool", "hccn_tool", "PATH, driver/tools", hint)
    devices = [int(re.sub(r"\D", "", node)) for node in machine.device_nodes]
    found = [_ask(machine, tool, device) for device in devices]
    details = tuple(link.words() for link in found)
    source = f"{tool} -i N -link -g, -net_health -g, -ip -g; /etc/hccn.conf"
    down = [link for link in found if link.link is not None and link.link.upper() != "UP"]
    if down:
        hint = f"check cable and switch: {tool} -i {down[0].device} -netdetect -g; or train on one device: launch=none"
        return fail("; ".join(link.words() for link in down), "link UP", source, hint, details)
    nameless = [link for link in found if link.address is None]
    if nameless:
        hint = f"{tool} -i {nameless[0].device} -ip -s address A.B.C.D netmask 255.255.255.0 (writes /etc/hccn.conf)"
        return warn("; ".join(link.words() for link in nameless), "an address for each NPU", source, hint, details)
    ill = [link for link in found if link.health is not None and link.health.lower() != "success"]
    if ill:
        hint = f"{tool} -i {ill[0].device} -netdetect -g shows the address that is pinged; set one that answers"
        return warn("; ".join(link.words() for link in ill), "net health Success", source, hint, details)
    return fine(f"{len(found)} links UP", "link UP", source, details)


def _hccn_tool(machine: Machine) -> str | None:
    place = f"{install_folder(machine.host, 'Driver')}/driver/tools/hccn_tool"
    found = machine.host.which("hccn_tool") or [path for path in (place,) if machine.host.is_file(path)]
    return found[0] if found else None


def _ask(machine: Machine, tool: str, device: int) -> _Link:
    def answer(what: str, pattern: str) -> str | None:
        text = machine.host.run([tool, "-i", str(device), what, "-g"], 5).text
        match = re.search(pattern, text, flags=re.IGNORECASE)
        return match.group(1) if match else None

    address = answer("-ip", r"ipaddr:\s*(\S+)")
    if address is None:
        match = re.search(rf"^address_{device}=(\S+)", machine.host.read("/etc/hccn.conf") or "", flags=re.MULTILINE)
        address = match.group(1) if match else None
    link = answer("-link", r"link status:\s*(\w+)")
    return _Link(device, link, answer("-net_health", r"net health status:\s*(\w+)"), address)


def variables(machine: Machine) -> Outcome:
    environ = machine.host.environ
    faults = []
    for name, (low, high) in _NUMBERS.items():
        value = environ.get(name)
        if value is not None and not (value.isdigit() and low <= int(value) <= high):
            faults.append((name, f"{name}={value} is no number from {low} to {high}"))
    table = environ.get("RANK_TABLE_FILE")
    if table and not machine.host.is_file(table):
        faults.append(("RANK_TABLE_FILE", f"RANK_TABLE_FILE={table} does not exist"))
    if faults:
        hint = f"unset {' '.join(name for name, _ in faults)}, or correct them"
        return fail("; ".join(text for _, text in faults), "numbers in range", "environment", hint)
    known = [name for name in (*_NUMBERS, "RANK_TABLE_FILE") if name in environ]
    return fine(", ".join(f"{name}={environ[name]}" for name in known) or "none set", "numbers in range", "environment")


def network(machine: Machine) -> Outcome:
    """Ports that HCCL and MindSpore's scheduler listen on, and names that must lead to an address."""
    host, environ = machine.host, machine.host.environ
    base = environ.get("HCCL_IF_BASE_PORT", "")
    ports = [int(base) if base.isdigit() else _HCCL_PORT]
    own = environ.get("MS_SCHED_PORT", "")
    ports.append(int(own) if own.isdigit() else _SCHEDULER_PORT)
    if host.port_is_free(ports[0]) is None and not host.facts.hostname:
        return skip("neither ports nor names are known")
    taken = [port for port in ports if 0 < port < 65536 and host.port_is_free(port) is False]
    if taken and not environ.get("MS_ROLE"):
        hint = (
            "end the other job, or export HCCL_IF_BASE_PORT=17666 and start with launch.port=8119 (MindSpore's "
            "launcher: --master_port=8119)"
        )
        return warn(f"port {', '.join(map(str, taken))} is in use", "free ports", "bind()", hint)
    names = [name for name in (host.facts.hostname, environ.get("MS_SCHED_HOST")) if name]
    lost = [name for name in names if host.resolves(name) is False]
    if lost:
        hint = f'echo "127.0.0.1 {lost[0]}" | sudo tee -a /etc/hosts (on several hosts: its address there)'
        return warn(f"{', '.join(lost)} has no address", "names with an address", "name lookup", hint)
    if host.facts.hostname in ("localhost", "localhost.localdomain"):
        return warn(
            "the host is called localhost",
            "a name of its own",
            "hostname",
            "sudo hostnamectl set-hostname NAME: HCCL tells several hosts apart by their names",
        )
    shared = _addresses(machine, host.facts.hostname)
    if len(shared) > 1:
        return warn(
            f"{host.facts.hostname} has the addresses {', '.join(shared)}",
            "a name for each host",
            "/etc/hosts",
            "if these are two hosts: sudo hostnamectl set-hostname NAME on one of them; HCCL tells hosts apart by name",
        )
    return fine(
        f"ports {', '.join(map(str, ports))} free, {', '.join(names) or 'no host name'}", "", "bind(), name lookup"
    )


def _addresses(machine: Machine, hostname: str) -> list[str]:
    """The host's addresses of version 4 in /etc/hosts, without those of the loopback device."""
    lines = [line.partition("#")[0].split() for line in (machine.host.read("/etc/hosts") or "").splitlines()]
    found = {words[0] for words in lines if hostname in words[1:]}
    return sorted(address for address in found if "." in address and not address.startswith("127."))


CHECKS = (
    Check("hccl_links", "network links of the NPUs", Cost.COMMANDS, "ascend", links),
    Check("hccl_env", "variables of distributed training", Cost.FILES, "ascend", variables),
    Check("hccl_network", "ports and host names of distributed training", Cost.COMMANDS, "ascend", network),
)
