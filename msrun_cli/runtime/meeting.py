"""How the hosts of a job find one another, agree on what they run, and learn of each other's end.

One msrun runs on each host. That of host 0 listens; the others connect and keep the connection as long as their ranks
run: a host that fails says so, one that vanishes is noticed within seconds. Messages are lines of JSON:
{"node", "nodes", "workers", "versions", "settings"} from a host that comes, {"go": name of the run folder} or
{"refused": text} to it, later {"failed": text} or {"done": true} from anyone. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Mapping
from typing import Any

from msrun_cli.common.errors import ConfigError, DeviceError

_LONGEST_LINE = 1 << 20  # bytes
_SILENT_S, _PROBE_S, _PROBES = 4, 2, 2  # a host that lost its power or network is given up after 4 + 2 * 2 s
_RETRY_S = 0.5

Facts = Mapping[str, Any]


class Line:
    """A connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.connection, self.name = connection, name
        self.open, self.done = True, False
        self._rest = b""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(self, message: Mapping[str, Any]) -> None:
        """A connection that is gone is noticed when it is read."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout_s: float = 0.0) -> list[dict[str, Any]]:
        """The messages that came, waiting at most that long for the first."""
        found: list[dict[str, Any]] = []
        while self.open and select.select([self.connection], [], [], 0.0 if found else timeout_s)[0]:
            try:
                new = self.connection.recv(65536)
            except OSError:
                new = b""
            self.open = bool(new) and len(self._rest) < _LONGEST_LINE
            *lines, self._rest = (self._rest + new).split(b"\n")
            found += [message for message in map(_message, lines) if message is not None]
            if not new or found:
                break
        return found

    def close(self) -> None:
        self.connection.close()


class Meeting:
    """The lines of this host to the others: from host 0 to all, from each of them to host 0. Without lines it is the
    meeting of a single host.
    """

    def __init__(self, lines: dict[int, Line] | None = None) -> None:
        self.lines = lines or {}

    def problem(self) -> str | None:
        """What went wrong on another host since the last call."""
        for node, line in self.lines.items():
            for message in line.receive() if line.open else []:
                if "failed" in message:
                    text = str(message["failed"])
                    self._tell({"failed": text}, without=node)
                    return text
                line.done |= bool(message.get("done"))
            if not line.open and not line.done:
                line.done = True
                text = f"host {node} ({line.name}) is gone without a word; was it stopped or switched off?"
                self._tell({"failed": text}, without=node)
                return text
        return None

    def failed(self, text: str) -> None:
        """Tell the others why the ranks of this host ended."""
        self._tell({"failed": text})

    def done(self, timeout_s: float) -> None:
        """The ranks of this host ended well. Host 0 waits for those of the others, since it has the scheduler."""
        self._tell({"done": True})
        end = time.monotonic() + timeout_s
        while len(self.lines) and not all(line.done for line in self.lines.values()) and time.monotonic() < end:
            if self.problem() is not None:
                return
            time.sleep(0.1)

    def close(self) -> None:
        for line in self.lines.values():
            line.close()

    def _tell(self, message: Mapping[str, Any], without: int | None = None) -> None:
        for node, line in self.lines.items():
            if node != without:
                line.send(message)


def invite(address: str, port: int, facts: Facts, run_name: str, timeout_s: float) -> Meeting:
    """On host 0: wait for the others and let all start.

    Raises:
        DeviceError: not all came in time, or the port is taken. ConfigError: one wants to run something else.
    """
    lines: dict[int, Line] = {}
    end = time.monotonic() + timeout_s
    try:
        with socket.create_server((address, port), backlog=64) as server:
            while len(lines) < facts["nodes"] - 1:
                left = end - time.monotonic()
                if left <= 0 or not select.select([server], [], [], left)[0]:
                    missing = [node for node in range(1, facts["nodes"]) if node not in lines]
                    raise DeviceError(_not_all(facts, missing, address, timeout_s))
                connection, (name, *_) = server.accept()
                _welcome(Line(connection, name), lines, facts)
    except OSError as error:
        raise DeviceError(
            f"port {port} (launch.port + 1), where the hosts meet, cannot be opened on {address} ({error.strerror}). "
            "Set another launch.port."
        ) from error
    except (DeviceError, ConfigError) as error:
        for line in lines.values():
            line.send({"refused": str(error)})
            line.close()
        raise
    meeting = Meeting(lines)
    for line in lines.values():
        line.send({"go": run_name})
    return meeting


def visit(master: str, port: int, facts: Facts, timeout_s: float) -> tuple[Meeting, str]:
    """On another host: ask host 0. Returns the meeting and the name of the run folder.

    Raises:
        DeviceError: no answer. ConfigError: host 0 runs something else, or there is no such host.
    """
    end = time.monotonic() + timeout_s
    line = Line(_connect(master, port, end, timeout_s), master)
    line.send(facts)
    while time.monotonic() < end and line.open:
        for message in line.receive(min(1.0, max(0.0, end - time.monotonic()))):
            if "refused" in message:
                line.close()
                raise ConfigError(str(message["refused"]))
            if "go" in message:
                return Meeting({0: line}), os.path.basename(str(message["go"]))
    line.close()
    raise DeviceError(
        f"host 0 ({master}:{port}) took the call, but did not start the job within {timeout_s:g} s; see what it says "
        "there."
    )


def _connect(master: str, port: int, end: float, timeout_s: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((master, port), timeout=max(0.1, min(5.0, end - time.monotonic())))
        except socket.gaierror as error:
            raise ConfigError(
                f"launch.master={master}: there is no host of that name ({error.strerror}). Give the address of the "
                "host that runs with launch.node_rank=0."
            ) from error
        except OSError as error:
            if time.monotonic() + _RETRY_S > end:
                raise DeviceError(
                    f"no answer from launch.master={master}, port {port} (launch.port + 1), within {timeout_s:g} s "
                    f"({error.strerror or error}). Start the same command with launch.node_rank=0 there, check the "
                    "address, and let a firewall pass launch.port and the next one."
                ) from error
        time.sleep(_RETRY_S)


def _welcome(line: Line, lines: dict[int, Line], facts: Facts) -> None:
    """Take a host in, or raise ConfigError when it does not belong here. Strangers are sent away."""
    messages = line.receive(5.0)
    if not messages or "node" not in messages[0]:
        line.close()
        return
    other = messages[0]
    text = _difference(facts, other)
    if text is None and (other["node"] in lines or other["node"] == facts["node"]):
        text = f"launch.node_rank={other['node']} came twice, now from {line.name}: each host needs its own."
    if text is not None:
        line.send({"refused": text})
        line.close()
        raise ConfigError(text)
    lines[int(other["node"])] = line


def _difference(facts: Facts, other: Facts) -> str | None:
    """What keeps two hosts from training together."""
    who = f"host {other['node']}"
    for key in ("nodes", "workers"):
        if facts[key] != other.get(key):
            return f"launch.{key} is {facts[key]} on host 0 and {other.get(key)} on {who}: it must be the same."
    for name, version in facts["versions"].items():
        if version != other["versions"].get(name):
            return f"{name} is {version} on host 0 and {other['versions'].get(name)} on {who}: install the same."
    mine, theirs = facts["settings"], other["settings"]
    for key in sorted(mine.keys() | theirs.keys()):
        pair = mine.get(key), theirs.get(key)
        if pair[0] != pair[1] and not any(isinstance(value, str) and "/" in value for value in pair):
            return f"{key} is {pair[0]} on host 0 and {pair[1]} on {who}: give every host the same settings."
    return None


def _not_all(facts: Facts, missing: list[int], address: str, timeout_s: float) -> str:
    names = ", ".join(map(str, missing))
    return (
        f"host {names} did not come within {timeout_s:g} s. Start the same command there with launch.node_rank={names} "
        f"and launch.master set to this host's address ({address})."
    )


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
