"""MindSpore and CANN that do not fit, variables that are not set, te: the check, its status and its remedy."""

from __future__ import annotations

from pathlib import Path

import npu_tables
import pytest
from failure_cases import Cases, Spoil, examine_spoilt
from machines import CANN, ENV, PYTHON, SITE, TBE, TE_NEEDS, Machine, healthy

case = Cases()


# MindSpore and CANN


@case("cann_version", "fail", "install CANN 8.0.RC2 and source its set_env.sh", 1)
def mindspore_2_3_1_on_cann_8_0_rc3(machine: Machine) -> None:
    machine.mindspore("2.3.1")
    machine.cann(name="8.0.RC3", internal="7.5.0.1.129", inner="V100R001C19SPC001B155", ops=None)


@case("plugin", "fail", "install CANN 6.3.RC1", 6)
@case("cann_version", "warn", "Ascend-cann-toolkit_6.3.RC1_linux-$(uname -m).run --install; nearest known", 6)
def mindspore_2_0_0_with_cann_5_0_4(machine: Machine) -> None:
    """The internal number of CANN 5.0.4 is in no table; this one stands for it."""
    machine.mindspore("2.0.0")
    old_layout(machine, "5.0.4", "1.80.22.2.220")
    machine.plugin("\tlibcann_kb.so => not found\n")


@case("cann_version", "warn", "install CANN 7.0.0", 8)
@case("driver_version", "warn", "nearest known pairs: CANN 7.0.0 with driver 23.0.3; CANN 8.0.RC1", 8)
@case("chip", "fail", "MindSpore Lite", 8)
def mindspore_2_2_14_with_cann_7_0_1_1_on_a_310p3(machine: Machine) -> None:
    machine.mindspore("2.2.14")
    old_layout(machine, "7.0.1.1", "7.1.0.5.220")
    machine.driver("23.0.1", "", "")
    machine.npus(1, npu_tables.I310P)


@case("driver_version", "warn", "CANN 6.3.RC2 with driver 23.0.RC2; CANN 7.0.0 with driver 23.0.3", 9)
def driver_22_0_4_with_mindspore_2_1_1(machine: Machine) -> None:
    """No table knows the oldest driver of CANN 6.3.RC2, and the files of that time carry no lists."""
    machine.mindspore("2.1.1")
    old_layout(machine, "6.3.RC2", "6.4.12.1.241")
    machine.driver("22.0.4", "", "")


def old_layout(machine: Machine, name: str, internal: str) -> None:
    """ascend-toolkit/latest, in place of the CANN that was there, without lists of versions."""
    parent = "/usr/local/Ascend/ascend-toolkit"
    machine.no_cann()
    machine.cann(f"{parent}/{name}", name, internal, inner="", compatible="", ops=None)
    machine.link(f"{parent}/latest", f"{parent}/{name}")
    machine.source(f"{parent}/latest")


@case("cann_version", "warn", "compiler/version.info")
def cann_without_a_version(machine: Machine) -> None:
    for part in ("compiler", "runtime", "opp", "hccl"):
        machine.file(f"{CANN}/{part}/version.info", "version_dir=8.5.0\n")


@case("cann_version", "fail", "pip install mindspore==2.9.0")
def mindspore_2_7_2_on_cann_9_0(machine: Machine) -> None:
    """2.7.2 takes 8.5 alone; the hint also names the MindSpore that recommends this CANN."""
    machine.mindspore("2.7.2")
    machine.cann(name="9.0.0", internal="9.0.0")


@case("cann_version", "warn", "MindSpore 2.10.0 with CANN 9.1.0")
def unknown_mindspore(machine: Machine) -> None:
    machine.mindspore("2.11.0")


@case("cann_version", "warn", "nearest known: CANN 9.2.0 with driver 26.2.RC1")
def unknown_cann(machine: Machine) -> None:
    machine.cann(name="9.4.0", internal="9.4.0")


@case("cann_version", "fail", "install CANN 8.5.0")
def known_cann_that_is_too_new(machine: Machine) -> None:
    machine.cann(name="9.2.0", internal="9.2.0")


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


@case("cann_roots", "warn", "choose one: source", 15)
def nnae_beside_the_toolkit(machine: Machine) -> None:
    machine.cann("/usr/local/Ascend/nnae/8.5.0")
    machine.link("/usr/local/Ascend/nnae/latest", "/usr/local/Ascend/nnae/8.5.0")


@case("cann_roots", "fail", "open a new shell and source one of them only", 15)
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


@case("op_kernels", "fail", "8.5.0: bash Ascend-cann-910b-ops_8.5.0_linux-$(uname -m).run --install", 21)
def op_package_missing(machine: Machine) -> None:
    machine.remove(f"{CANN}/aarch64-linux/ascend_ops_install.info")


@case("op_kernels", "fail", "install Ascend-cann-kernels-910b of version 8.2.RC1")
def op_package_of_an_older_layout_missing(machine: Machine) -> None:
    machine.cann(name="8.2.RC1", internal="8.2.0.0.201", ops=None)
    machine.remove(f"{CANN}/aarch64-linux/ascend_ops_install.info")


@case("op_kernels", "fail", "install Ascend-cann-910b-ops")
def op_package_for_another_chip(machine: Machine) -> None:
    machine.cann(ops="Ascend-cann-310p-ops")


@case("op_kernels", "fail", "install Ascend-cann-310p-ops of version 8.5.0", 22)
def image_for_910b_on_a_310p3(machine: Machine) -> None:
    machine.npus(1, npu_tables.I310P)


@case("op_kernels", "fail", "Ascend-cann-A3-ops")
def op_package_of_910b_on_an_a3(machine: Machine) -> None:
    machine.npus(2, npu_tables.A3)


@case("op_kernels", "fail", "of version 8.5.0", 21)
def op_package_of_another_version(machine: Machine) -> None:
    text = "package_name=Ascend-cann-910b-ops\nversion=8.3.RC1\n"
    machine.file(f"{CANN}/aarch64-linux/ascend_ops_install.info", text)


# environment variables and libraries


@case("ascend_env", "fail", "source /usr/local/Ascend/cann/set_env.sh", 4)
def set_env_not_sourced(machine: Machine) -> None:
    machine.forget_env()


@case("ascend_env", "warn", "source /usr/local/Ascend/cann/set_env.sh")
def set_env_not_sourced_with_an_old_mindspore(machine: Machine) -> None:
    machine.mindspore("2.2.14")
    machine.forget_env()


@case("ascend_env", "fail", f"source {CANN}/set_env.sh", 11)
def python_path_lacks_cann(machine: Machine) -> None:
    machine.environ["PYTHONPATH"] = f"{CANN}/python/site-packages"


@case("ascend_env", "warn", "open a new shell")
def variables_name_a_removed_folder(machine: Machine) -> None:
    machine.environ["LD_LIBRARY_PATH"] += ":/usr/local/Ascend/ascend-toolkit/8.0.RC3/lib64"


@case("plugin", "fail", "source /usr/local/Ascend/cann/set_env.sh", 5, 12)
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


@case("te", "fail", "uninstall -y te topi hccl", 13)
def te_of_an_older_cann_in_site_packages(machine: Machine) -> None:
    machine.file(f"{SITE}/te/version.py", 'version = "7.3.0.1.231"\n')
    machine.record["search_path"] = [SITE]
    machine.environ["PYTHONPATH"] = ""


@case("te", "fail", "uninstall -y te topi hccl", 14)
@case("smoke", "fail", "pip uninstall -y te topi hccl in this environment", 14)
def te_of_an_older_cann_in_a_conda_environment(machine: Machine) -> None:
    """Its te answers MindSpore's compiler with text where JSON is expected."""
    machine.environ["CONDA_PREFIX"] = ENV
    machine.environ.pop("PYTHONPATH")
    for name, version in (("te", "0.4.0"), ("hccl", "0.1.0")):
        machine.package(name, version)
        machine.file(f"{SITE}/{name}/__init__.py")
    machine.file(f"{SITE}/te/version.py", 'version = "7.3.0.1.231"\n')
    text = (
        "RuntimeError: [json.exception.parse_error.101] parse error at line 1, column 1: syntax error - last read: 'T'"
    )
    machine.smoke(f"{text}\n", code=1)


@case("te", "warn", "uninstall -y te topi hccl")
def te_in_site_packages_and_in_cann(machine: Machine) -> None:
    machine.file(f"{SITE}/te/__init__.py")


@case("te_requirements", "fail", f"{PYTHON} -m pip install attrs decorator", 2, 3)
def packages_of_te_missing(machine: Machine) -> None:
    for name in ("attrs", "decorator"):
        machine.unpackage(name)


@case("te_import", "fail", "pip install attrs cloudpickle", 2)
def import_of_te_aborts(machine: Machine) -> None:
    text = "ImportError: cannot import name 'util' from 'tbe.tvm.topi.cce'\nFatal Python error: PyThreadState_Get\n"
    machine.command("python -c import te, tbe", text, signal=6)


@case("te_import", "fail", "source set_env.sh of the CANN in use", 11)
def module_of_tbe_missing(machine: Machine) -> None:
    text = "ModuleNotFoundError: No module named 'tbe.common.repository_manager.utils'\n"
    machine.command("python -c import te, tbe", text, code=1)


@case("te_requirements", "fail", "'sympy>=1.4'", 3)
def package_named_by_the_te_wheel_missing(machine: Machine) -> None:
    machine.unpackage("sympy")
    machine.package("te", "0.4.0", ("attrs", "sympy (>=1.4)"), f"{CANN}/python/site-packages")


@pytest.mark.parametrize(("spoil", "check", "status", "hint", "device"), case.params)
def test_failure(tmp_path: Path, spoil: Spoil, check: str, status: str, hint: str, device: str) -> None:
    examine_spoilt(tmp_path, spoil, check, status, hint, device)


def test_te_is_never_imported_from_the_tree(tmp_path: Path) -> None:
    """A te that raises at import changes nothing."""
    machine = healthy(tmp_path)
    machine.file(f"{CANN}/{TBE}/te/__init__.py", "raise SystemExit('imported')\n")
    assert machine.check("te").status == "pass"


@pytest.mark.parametrize("name", TE_NEEDS)
def test_each_package_of_te_is_missed(tmp_path: Path, name: str) -> None:
    machine = healthy(tmp_path)
    machine.unpackage(name)
    result = machine.check("te_requirements")
    assert (result.status, result.outcome.hint) == ("fail", f"{PYTHON} -m pip install {name}")
