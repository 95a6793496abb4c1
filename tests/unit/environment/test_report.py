"""The table, JSON, and the block for an issue thread."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from machines import Machine, healthy
from rich.console import Console

from msrun_cli.environment.examination import Examination, choose, examine
from msrun_cli.environment.redact import Redactor, is_secret, shown_variables
from msrun_cli.environment.results import Check, Cost, fine
from msrun_cli.reporting.environment_check import report_block, report_json, report_table

SECRETS = {
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx",
    "MS_ACCESS_KEY": "topsecretvalue",
    "ASCEND_PASSWORD": "hunter2hunter2",
    "MSRUN_PROXY": "http://jane:pa55word@proxy.corp.example:3128/",
    "LD_PRELOAD": "/home/jane/lib/x.so:/srv/jane/topsecretvalue",
    "MS_SCHED_HOST": "10.1.2.3",
    "PATH": "/home/other/bin:/usr/bin",
    "PYTHONPATH": "/data/[brackets]/src",
    "MY_SETTING": "not of interest",
}


def examined(machine: Machine, *only: str) -> Examination:
    return examine(machine.host(), "auto", choose(only, (), quick=False))


def shown(examination: Examination, verbose: bool = False, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))
    console.print(report_table(examination, verbose))
    return console.export_text()


def test_table(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.record["libc"] = ["glibc", "2.12"]
    text = shown(examined(machine, "glibc", "numpy", "onednn"))
    assert "glibc 2.12" in text and "expected: glibc 2.17 or newer" in text
    assert "what to do:\n  glibc: use a newer system or container" in text
    assert "not checked: onednn" in text and "1 passed, 1 failed, 1 not checked. Mend first: glibc." in text
    verbose = shown(examined(machine, "numpy", "onednn"), verbose=True)
    assert "source: /opt/env" in verbose and "onednn: checks are for an Ascend device" in verbose
    assert "The Ascend device is ready" in shown(examined(machine, "numpy"))


def test_table_shows_the_last_words_of_a_crash(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.smoke("[bold]some last words\n", signal=6)
    text = shown(examined(machine, "smoke"))
    assert "killed by signal 6 (SIGABRT)" in text and "| [bold]some last words" in text


def test_json(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.record["cores"] = 1
    report = report_json(examined(machine))
    assert json.loads(json.dumps(report)) == report
    assert set(report) == {"schema_version", "msrun", "status", "device", "counts", "checks"}
    assert (report["schema_version"], report["status"], report["device"]) == (1, "warn", "ascend")
    assert sum(report["counts"].values()) == len(report["checks"])
    (cores,) = [item for item in report["checks"] if item["check"] == "cores"]
    keys = {"check", "title", "status", "expected", "found", "source", "hint", "details", "seconds"}
    assert set(cores) == keys and cores["status"] == "warn" and cores["hint"]


def test_report_without_secrets(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.environ.update(SECRETS)
    machine.record.update(home="/home/jane", user="jane", hostname="node7", libc=["glibc", "2.12"])
    block = report_block(examined(machine, "system", "packages"), machine.host(), ["4.11.0.86", "1.26.4"], verbose=True)
    for secret in (
        "hf_abc",
        "topsecret",
        "hunter2",
        "pa55word",
        "jane",
        "10.1.2.3",
        "/home/other",
        "MY_SETTING",
        "node7",
    ):
        assert secret not in block, secret
    assert "opencv-python 4.11.0.86" in block and "numpy: 1.26.4" in block
    assert "LD_PRELOAD=~/lib/x.so:/srv/<user>/***" in block and "PYTHONPATH=/data/[brackets]/src" in block
    assert block.startswith("### msrun check-env") and block.count("```") == 2
    assert "[FAIL] glibc: glibc 2.12" in block


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--api-key=abc123 --lr=0.1", "--api-key=*** --lr=0.1"),
        ("run --token abc123 now", "run --token *** now"),
        ("password: opensesame, next", "password: ***, next"),
        ("https://x.org/a?access_token=zzz&b=1", "https://x.org/a?access_token=***&b=1"),
        ("git+https://tok@github.com/a/b", "git+https://***@github.com/a/b"),
        ("Authorization: Bearer abcdef", "Authorization: ***"),
        ("mail a.b@example.com now", "mail <mail> now"),
        ("listen on 192.168.20.160:16666, 127.0.0.1", "listen on <address>:16666, 127.0.0.1"),
        ("firmware 7.1.0.11.220, CANN 7.6.0.1.220, opencv 4.11.0.86", None),
        ("fe80::1ff:fe23:4567:890a and 2001:db8:0:0:0:0:2:1 at 12:34:56", "<address> and <address> at 12:34:56"),
        ("device 00:1A:2b:3c:4d:5e", "device <hardware address>"),
        ("node7 and node77 and /data/worker/x", "<host> and node77 and /data/<user>/x"),
        ("key AKIAABCDEFGHIJKLMNOP", "key ***"),
        ("tokens per second 5, tokenizers 0.2", None),
    ],
)
def test_redaction(tmp_path: Path, text: str, expected: str | None) -> None:
    redact = Redactor(healthy(tmp_path).host(), ["4.11.0.86"])
    assert redact(text) == (text if expected is None else expected)


def test_names_of_variables() -> None:
    assert all(
        is_secret(name) for name in ("GITHUB_TOKEN", "DB_PASSWORD", "API_KEY", "AWS_SECRET_ACCESS_KEY", "MS_AUTH")
    )
    assert not any(is_secret(name) for name in ("PATH", "ASCEND_HOME_PATH", "MS_WORKER_NUM", "HCCL_BUFFSIZE"))
    assert shown_variables({"ASCEND_TOKEN": "x", "ASCEND_OPP_PATH": "/o", "HOME": "/h"}) == {"ASCEND_OPP_PATH": "/o"}


def test_a_check_that_crashes_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(machine: object) -> None:
        raise ZeroDivisionError("by zero")

    checks = [
        Check("broken", "", Cost.FILES, "any", broken),  # type: ignore[arg-type]
        Check("other", "", Cost.FILES, "any", lambda machine: fine("here")),
    ]
    first, second = examine(healthy(tmp_path).host(), "auto", checks).results
    assert first.status == "warn" and "ZeroDivisionError: by zero" in first.outcome.found
    assert (second.status, second.outcome.found) == ("pass", "here")
