"""The real host: commands, crashes, the smoke test, and the checks at the start of a run."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from machines import cpu_only, healthy
from omegaconf import OmegaConf

from msrun_cli.cli.dispatch import main
from msrun_cli.common.errors import DeviceError
from msrun_cli.config import bridge
from msrun_cli.environment import run_start
from msrun_cli.environment.examination import choose, examine
from msrun_cli.environment.local import LocalHost
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.registry import CHECKS
from msrun_cli.runtime.log import stop_log
from msrun_cli.tasks import run


def test_commands(tmp_path: Path) -> None:
    host = LocalHost()
    both = host.run([sys.executable, "-c", "import sys; print('out', flush=True); print('err', file=sys.stderr)"], 20)
    assert both.ok and both.tail(5) == ["out", "err"]
    code = "import os; print(os.environ['NEW'], os.getcwd()); raise SystemExit(3)"
    failed = host.run([sys.executable, "-c", code], 20, {"NEW": "variable"}, str(tmp_path))
    assert (failed.code, failed.text) == (3, f"variable {tmp_path}\n") and failed.ending() == "exit code 3"
    assert host.run(["/no/such/program"], 5).problem == "missing"
    killed = host.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], 20)
    assert killed.signal == signal.SIGSEGV and killed.ending() == "killed by signal 11 (SIGSEGV)"


def test_a_command_that_hangs_is_stopped_with_its_children() -> None:
    started = time.monotonic()
    output = LocalHost().run(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 0.5)
    assert output.problem == "timeout" and output.text == "begun\n"
    assert time.monotonic() - started < 10


def test_facts_of_this_process() -> None:
    facts = LocalHost().facts
    assert facts.python == ".".join(map(str, sys.version_info[:3]))
    assert facts.executable == sys.executable and facts.libc[0] and facts.cores


def test_ports_and_names() -> None:
    import socket

    host = LocalHost()
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert host.port_is_free(port) is False
    assert host.port_is_free(port) is True
    assert host.resolves("localhost") is True


def test_cheap_checks_are_cheap_and_say_nothing_here() -> None:
    run_start.cheap_examination.cache_clear()
    started = time.perf_counter()
    results = run_start.cheap_examination("cpu").results
    assert time.perf_counter() - started < 0.3
    assert len(results) > 20
    run_start.require_runnable("cpu")
    assert {"python", "numpy", "memory"} <= set(run_start.run_facts("cpu"))


@pytest.mark.parametrize(
    ("spoil", "target", "stops"),
    [
        ("", "ascend", False),
        ("nodes", "ascend", True),
        ("nodes", "auto", False),  # the run takes the CPU
        ("nodes", "cpu", False),
        ("visible", "ascend", True),
        ("set_env", "ascend", False),  # the loader may find CANN elsewhere
        ("numpy", "cpu", False),
        ("mindspore", "cpu", True),
        ("mindspore", "auto", True),
        ("wheel", "cpu", True),
        ("opencv", "cpu", True),
    ],
)
def test_what_stops_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str, target: str, stops: bool
) -> None:
    machine = healthy(tmp_path)
    if spoil == "nodes":
        machine.remove("/dev/davinci[0-9]")
    elif spoil == "visible":
        machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = ""
    elif spoil == "set_env":
        machine.forget_env()
    elif spoil == "numpy":
        machine.package("numpy", "0.0.1")  # sorted first in the folder, so it is the one that counts
    elif spoil == "mindspore":
        machine.remove("/opt/env/lib/python3.11/site-packages/mindspore/_c_expression*")
    elif spoil == "wheel":
        machine.record["machine"] = "x86_64"
    elif spoil == "opencv":
        machine.unpackage("opencv-python")
        machine.remove("/opt/env/lib/python3.11/site-packages/cv2/__init__.py")
        (tmp_path / "opt/env/lib/python3.11/site-packages/cv2").rmdir()
    monkeypatch.setattr(run_start, "LocalHost", machine.host)
    run_start.cheap_examination.cache_clear()
    try:
        if stops:
            with pytest.raises(DeviceError, match="check-env"):
                run_start.require_runnable(target)
        else:
            run_start.require_runnable(target)
        on_ascend = spoil in ("nodes", "visible", "set_env") and target == "cpu"
        assert bool(run_start.remarks(target)) == (spoil != "" and not on_ascend)
    finally:
        run_start.cheap_examination.cache_clear()


def test_auto_without_an_npu_says_it_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CANN is installed, but there is no device: the run takes the CPU, and the rest of Ascend does not matter."""
    machine = healthy(tmp_path)
    machine.remove("/dev/davinci[0-9]")
    machine.forget_env()
    monkeypatch.setattr(run_start, "LocalHost", machine.host)
    run_start.cheap_examination.cache_clear()
    try:
        (line,) = run_start.remarks("auto")
        assert line.startswith("check-env device_nodes: no /dev/davinci*")
        assert len(run_start.remarks("ascend")) > 2
    finally:
        run_start.cheap_examination.cache_clear()


def test_train_stops_before_mindspore_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = cpu_only(tmp_path / "machine")
    machine.record["machine"] = "aarch64"
    monkeypatch.setattr(run_start, "LocalHost", machine.host)
    run_start.cheap_examination.cache_clear()
    try:
        assert main(["train", "device=cpu", f"output_dir={tmp_path}/runs"]) == 4
    finally:
        run_start.cheap_examination.cache_clear()
    assert "check-env architecture: aarch64, but the wheel is for x86_64" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/**/train.log"))


@pytest.mark.parametrize(
    ("error", "code", "known"),
    [
        (RuntimeError("EL0004: out of memory on the device"), 1, "known error: out_of_memory"),
        (DeviceError("device=ascend: libge_runner.so: cannot open shared object file"), 4, "known error: libge_runner"),
    ],
)
def test_a_job_that_dies_with_a_known_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, known: str
) -> None:
    def die(*words: object) -> int:
        raise error

    monkeypatch.setattr(bridge, "_run", die)
    assert bridge.run(bridge.TRAIN, [], bridge.Flags()) == code
    shown = capsys.readouterr().err
    assert known in shown and "remedy:" in shown
    assert shown.index(str(error)) < shown.index(known)


def test_other_errors_go_on_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*words: object) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(bridge, "_run", die)
    with pytest.raises(ZeroDivisionError):
        bridge.run(bridge.TRAIN, [], bridge.Flags())


def test_smoke_on_this_cpu() -> None:
    """Compiles a step in a process of its own, in the time of an import."""
    (result,) = examine(LocalHost(), "cpu", choose(("smoke",), (), quick=False)).results
    assert result.status == "pass", result
    assert "on CPU" in result.outcome.found


def test_smoke_test_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mindspore that kills its process, as a mismatch of versions does."""
    (tmp_path / "mindspore").mkdir()
    (tmp_path / "mindspore/__init__.py").write_text(
        "import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 11)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    check = next(check for check in CHECKS if check.id == "smoke")
    outcome = check.function(Machine(LocalHost(), "cpu"))
    assert outcome.status == "fail" and outcome.found == "killed by signal 11 (SIGSEGV)"
    assert outcome.details == ("last words",)


def test_warnings_are_lines_in_the_log_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = cpu_only(tmp_path / "machine")
    machine.record["cores"] = 1
    monkeypatch.setattr(run_start, "LocalHost", machine.host)
    monkeypatch.setattr(run, "run_record", lambda cfg: {})
    monkeypatch.setattr(run.HydraConfig, "get", lambda: OmegaConf.create({"runtime": {"output_dir": str(tmp_path)}}))
    run_start.cheap_examination.cache_clear()
    try:
        run.start_run(OmegaConf.create({"device": {"target": "cpu"}}))
    finally:
        stop_log()
        run_start.cheap_examination.cache_clear()
    (line,) = (tmp_path / "train.log").read_text().splitlines()
    assert "WARNING check-env cores: 1 (expected: at least 2). give the container" in line
    checks = json.loads((tmp_path / "environment.json").read_text())["checks"]
    assert checks["cores"]["status"] == "warn" and checks["mindspore"]["found"] == "2.10.0"
