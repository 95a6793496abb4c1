"""A machine for each failure that users have met: the check that names it, its status and its remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import npu_tables
import pytest
from machines import CANN, ENV, PYTHON, SITE, TBE, TE_NEEDS, Machine, cpu_only, healthy

Spoil = Callable[[Machine], None]
CASES: list[tuple[str, Spoil, str, str, str]] = []


def case(check: str, status: str, hint: str) -> Callable[[Spoil], Spoil]:
    """Registers the function as a machine with that fault. hint: a part of the remedy."""

    def register(spoil: Spoil) -> Spoil:
        CASES.append((spoil.__name__, spoil, check, status, hint))
        return spoil

    return register


# MindSpore and CANN


@case("cann_version", "fail", "install CANN 8.0.RC2 and source its set_env.sh")
def mindspore_2_3_1_on_cann_8_0_rc3(machine: Machine) -> None:
    machine.mindspore("2.3.1")
    machine.cann(name="8.0.RC3", internal="7.5.0.1.129", inner="V100R001C19SPC001B155", ops=None)


@case("cann_version", "fail", "pip install mindspore==2.9.0")
def mindspore_2_7_2_on_cann_9_0(machine: Machine) -> None:
    """2.7.2 takes 8.5 alone; the hint also names the MindSpore that recommends this CANN."""
    machine.mindspore("2.7.2")
    machine.cann(name="9.0.0", internal="9.0.0")


@case("cann_version", "warn", "MindSpore 2.10.0 with CANN 9.1.0")
def unknown_mindspore(machine: Machine) -> None:
    machine.mindspore("2.11.0")


@case("cann_version", "warn", "install CANN 8.0.0")
def pair_that_nothing_proves(machine: Machine) -> None:
    machine.mindspore("2.5.0")
    machine.cann(name="8.0.RC3", internal="7.5.0.1.129")


@case("mindspore", "warn", "MindSpore 2.8.0 with CANN 8.5.0; MindSpore 2.9.0 with CANN 9.0.0")
def unknown_patch_release(machine: Machine) -> None:
    machine.mindspore("2.8.5")


@case("cann_roots", "fail", "install CANN 8.5.0")
def no_cann_at_all(machine: Machine) -> None:
    machine.no_cann()


@case("cann_roots", "fail", "source /usr/local/Ascend/cann/set_env.sh")
def environment_points_to_a_removed_cann(machine: Machine) -> None:
    machine.source("/usr/local/Ascend/ascend-toolkit/latest")


@case("cann_roots", "warn", "choose one: source")
def nnae_beside_the_toolkit(machine: Machine) -> None:
    machine.cann("/usr/local/Ascend/nnae/8.5.0")
    machine.link("/usr/local/Ascend/nnae/latest", "/usr/local/Ascend/nnae/8.5.0")


@case("cann_roots", "fail", "open a new shell and source one of them only")
def search_paths_mix_two_canns(machine: Machine) -> None:
    machine.cann("/usr/local/Ascend/nnae/8.5.0")
    machine.environ["LD_LIBRARY_PATH"] += ":/usr/local/Ascend/nnae/8.5.0/lib64"


@case("cann_parts", "fail", "toolkit and op package of one version")
def operators_of_another_cann(machine: Machine) -> None:
    machine.file(f"{CANN}/opp/version.info", "Version=8.3.0.1.200\n")


@case("cann_parts", "warn", "this is CANN 9.1")
def label_and_parts_differ(machine: Machine) -> None:
    """ascend_toolkit_install.info says 9.2.0, all parts 9.1.0."""
    machine.cann(name="9.2.0", internal="9.1.0")


# op package


@case("op_kernels", "fail", "install Ascend-cann-910b-ops of version 8.5.0")
def op_package_missing(machine: Machine) -> None:
    machine.remove(f"{CANN}/aarch64-linux/ascend_ops_install.info")


@case("op_kernels", "fail", "install Ascend-cann-kernels-910b of version 8.2.RC1")
def op_package_of_an_older_layout_missing(machine: Machine) -> None:
    machine.cann(name="8.2.RC1", internal="8.2.0.0.201", ops=None)
    machine.remove(f"{CANN}/aarch64-linux/ascend_ops_install.info")


@case("op_kernels", "fail", "install Ascend-cann-910b-ops")
def op_package_for_another_chip(machine: Machine) -> None:
    machine.cann(ops="Ascend-cann-310p-ops")


@case("op_kernels", "fail", "Ascend-cann-A3-ops")
def op_package_of_910b_on_an_a3(machine: Machine) -> None:
    machine.npus(2, npu_tables.A3)


@case("op_kernels", "fail", "of version 8.5.0")
def op_package_of_another_version(machine: Machine) -> None:
    text = "package_name=Ascend-cann-910b-ops\nversion=8.3.RC1\n"
    machine.file(f"{CANN}/aarch64-linux/ascend_ops_install.info", text)


# environment variables and libraries


@case("ascend_env", "fail", "source /usr/local/Ascend/cann/set_env.sh")
def set_env_not_sourced(machine: Machine) -> None:
    machine.forget_env()


@case("ascend_env", "warn", "source /usr/local/Ascend/cann/set_env.sh")
def set_env_not_sourced_with_an_old_mindspore(machine: Machine) -> None:
    machine.mindspore("2.2.14")
    machine.forget_env()


@case("ascend_env", "fail", f"source {CANN}/set_env.sh")
def python_path_lacks_cann(machine: Machine) -> None:
    machine.environ["PYTHONPATH"] = f"{CANN}/python/site-packages"


@case("ascend_env", "warn", "open a new shell")
def variables_name_a_removed_folder(machine: Machine) -> None:
    machine.environ["LD_LIBRARY_PATH"] += ":/usr/local/Ascend/ascend-toolkit/8.0.RC3/lib64"


@case("plugin", "fail", "source /usr/local/Ascend/cann/set_env.sh")
def libge_runner_not_found(machine: Machine) -> None:
    machine.forget_env()
    machine.plugin("\tlibge_runner.so => not found\n\tlibhccl.so => not found\n")


@case("plugin", "fail", "the libraries of CANN 8.5.0 do not fit this MindSpore")
def libcann_kb_not_found(machine: Machine) -> None:
    machine.plugin("\tlibcann_kb.so => not found\n")


@case("plugin", "fail", "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver")
def driver_library_not_found(machine: Machine) -> None:
    machine.plugin("\tlibascend_hal.so => not found\n")


# te


@case("te", "fail", f"source {CANN}/set_env.sh")
def te_is_not_on_the_path(machine: Machine) -> None:
    machine.environ.pop("PYTHONPATH")


@case("te", "fail", "uninstall -y te topi hccl")
def te_of_an_older_cann_in_site_packages(machine: Machine) -> None:
    machine.file(f"{SITE}/te/version.py", 'version = "7.3.0.1.231"\n')
    machine.record["search_path"] = [SITE]
    machine.environ["PYTHONPATH"] = ""


@case("te", "warn", "uninstall -y te topi hccl")
def te_in_site_packages_and_in_cann(machine: Machine) -> None:
    machine.file(f"{SITE}/te/__init__.py")


@case("te_requirements", "fail", f"{PYTHON} -m pip install attrs decorator")
def packages_of_te_missing(machine: Machine) -> None:
    for name in TE_NEEDS[:1] + TE_NEEDS[2:3]:
        machine.unpackage(name)


@case("te_requirements", "fail", "'sympy>=1.4'")
def package_named_by_the_te_wheel_missing(machine: Machine) -> None:
    machine.package("te", "0.4.0", ("attrs", "sympy (>=1.4)"), f"{CANN}/python/site-packages")


# driver and firmware


@case("driver_version", "fail", "install driver 25.5.0 or a newer one on the host")
def driver_years_too_old(machine: Machine) -> None:
    machine.driver("22.0.4", "V100R001C79", "[V100R001C13]")


@case("driver_version", "fail", "in a container mount /usr/local/Ascend/driver")
def no_driver(machine: Machine) -> None:
    machine.remove("/usr/local/Ascend/driver/version.info")


@case("driver_version", "warn", "nearest known pairs: CANN 7.0.0 with driver 23.0.3; CANN 8.0.RC1")
def pair_of_driver_and_cann_in_no_table(machine: Machine) -> None:
    machine.cann(name="7.0.1.1", internal="7.1.0.5.220", inner="", compatible="")
    machine.driver("23.0.1", "", "")


@case("firmware", "fail", "install the firmware of driver 24.1.rc2.2 on the host")
def firmware_outside_the_drivers_range(machine: Machine) -> None:
    machine.driver("24.1.rc2.2", firmware="[7.0.0,7.2.99]")
    machine.firmware("7.10.0.1.231")


@case("npu_board", "fail", "driver and firmware of one release")
def vendor_calls_them_incompatible(machine: Machine) -> None:
    machine.command("npu-smi info -t board -i 0", "\tCompatibility   : NOK\n")


# NPUs


@case("npu_smi", "fail", "restart the host if driver or firmware were upgraded")
def dcmi_8005(machine: Machine) -> None:
    machine.npus(2, npu_tables.E_8005, code=1)


@case("npu_smi", "fail", "stop the other container")
def dcmi_8020(machine: Machine) -> None:
    machine.npus(2, npu_tables.E_8020, code=1)


@case("npu_smi", "warn", "mount /usr/local/bin/npu-smi of the host")
def npu_smi_missing_in_a_container(machine: Machine) -> None:
    machine.remove("/usr/local/bin/npu-smi")


@case("npu_smi", "fail", "dmesg")
def npu_smi_hangs(machine: Machine) -> None:
    machine.npus(2, "", problem="timeout")


@case("npu_health", "fail", "npu-smi info -t health -i 0 -c 0")
def sick_card(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, health="Alarm"))


@case("npu_health", "warn", "npu-smi info -t health -i 0 -c 0")
def card_with_a_minor_fault(machine: Machine) -> None:
    machine.npus(1, npu_tables.WIDE_26)


@case("npu_memory", "fail", "export ASCEND_RT_VISIBLE_DEVICES=1")
def first_card_is_busy(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, used=(26838,)))


@case("npu_memory", "warn", "export ASCEND_RT_VISIBLE_DEVICES=1")
def another_card_is_busy(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, used=(26838,)))
    machine.environ["DEVICE_ID"] = "1"


@case("chip", "fail", "MindSpore Lite")
def ascend_310p(machine: Machine) -> None:
    machine.npus(1, npu_tables.I310P)


@case("chip", "fail", "device=cpu")
def ascend_310(machine: Machine) -> None:
    machine.npus(1, npu_tables.I310)


@case("chip", "warn", "MindSpore 2.6.0 is the last")
def first_910_with_a_new_mindspore(machine: Machine) -> None:
    machine.npus(1, npu_tables.A1)


@case("device_nodes", "fail", "--device=/dev/davinci0")
def container_without_devices(machine: Machine) -> None:
    machine.remove("/dev/davinci[0-9]")


@case("device_nodes", "fail", "--device=/dev/devmm_svm")
def container_without_a_manager_node(machine: Machine) -> None:
    machine.remove("/dev/devmm_svm")


@case("device_nodes", "fail", "usermod -a -G HwHiAiUser worker")
def user_is_in_no_group(machine: Machine) -> None:
    machine.npus(2, mode=0o660)
    machine.record["owners"] = {f"/dev/davinci{number}": [1001, 1001] for number in range(2)}


@case("device_nodes", "fail", "usermod")
def root_without_its_rights(machine: Machine) -> None:
    machine.npus(2, mode=0o660)
    machine.record.update(user="root", user_id=0, groups=[0], overrides_permissions=False)
    machine.record["owners"] = {"/dev/davinci0": [1001, 1001]}


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1")
def visible_device_out_of_range(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "4"


@case("visible_devices", "fail", "or unset it")
def empty_list_of_visible_devices(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = ""


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1")
def descending_list_of_visible_devices(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1,0"


@case("visible_devices", "fail", "export DEVICE_ID=0")
def device_id_beyond_the_visible_ones(machine: Machine) -> None:
    machine.environ.update(ASCEND_RT_VISIBLE_DEVICES="1", DEVICE_ID="1")


@case("visible_devices", "warn", "start the container again")
def container_asked_for_more_devices(machine: Machine) -> None:
    machine.environ["ASCEND_VISIBLE_DEVICES"] = "0-7"


# several devices


@case("hccl_links", "fail", "-netdetect -g")
def link_down(machine: Machine) -> None:
    machine.links(link="DOWN")


@case("hccl_links", "warn", "-netdetect -g shows the address that is pinged")
def network_not_healthy(machine: Machine) -> None:
    machine.links(health="Init")


@case("hccl_links", "warn", "-ip -s address")
def no_address_and_an_empty_hccn_conf(machine: Machine) -> None:
    machine.links(address=None)
    machine.file("/etc/hccn.conf")


@case("hccl_links", "warn", "export PATH=$PATH:/usr/local/Ascend/driver/tools")
def hccn_tool_missing(machine: Machine) -> None:
    machine.remove("/usr/local/Ascend/driver/tools/hccn_tool")


@case("hccl_network", "warn", "export HCCL_IF_BASE_PORT=17666")
def port_16666_is_taken(machine: Machine) -> None:
    machine.record["busy_ports"] = [16666]


@case("hccl_network", "warn", "/etc/hosts")
def master_address_unknown(machine: Machine) -> None:
    machine.environ["MS_SCHED_HOST"] = "master"


@case("hccl_env", "fail", "unset HCCL_CONNECT_TIMEOUT RANK_TABLE_FILE")
def variables_of_hccl_are_wrong(machine: Machine) -> None:
    machine.environ.update(HCCL_CONNECT_TIMEOUT="10min", RANK_TABLE_FILE="/work/table.json", HCCL_BUFFSIZE="200")


# system and packages


@case("glibc", "fail", "newer system")
def glibc_too_old(machine: Machine) -> None:
    machine.record["libc"] = ["glibc", "2.12"]


@case("glibc", "fail", "newer system")
def musl(machine: Machine) -> None:
    machine.record["libc"] = ["", ""]
    machine.file("/lib/ld-musl-aarch64.so.1")


@case("libraries", "fail", "glibc cannot be upgraded by itself")
def glibc_2_27_not_found(machine: Machine) -> None:
    text = "/lib64/libm.so.6: version `GLIBC_2.27' not found (required by _c_expression.so)\n"
    machine.command(f"ldd {SITE}/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so", text)


@case("libraries", "fail", "libstdcxx-ng")
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


@case("mindspore", "warn", "uninstall -y mindspore mindspore-ascend")
def two_mindspores(machine: Machine) -> None:
    machine.package("mindspore-ascend", "1.10.1")


@case("numpy", "fail", "pip install 'numpy>=1.25,<2' 'opencv-python>=4.8,<4.12'")
def numpy_2(machine: Machine) -> None:
    machine.unpackage("numpy")
    machine.package("numpy", "2.4.6")


@case("opencv", "fail", "'opencv-python>=4.8,<4.12' 'numpy>=1.25,<2'")
def opencv_that_needs_numpy_2(machine: Machine) -> None:
    machine.unpackage("opencv-python")
    machine.package("opencv-python", "5.0.0.93")


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


@case("shadows", "fail", "rename mindspore in /work")
def folder_called_mindspore(machine: Machine) -> None:
    machine.file("/work/mindspore/__init__.py")
    machine.record["search_path"] = ["/work", SITE]


@case("shadows", "warn", "rename te in /work")
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


@case("libdnnl", "warn", "take /opt/onednn/lib off LD_LIBRARY_PATH")
def another_onednn(machine: Machine) -> None:
    machine.file("/opt/onednn/lib/libdnnl.so.3")
    machine.environ["LD_LIBRARY_PATH"] += ":/opt/onednn/lib"


@case("libgomp", "warn", f"export LD_PRELOAD={SITE}/scikit_learn.libs/libgomp-d22c30c5.so.1.0.0")
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


@case("shared_memory", "warn", "--shm-size=8g")
def shared_memory_of_docker(machine: Machine) -> None:
    machine.record["free_bytes"]["/dev/shm"] = 64 << 20


# smoke test


@case("smoke", "fail", "do not belong together crash")
def crash_by_signal(machine: Machine) -> None:
    machine.smoke("[WARNING] loading\nsome last words\n", signal=11)


@case("smoke", "fail", "pip install attrs cloudpickle")
def te_cannot_be_imported(machine: Machine) -> None:
    text = "CheckFailed: cannot import name 'version' from 'te' (unknown location)\nFatal Python error: Aborted\n"
    machine.smoke(text, signal=6)


@case("smoke", "fail", "source /usr/local/Ascend/ascend-toolkit/set_env.sh")
def set_env_missing_shows_in_the_compiler(machine: Machine) -> None:
    machine.smoke("Traceback ...\nKeyError: 'op_debug_dir'\n", code=1)


@case("smoke", "warn", "train on an Atlas 800T/900")
def success_with_errors_in_the_log(machine: Machine) -> None:
    """run_check says "installed successfully" too on a chip without operators."""
    good = '{"device": "Ascend", "mindspore": "2.8.0", "import_s": 1, "step_s": 2, "error": null}\n'
    machine.smoke(f"[ERROR] LoadOpInfoJson] Get op info json suffix path failed, soc_version: Ascend310P3\n{good}")


@case("smoke", "fail", "python -m msrun_cli.runtime.smoke Ascend")
def wrong_numbers(machine: Machine) -> None:
    bad = '{"device": "Ascend", "mindspore": "2.8.0", "import_s": 1, "step_s": 2, "error": "the loss is 7 where"}\n'
    machine.smoke(bad, code=1)


@pytest.mark.parametrize(("spoil", "check", "status", "hint"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_failure(tmp_path: Path, spoil: Spoil, check: str, status: str, hint: str) -> None:
    machine = healthy(tmp_path)
    assert machine.check(check).status == "pass", "the healthy machine must pass"
    spoil(machine)
    result = machine.check(check)
    assert (result.status, result.outcome.found != "") == (status, True), result
    assert hint in result.outcome.hint, result
    assert result.outcome.expected and result.outcome.source, result


def test_onednn_on_an_avx512_processor(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    assert machine.check("onednn").status == "pass"
    machine.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"
    result = machine.check("onednn")
    assert result.status == "warn" and "unset ONEDNN_MAX_CPU_ISA" in result.outcome.hint


def test_a_crash_shows_the_tail_of_its_log(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    crash_by_signal(machine)
    outcome = machine.check("smoke").outcome
    assert outcome.found == "killed by signal 11 (SIGSEGV)"
    assert outcome.details[-1] == "some last words"


def test_a_simulated_device_needs_no_nodes(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    container_without_devices(machine)
    machine.environ["MS_SIMULATION_LEVEL"] = "1"
    assert machine.check("device_nodes").status == "skip"


def test_te_is_never_imported_from_the_tree(tmp_path: Path) -> None:
    """A te that raises at import changes nothing."""
    machine = healthy(tmp_path)
    machine.file(f"{CANN}/{TBE}/te/__init__.py", "raise SystemExit('imported')\n")
    assert machine.check("te").status == "pass"
