"""System, Python packages, process, resources, smoke test: the check, its status and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from failure_cases import Cases, Spoil, examine_spoilt
from machines import CANN, ENV, PYTHON, SITE, Machine, cpu_only, healthy

case = Cases()


# system and packages


@case("os", "fail", "use a Linux machine")
def ascend_without_linux(machine: Machine) -> None:
    machine.record["system"] = "Darwin"


@case("os", "warn", "wheels for other systems are CPU only", device="cpu")
def cpu_without_linux(machine: Machine) -> None:
    machine.record["system"] = "Darwin"


@case("architecture", "fail", "no MindSpore wheel for this one")
def unknown_processor(machine: Machine) -> None:
    machine.record["machine"] = "riscv64"


@case("glibc", "fail", "newer system")
def glibc_too_old(machine: Machine) -> None:
    machine.record["libc"] = ["glibc", "2.12"]


@case("glibc", "fail", "newer system")
def musl(machine: Machine) -> None:
    machine.record["libc"] = ["", ""]
    machine.file("/lib/ld-musl-aarch64.so.1")


@case("libraries", "fail", "glibc cannot be upgraded by itself", 25)
def glibc_2_27_not_found(machine: Machine) -> None:
    text = "/lib64/libm.so.6: version `GLIBC_2.27' not found (required by _c_expression.so)\n"
    machine.command(f"ldd {SITE}/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so", text)


@case("libraries", "fail", "libstdcxx-ng", 25)
def glibcxx_not_found(machine: Machine) -> None:
    text = "/lib64/libstdc++.so.6: version `GLIBCXX_3.4.26' not found (required by _c_expression.so)\n"
    machine.command(f"ldd {SITE}/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so", text)


@case("architecture", "fail", "--force-reinstall --no-deps --no-cache-dir mindspore==2.10.0")
def aarch64_wheel_on_x86(machine: Machine) -> None:
    machine.mindspore("2.10.0", "311-aarch64")
    machine.record["machine"] = "x86_64"


@case("python", "fail", "--force-reinstall mindspore==2.8.0")
def wheel_of_another_python(machine: Machine) -> None:
    machine.record["python"] = "3.12.3"


@case("python", "fail", "python3.12 -m venv")
def python_without_a_wheel(machine: Machine) -> None:
    machine.record["python"] = "3.13.0"
    machine.mindspore("2.10.0", "313-aarch64")


@case("python", "fail", "pip install 'mindspore>=2.7,<2.11'")
def mindspore_for_older_pythons(machine: Machine) -> None:
    machine.mindspore("2.2.14")


@case("mindspore", "fail", "pip install 'mindspore>=2.7,<2.11', and the CANN for it")
def mindspore_too_old(machine: Machine) -> None:
    machine.mindspore("2.6.0")


@case("opencv", "fail", "pip install 'opencv-python-headless>=4.8,<4.12'")
def opencv_missing(machine: Machine) -> None:
    machine.unpackage("opencv-python")
    machine.remove(f"{SITE}/cv2/__init__.py")
    (machine.root / f"{SITE}/cv2".lstrip("/")).rmdir()


@case("numpy", "warn", "pip install 'numpy>=1.25,<2'")
def numpy_without_metadata(machine: Machine) -> None:
    machine.unpackage("numpy")
    machine.file(f"{SITE}/numpy/__init__.py")


@case("mindspore", "fail", "pip install 'mindspore>=2.7,<2.11'")
def mindspore_missing(machine: Machine) -> None:
    machine.unpackage("mindspore")
    machine.remove(f"{SITE}/mindspore/*.so")
    (machine.root / f"{SITE}/mindspore/lib/plugin/libmindspore_ascend.so.2".lstrip("/")).unlink()
    for folder in ("lib/plugin", "lib", ""):
        (machine.root / f"{SITE}/mindspore/{folder}".lstrip("/")).rmdir()


@case("mindspore", "fail", "--force-reinstall --no-deps mindspore==2.8.0")
def mindspore_damaged(machine: Machine) -> None:
    machine.remove(f"{SITE}/mindspore/_c_expression*")


@case("mindspore", "warn", f"mindspore mindspore-ascend && {PYTHON} -m pip install mindspore==2.8.0")
def two_mindspores(machine: Machine) -> None:
    machine.package("mindspore-ascend", "1.10.1")


@case("numpy", "fail", "pip install 'numpy>=1.25,<2' 'opencv-python>=4.8,<4.12'", 24)
def numpy_2(machine: Machine) -> None:
    machine.unpackage("numpy")
    machine.package("numpy", "2.4.6")


@case("opencv", "fail", "'opencv-python>=4.8,<4.12' 'numpy>=1.25,<2'")
def opencv_that_needs_numpy_2(machine: Machine) -> None:
    machine.unpackage("opencv-python")
    machine.package("opencv-python", "5.0.0.93")


@case("opencv", "warn", "uninstall -y opencv-python opencv-python-headless && ")
def two_variants_of_opencv(machine: Machine) -> None:
    machine.package("opencv-python-headless", "4.10.0.84")


@case("opencv_import", "fail", "uninstall -y opencv-python && ")
def container_without_libgl(machine: Machine) -> None:
    text = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n"
    machine.command("python -c import cv2; print(cv2.__version__)", text, code=1)


@case("dependencies", "fail", "pip install 'rich>=13.8'")
def dependency_missing(machine: Machine) -> None:
    machine.unpackage("rich")


@case("dependencies", "warn", "pip install 'rich>=13.8'")
def dependency_too_old(machine: Machine) -> None:
    machine.unpackage("rich")
    machine.package("rich", "12.0.0")


# process


@case("shadows", "fail", "rename mindspore in /work: mv /work/mindspore /work/mindspore_other", 26)
def folder_called_mindspore(machine: Machine) -> None:
    machine.file("/work/mindspore/__init__.py")
    machine.record["search_path"] = ["/work", SITE]


@case("shadows", "warn", "mv /work/te.py /work/te_other.py")
def module_called_te(machine: Machine) -> None:
    machine.file("/work/te.py")


@case("msrun_script", "warn", "--force-reinstall --no-deps msrun-cli")
def msrun_is_mindspores(machine: Machine) -> None:
    machine.file(f"{ENV}/bin/msrun", f"#!{PYTHON}\nfrom mindspore.parallel.cluster.run import main\n")


@case("msrun_script", "warn", "--force-reinstall --no-deps msrun-cli")
def msrun_went_with_an_uninstall(machine: Machine) -> None:
    machine.remove(f"{ENV}/bin/msrun")


@case("msrun_script", "warn", f'export PATH="{ENV}/bin:$PATH"')
def msrun_of_another_environment_comes_first(machine: Machine) -> None:
    machine.file("/usr/local/bin/msrun", "#!/usr/bin/python3\nfrom msrun_cli.cli.dispatch import main\n")
    machine.environ["PATH"] = f"/usr/local/bin:{ENV}/bin"


@case("python_command", "warn", f'export PATH="{ENV}/bin:$PATH"')
def another_python_comes_first(machine: Machine) -> None:
    machine.file("/usr/bin/python")
    machine.environ["PATH"] = "/usr/bin"


@case("libdnnl", "warn", f"export LD_LIBRARY_PATH={CANN}/lib64:{CANN}/lib64/plugin/opskernel")
def another_onednn(machine: Machine) -> None:
    machine.file("/opt/onednn/lib/libdnnl.so.3")
    machine.environ["LD_LIBRARY_PATH"] += ":/opt/onednn/lib"


@case("libgomp", "warn", f"export LD_PRELOAD={SITE}/scikit_learn.libs/libgomp-d22c30c5.so.1.0.0", 16)
def libgomp_of_sklearn_on_aarch64(machine: Machine) -> None:
    machine.file(f"{SITE}/scikit_learn.libs/libgomp-d22c30c5.so.1.0.0")


# resources


@case("memory", "warn", "smaller batch_size")
def container_with_little_memory(machine: Machine) -> None:
    machine.file("/sys/fs/cgroup/memory.max", f"{3 << 30}\n")
    machine.file("/sys/fs/cgroup/memory.current", f"{1 << 30}\n")


@case("cores", "warn", "more cores")
def container_with_one_core(machine: Machine) -> None:
    machine.file("/sys/fs/cgroup/cpu.max", "100000 100000\n")


@case("disk", "fail", "clear /work")
def disk_full(machine: Machine) -> None:
    machine.record["free_bytes"]["/work"] = 10**8


@case("disk", "warn", "clear /work")
def disk_nearly_full(machine: Machine) -> None:
    machine.record["free_bytes"]["/work"] = 2 << 30


@case("shared_memory", "warn", "--shm-size=8g")
def shared_memory_of_docker(machine: Machine) -> None:
    machine.record["free_bytes"]["/dev/shm"] = 64 << 20


# smoke test


@case("smoke", "fail", "do not belong together crash", 1)
def crash_by_signal(machine: Machine) -> None:
    machine.smoke("[WARNING] loading\nFatal Python error: Segmentation fault\nsome last words\n", signal=11)


@case("smoke", "fail", "pip install attrs cloudpickle", 2)
def te_cannot_be_imported(machine: Machine) -> None:
    text = "CheckFailed: cannot import name 'version' from 'te' (unknown location)\nFatal Python error: Aborted\n"
    machine.smoke(text, signal=6)


@case("smoke", "fail", "source /usr/local/Ascend/ascend-toolkit/set_env.sh", 4)
def set_env_missing_shows_in_the_compiler(machine: Machine) -> None:
    machine.smoke("Traceback ...\nKeyError: 'op_debug_dir'\n", code=1)


@case("smoke", "warn", "train on an Atlas 800T/900", 7)
def success_with_errors_in_the_log(machine: Machine) -> None:
    """run_check says "installed successfully" too on a chip without operators."""
    good = '{"device": "Ascend", "mindspore": "2.8.0", "import_s": 1, "step_s": 2, "error": null}\n'
    machine.smoke(f"[ERROR] LoadOpInfoJson] Get op info json suffix path failed, soc_version: Ascend310P3\n{good}")


@case("smoke", "fail", "python -m msrun_cli.runtime.smoke Ascend")
def wrong_numbers(machine: Machine) -> None:
    bad = '{"device": "Ascend", "mindspore": "2.8.0", "import_s": 1, "step_s": 2, "error": "the loss is 7 where"}\n'
    machine.smoke(bad, code=1)


@pytest.mark.parametrize(("spoil", "check", "status", "hint", "device"), case.params)
def test_failure(tmp_path: Path, spoil: Spoil, check: str, status: str, hint: str, device: str) -> None:
    examine_spoilt(tmp_path, spoil, check, status, hint, device)


def test_a_build_of_mindspore_in_the_working_directory_is_no_shadow(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.record["search_path"] = ["/work", SITE]
    machine.file("/work/mindspore/__init__.py")
    assert machine.check("shadows").status == "fail"
    machine.file("/work/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so")
    assert machine.check("shadows").status == "pass"


def test_onednn_on_an_avx512_processor(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    assert machine.check("onednn").status == "pass"
    machine.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"
    result = machine.check("onednn")
    assert result.status == "warn" and "unset ONEDNN_MAX_CPU_ISA" in result.outcome.hint
    machine.file(f"{SITE}/mindspore/lib/libdnnl.so.2")
    assert machine.check("onednn").status == "skip"


def test_a_cpu_without_a_compiler(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    assert machine.check("compiler").outcome.found == "/usr/bin/g++"
    machine.environ["CXX"] = "/opt/llvm/bin/clang++"
    assert machine.check("compiler").status == "warn"
    machine.file("/opt/llvm/bin/clang++")
    assert machine.check("compiler").outcome.found == "/opt/llvm/bin/clang++"
    del machine.environ["CXX"]
    machine.remove("/usr/bin/g++")
    assert "g++" in machine.check("compiler").outcome.hint


def test_a_crash_shows_the_tail_of_its_log(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    crash_by_signal(machine)
    outcome = machine.check("smoke").outcome
    assert outcome.found == "killed by signal 11 (SIGSEGV)"
    assert outcome.details[-1] == "some last words"
