"""What is right is not called wrong, in every layout."""

from __future__ import annotations

from pathlib import Path

import npu_tables
import pytest
from machines import CANN, SITE, TBE, Machine, cpu_only, healthy


def complaints(machine: Machine, device: str = "auto") -> dict[str, str]:
    results = machine.examine(device).values()
    return {result.check: result.outcome.found for result in results if result.status in ("warn", "fail")}


def test_an_ascend_machine_passes_every_check(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    results = machine.examine()
    assert complaints(machine) == {}
    assert {name for name, result in results.items() if result.status == "skip"} == {"onednn", "compiler"}


def test_a_cpu_machine_skips_what_is_about_ascend(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    results = machine.examine()
    assert set(complaints(machine)) == {"msrun_script"}
    assert results["cann_roots"].status == results["npu_smi"].status == "skip"
    assert results["smoke"].outcome.found.startswith("MindSpore 2.8.0 on CPU")


def test_asking_for_the_cpu_on_an_ascend_machine(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.forget_env()
    machine.remove("/dev/davinci0")
    machine.smoke(device="CPU")
    assert complaints(machine, "cpu") == {}


def test_old_layout_with_absolute_link(tmp_path: Path) -> None:
    """ascend-toolkit/latest -> /usr/local/Ascend/ascend-toolkit/8.0.0, a name inside the tree."""
    machine = healthy(tmp_path)
    machine.no_cann()
    real, latest = "/usr/local/Ascend/ascend-toolkit/8.0.0", "/usr/local/Ascend/ascend-toolkit/latest"
    machine.cann(real, "8.0.0", "7.6.0.1.220", "V100R001C20SPC001B251", "[V100R001C19],[V100R001C20]", ops=None)
    kernels = "Ascend-cann-kernels-910b"
    machine.file(f"{real}/aarch64-linux/ascend_kernels_install.info", f"package_name={kernels}\nversion=8.0.0\n")
    machine.link(latest, real)
    machine.source(latest)
    machine.mindspore("2.5.0")
    results = machine.examine()
    assert complaints(machine) == {"mindspore": "2.5.0"}  # too old for msrun-cli, right for this CANN
    assert results["cann_roots"].outcome.found == f"8.0.0 in {latest} -> {real}"


def test_latest_as_a_folder_of_links(tmp_path: Path) -> None:
    """latest/compiler -> ../8.0.0/compiler and so on, and set_env.sh beside it: one installation, not two."""
    machine = healthy(tmp_path)
    machine.no_cann()
    parent = "/usr/local/Ascend/ascend-toolkit"
    machine.cann(f"{parent}/8.0.0", "8.0.0", "7.6.0.1.220", "V100R001C20SPC001B251", "[V100R001C19]")
    machine.remove(f"{parent}/8.0.0/set_env.sh")
    machine.file(f"{parent}/set_env.sh")
    for part in ("compiler", "runtime", "opp", "hccl", "lib64", "python", "aarch64-linux"):
        machine.link(f"{parent}/latest/{part}", f"../8.0.0/{part}")
    machine.source(f"{parent}/latest")
    machine.mindspore("2.5.0")
    assert set(complaints(machine)) == {"mindspore"}
    assert machine.check("cann_roots").outcome.found == f"8.0.0 in {parent}/latest"
    machine.forget_env()
    assert f"source {parent}/set_env.sh" in machine.check("ascend_env").outcome.hint


@pytest.mark.parametrize(
    "path",
    ["/home/worker/Ascend/cann-8.5.0", f"{SITE}/ascend/cann-8.5.0", "/opt/conda/envs/x/Ascend/cann-8.5.0"],
    ids=["user", "pip", "conda"],
)
def test_other_places_of_cann(tmp_path: Path, path: str) -> None:
    machine = healthy(tmp_path)
    machine.no_cann()
    machine.record["home"] = "/home/worker"
    machine.environ["CONDA_PREFIX"] = "/opt/conda/envs/x"
    machine.cann(path)
    assert path in machine.check("cann_roots", "ascend").outcome.found
    machine.source(path)
    assert complaints(machine) == {}


def test_info_files_of_the_new_layout(tmp_path: Path) -> None:
    """share/info/<part>/version.info instead of <part>/version.info."""
    machine = healthy(tmp_path)
    for part in ("compiler", "runtime", "opp", "hccl"):
        text = (tmp_path / CANN.lstrip("/") / part / "version.info").read_text()
        machine.remove(f"{CANN}/{part}/version.info")
        machine.file(f"{CANN}/share/info/{part}/version.info", text)
    assert complaints(machine) == {}


def test_kernels_are_found_by_version_cfg_and_folder(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.remove(f"{CANN}/aarch64-linux/ascend_ops_install.info")
    machine.file(f"{CANN}/{TBE}/kernel/ascend910b/x.o")
    assert machine.check("op_kernels").status == "pass"
    machine.file(f"{CANN}/version.cfg", "# version: 1.0\nopp_kernel_running_version=[8.5.0.1.231:8.5.0]\n")
    assert machine.check("op_kernels").outcome.found == "ascend910b 8.5.0"


@pytest.mark.parametrize(
    ("table", "kind", "status"),
    [(npu_tables.A3, "Ascend910", "pass"), (npu_tables.A1, "910ProB", "warn"), (npu_tables.WIDE_26, "910B3", "pass")],
)
def test_chips(tmp_path: Path, table: str, kind: str, status: str) -> None:
    machine = healthy(tmp_path)
    machine.npus(2, table)
    result = machine.check("chip")
    assert (result.status, result.outcome.found.split()[0]) == (status, kind)


def test_driver_and_cann_need_only_one_list(tmp_path: Path) -> None:
    """Driver C19 does not name CANN C20, but CANN names C19; and a range [C13,C19] holds what lies between."""
    machine = healthy(tmp_path)
    machine.driver("24.1.rc3", "V100R001C19SPC001B155", "[V100R001C13],[V100R001C19]")
    machine.cann(inner="V100R001C20SPC001B251", compatible="[V100R001C15,V100R001C19],[V100R001C30]")
    assert machine.check("driver_version").status == "pass"


def test_lists_that_start_again_are_not_compared_by_order(tmp_path: Path) -> None:
    """CANN 9.0.0 is C10, though newer than the C25 of 8.5.0."""
    machine = healthy(tmp_path)
    machine.cann(name="9.0.0", internal="9.0.0", inner="V100R001C10SPC001", compatible="[V100R001C25],[V100R001C10]")
    assert machine.check("driver_version").status == "pass"
    machine.cann(name="9.0.0", internal="9.0.0", inner="V100R001C10SPC001", compatible="[V100R001C10]")
    machine.driver("24.1.0", "V100R001C20SPC001", "[V100R001C19],[V100R001C20],[V100R001C21]")
    assert machine.check("driver_version").status == "fail"


def test_without_lists_the_table_decides(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    machine.cann(name="9.1.0", internal="9.1.0", inner="", compatible="")
    for version, status in (("26.1.0", "pass"), ("25.2.3", "pass"), ("25.0.RC1", "fail")):
        machine.driver(version, "", "")
        assert machine.check("driver_version").status == status, version


def test_an_environment_with_brackets_and_blanks_in_its_path(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    (tmp_path / "opt/env").rename(tmp_path / "opt/[my] 环境")
    place = "/opt/[my] 环境/lib/python3.11/site-packages"
    machine.record["search_path"] = [place]
    machine.record["executable"] = "/opt/[my] 环境/bin/python"
    machine.command(f"ldd {place}/mindspore/_c_expression.cpython-311-x86_64-linux-gnu.so", "libc.so.6 => /lib/x\n")
    assert set(complaints(machine)) == {"msrun_script"}
    assert "'/opt/[my] 环境/bin/python' -m pip" in machine.check("msrun_script").outcome.hint


def test_opencv_of_conda_is_a_single_file(tmp_path: Path) -> None:
    machine = cpu_only(tmp_path)
    machine.unpackage("opencv-python")
    machine.remove(f"{SITE}/cv2/__init__.py")
    (tmp_path / f"{SITE}/cv2".lstrip("/")).rmdir()
    machine.file(f"{SITE}/cv2.cpython-311-x86_64-linux-gnu.so")
    assert machine.check("opencv").status == "pass"


def test_empty_folder_as_root(tmp_path: Path) -> None:
    """No host.json, no files: whatever cannot be known is skipped or failed, and nothing crashes."""
    from msrun_cli.environment.examination import choose, examine
    from msrun_cli.environment.tree import TreeHost

    for device in ("auto", "ascend", "cpu"):
        results = examine(TreeHost(tmp_path), device, choose((), (), quick=False)).results
        assert not [result for result in results if "the check itself failed" in result.outcome.found]
        assert {result.status for result in results if result.check == "mindspore"} == {"fail"}
