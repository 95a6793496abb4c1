"""Hosts that meet over the loopback: who is let in, who is sent away, and who learns of whose end."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from msrun_cli.common.errors import ConfigError, DeviceError
from msrun_cli.runtime.meeting import invite, visit

HERE = "127.0.0.1"


def facts(node: int, nodes: int = 2, **changes) -> dict:
    settings = {"epochs": 3, "dataset.root": f"/host{node}/data"}  # a path may differ
    usual = {"node": node, "nodes": nodes, "workers": 2, "versions": {"MindSpore": "2.10.0"}, "settings": settings}
    return usual | changes


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return probe.getsockname()[1]


def meet(port: int, *others: dict, nodes: int = 2, timeout_s: float = 5):
    """Results or errors of host 0 and of the others."""
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(invite, HERE, port, facts(0, nodes), "2026-run", timeout_s)]
        calls += [pool.submit(visit, HERE, port, other, timeout_s) for other in others]
        return [call.exception() or call.result() for call in calls]


def eventually(ask):
    end = time.monotonic() + 5
    while (answer := ask()) is None and time.monotonic() < end:
        time.sleep(0.02)
    return answer


def test_all_start_with_the_folder_of_host_0(port):
    host, (second, name), (third, other_name) = meet(port, facts(2, 3), facts(1, 3), nodes=3)
    assert name == other_name == "2026-run"
    assert [meeting.problem() for meeting in (host, second, third)] == [None] * 3
    second.failed("host 2: rank 5 of 6 failed")  # through host 0 to all others
    assert "rank 5" in eventually(host.problem)
    assert "rank 5" in eventually(third.problem)
    for meeting in (host, second, third):
        meeting.close()


def test_one_that_vanishes_is_noticed(port):
    host, (second, _) = meet(port, facts(1))
    second.close()
    assert "host 1 (127.0.0.1) is gone without a word" in eventually(host.problem)
    assert host.problem() is None  # said once
    host.close()


def test_host_0_waits_for_the_others_before_it_ends(port):
    host, (second, _) = meet(port, facts(1))
    ended = []
    waiting = threading.Thread(target=lambda: (host.done(5), ended.append(time.monotonic())))
    waiting.start()
    time.sleep(0.3)
    assert not ended
    second.done(5)
    second.close()
    waiting.join(5)
    assert ended and host.problem() is None
    host.close()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (facts(1, workers=4), "launch.workers is 2 on host 0 and 4 on host 1"),
        (facts(1, nodes=4), "launch.nodes is 2 on host 0 and 4 on host 1"),
        (facts(0), "launch.node_rank=0 came twice"),
        (facts(1, versions={"MindSpore": "2.9.0"}), "MindSpore is 2.10.0 on host 0 and 2.9.0 on host 1"),
        (facts(1, settings={"epochs": 5, "dataset.root": "/b"}), "epochs is 3 on host 0 and 5 on host 1"),
    ],
)
def test_who_does_not_belong_here_is_told_on_both_sides(port, other, said):
    host, visitor = meet(port, other)
    assert isinstance(host, ConfigError) and isinstance(visitor, ConfigError)
    assert said in str(host) and str(host) == str(visitor)


def test_strangers_do_not_disturb(port):
    with ThreadPoolExecutor() as pool:
        call = pool.submit(invite, HERE, port, facts(0), "run", 10)
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"[1, 2]\n", b'{"node"\n', b""):
            while True:
                try:
                    stranger = socket.create_connection((HERE, port))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            stranger.sendall(noise)
            stranger.close()
        visitor, name = visit(HERE, port, json.loads(json.dumps(facts(1))), 10)
        assert name == "run"
        call.result().close()
        visitor.close()


def test_who_did_not_come_is_named(port):
    host, visitor = meet(port, facts(2, 3), nodes=3, timeout_s=0.5)
    assert isinstance(host, DeviceError) and re.match(r"host 1(, 2)? did not come within 0.5 s", str(host))
    assert isinstance(visitor, (ConfigError, DeviceError))


def test_a_taken_port_is_named(port):
    with socket.create_server((HERE, port)), pytest.raises(DeviceError, match=f"port {port} .launch.port . 1."):
        invite(HERE, port, facts(0), "run", 1)
