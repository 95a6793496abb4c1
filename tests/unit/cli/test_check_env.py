"""The command line of check-env: options, exit codes, and that nothing broken can stop it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from msrun_cli.cli.dispatch import main
from msrun_cli.environment.registry import CHECKS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A machine with one core (a warning), an old glibc (a failure) and enough memory."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 400000000 kB\n")
    (tmp_path / "host.json").write_text(json.dumps({"cores": 1, "libc": ["glibc", "2.12"], "machine": "x86_64"}))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--only", "memory"], 0),
        (["--only", "cores"], 0),
        (["--only", "cores", "--strict"], 1),
        (["--only", "glibc"], 1),
        (["--only", "memory,cores,glibc", "--skip", "glibc"], 0),
        (["--only", "memory", "--only", "glibc"], 1),
        (["--only", "resources", "--skip", "disk,shared_memory"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_codes(tree: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int) -> None:
    assert main(["check-env", "--root", str(tree), *words]) == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nmpy"], 'Did you mean "numpy"?'),
        (["--skip", "glibcc"], 'Did you mean "glibc"?'),
        (["--only", "smoke", "--quick"], "No check is left"),
        (["--root", "/no/such/folder"], "no such folder"),
        (["--explain", "/no/such/log"], "cannot be read (No such file or directory)"),
        (["--explain", "/"], "cannot be read (Is a directory)"),
        (["--json", "--report"], "only one of --json and --report"),
        (["--device", "gpu"], "gpu"),
        (["--quik"], "--quick"),
        (["epochs=3"], "epochs=3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["check-env", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.out == ""


def test_json_alone_on_standard_output(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "--root", str(tree), "--json", "--quick"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "fail" and report["device"] == "cpu"
    made = {item["check"] for item in report["checks"]}
    assert "glibc" in made and not made & {"smoke", "opencv_import"}


def test_device(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check-env", "--root", str(tree), "--json", "--only", "cann_roots", "--device", "ascend"])
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["status"] == "fail"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [item["check"] for item in listed] == [check.id for check in CHECKS]
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert main(["check-env", "--list"]) == 0
    assert "hccl_links" in capsys.readouterr().out


def test_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "日志 worker_0.log"
    log.write_bytes(b"\xff\xfe no text\nKeyError: 'op_debug_dir'\n")
    assert main(["check-env", "--explain", str(log)]) == 0
    assert "op_debug_dir (line 2" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    assert main(["check-env", "--explain", "-", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["lines"] == 2 and [item["error"] for item in report["errors"]] == ["op_debug_dir"]
    log.write_text("all is well\n")
    assert main(["check-env", "--explain", str(log)]) == 0
    assert "no known error text in 1 lines" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--device", "cpu", "--only=os"], ["--quick"], ["--explain=x"]])
def test_options_before_the_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert f"msrun check-env {words[0]}" in capsys.readouterr().err


def test_works_when_everything_else_is_broken(tmp_path: Path) -> None:
    """MindSpore, numpy, OpenCV and Hydra end the process when they are imported; the output is a terminal of ASCII."""
    for name in ("mindspore", "numpy", "cv2", "hydra", "omegaconf", "yaml", "packaging"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import os\nos._exit(77)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "msrun_cli", "check-env", "--device", "cpu"]
    done = subprocess.run([*command, "--quick", "--json"], capture_output=True, env=environment, cwd=tmp_path)
    found = {item["check"]: item for item in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and found["shadows"]["status"] == "fail", done.stderr
    assert "rename mindspore, numpy, cv2, hydra, omegaconf" in found["shadows"]["hint"]
    done = subprocess.run([*command, "--only", "opencv_import"], capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1 and b"exit code 77" in done.stdout
