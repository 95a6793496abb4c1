"""Driver, NPUs and their network: the check, its status and its remedy."""

from __future__ import annotations

from pathlib import Path

import npu_tables
import pytest
from failure_cases import Cases, Spoil, examine_spoilt
from machines import Machine, healthy

case = Cases()


# driver and firmware


@case("driver_version", "fail", "Ascend-hdk-*-npu-driver_25.5.0_linux-$(uname -m).run --upgrade && sudo reboot")
def driver_years_too_old(machine: Machine) -> None:
    """Below the window of the table, and neither lists the other."""
    machine.driver("22.0.4", "V100R001C79", "[V100R001C13]")


@case("driver_version", "fail", "in a container mount /usr/local/Ascend/driver")
def no_driver(machine: Machine) -> None:
    machine.remove("/usr/local/Ascend/driver/version.info")


@case("driver_version", "warn", "nearest known pairs: CANN 8.3.RC1 with driver 25.3.RC1; CANN 8.5.0 with driver 25.5.0")
def older_driver_where_no_window_is_known(machine: Machine) -> None:
    """No table says which drivers older than its own CANN 8.3.RC1 takes; a year less proves nothing."""
    machine.cann(name="8.3.RC1", internal="8.3.0.1.200", inner="", compatible="")
    machine.driver("24.1.rc3", "", "")


@case("driver_version", "warn", "if something fails, install driver 24.1.0 or a newer one on the host")
def driver_of_the_year_before(machine: Machine) -> None:
    machine.cann(name="8.0.0", internal="7.6.0.1.220", inner="", compatible="")
    machine.driver("23.0.7", "", "")


@case("firmware", "fail", "install the firmware of driver 24.1.rc2.2 on the host")
def firmware_outside_the_drivers_range(machine: Machine) -> None:
    machine.driver("24.1.rc2.2", firmware="[7.0.0,7.2.99]")
    machine.firmware("7.10.0.1.231")


@case("firmware", "fail", "install the firmware of driver 25.5.0 on the host")
def driver_outside_the_firmwares_range(machine: Machine) -> None:
    """Older drivers name no firmware; the firmware names drivers."""
    machine.driver(firmware="")
    machine.firmware("7.1.0.11.220", "23.0.7", "[23.0.rc3,23.0.rc3.],[23.0.0,23.0.0.]")


@case("firmware", "warn", "npu-smi info -t board -i 0")
def files_do_not_tell_about_the_firmware(machine: Machine) -> None:
    machine.driver(firmware="")
    machine.firmware(drivers="")


@case("npu_board", "fail", "driver and firmware of one release")
def vendor_calls_them_incompatible(machine: Machine) -> None:
    machine.command("npu-smi info -t board -i 0", "\tCompatibility   : NOK\n")


# NPUs


@case("npu_smi", "fail", "restart the host if driver or firmware were upgraded", 17)
def dcmi_8005(machine: Machine) -> None:
    machine.npus(2, npu_tables.E_8005, code=1)


@case("npu_smi", "fail", "stop the other container", 18)
def dcmi_8020(machine: Machine) -> None:
    machine.npus(2, npu_tables.E_8020, code=1)


@case("npu_smi", "warn", "mount /usr/local/bin/npu-smi of the host")
def npu_smi_missing_in_a_container(machine: Machine) -> None:
    machine.remove("/usr/local/bin/npu-smi")


@case("npu_smi", "fail", "dmesg")
def npu_smi_hangs(machine: Machine) -> None:
    machine.npus(2, "", problem="timeout")


@case("npu_smi", "warn", "run `npu-smi info` by hand")
def npu_smi_lists_no_npu(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(0))


@case("npu_health", "fail", "npu-smi info -t health -i 0 -c 0")
def sick_card(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, health="Alarm"))


@case("npu_health", "warn", "npu-smi info -t health -i 0 -c 0")
def card_with_a_minor_fault(machine: Machine) -> None:
    machine.npus(1, npu_tables.WIDE_26)


@case("npu_memory", "fail", "export ASCEND_RT_VISIBLE_DEVICES=1", 19)
def first_card_is_busy(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, used=(26838,)))


@case("npu_memory", "warn", "export ASCEND_RT_VISIBLE_DEVICES=1")
def another_card_is_busy(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, used=(26838,)))
    machine.environ["DEVICE_ID"] = "1"


@case("npu_memory", "fail", "kill 19330 19331")
def all_cards_are_busy(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, used=(26838, 26838)))


@case("npu_memory", "fail", "export HCCL_BUFFSIZE=200", 23)
def buffers_of_hccl_fill_the_memory(machine: Machine) -> None:
    machine.environ["HCCL_BUFFSIZE"] = "20000"


@case("chip", "warn", "this chip is in no table")
def unknown_chip(machine: Machine) -> None:
    machine.npus(2, npu_tables.a2(2, name="960X"))


@case("chip", "fail", "MindSpore Lite", 7)
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


@case("device_nodes", "fail", "usermod -a -G HwHiAiUser worker", 17)
def user_is_in_no_group(machine: Machine) -> None:
    machine.npus(2, mode=0o660)
    machine.record["owners"] = {f"/dev/davinci{number}": [1001, 1001] for number in range(2)}


@case("device_nodes", "fail", "usermod")
def root_without_its_rights(machine: Machine) -> None:
    machine.npus(2, mode=0o660)
    machine.record.update(user="root", user_id=0, groups=[0], overrides_permissions=False)
    machine.record["owners"] = {"/dev/davinci0": [1001, 1001]}


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1", 20)
def visible_device_out_of_range(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "4"


@case("visible_devices", "fail", "or unset it")
def empty_list_of_visible_devices(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = ""


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1")
def descending_list_of_visible_devices(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1,0"


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1, or unset it")
def visible_device_twice(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0,0"


@case("visible_devices", "fail", "export ASCEND_RT_VISIBLE_DEVICES=0,1, or unset it")
def malformed_list_of_visible_devices(machine: Machine) -> None:
    machine.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0;1"


@case("visible_devices", "fail", "export DEVICE_ID=0")
def device_id_beyond_the_visible_ones(machine: Machine) -> None:
    machine.environ.update(ASCEND_RT_VISIBLE_DEVICES="1", DEVICE_ID="1")


@case("visible_devices", "warn", "start the container again")
def container_asked_for_more_devices(machine: Machine) -> None:
    machine.environ["ASCEND_VISIBLE_DEVICES"] = "0-7"


# several devices


@case("hccl_links", "fail", "-netdetect -g", 23)
def link_down(machine: Machine) -> None:
    machine.links(link="DOWN")


@case("hccl_links", "warn", "-netdetect -g shows the address that is pinged", 23)
def network_not_healthy(machine: Machine) -> None:
    machine.links(health="Init")


@case("hccl_links", "warn", "-ip -s address", 10)
def no_address_and_an_empty_hccn_conf(machine: Machine) -> None:
    machine.links(address=None)
    machine.file("/etc/hccn.conf")


@case("hccl_links", "warn", "export PATH=$PATH:/usr/local/Ascend/driver/tools", 10)
def hccn_tool_missing(machine: Machine) -> None:
    machine.remove("/usr/local/Ascend/driver/tools/hccn_tool")


@case("hccl_network", "warn", "export HCCL_IF_BASE_PORT=17666", 23)
def port_16666_is_taken(machine: Machine) -> None:
    machine.record["busy_ports"] = [16666]


@case("hccl_network", "warn", "/etc/hosts", 23)
def master_address_unknown(machine: Machine) -> None:
    machine.environ["MS_SCHED_HOST"] = "master"


@case("hccl_network", "warn", "launch.port=8119 (MindSpore's launcher: --master_port=8119)", 23)
def port_of_the_scheduler_is_taken(machine: Machine) -> None:
    machine.record["busy_ports"] = [8118]


@case("hccl_network", "warn", "sudo hostnamectl set-hostname NAME on one of them", 23)
def two_hosts_of_one_name(machine: Machine) -> None:
    machine.file("/etc/hosts", "127.0.0.1 localhost node7\n192.168.20.160 node7\n192.168.20.161 node7 # the second\n")


@case("hccl_network", "warn", "sudo hostnamectl set-hostname NAME")
def host_called_localhost(machine: Machine) -> None:
    machine.record.update(hostname="localhost", known_hosts=["localhost"])


@case("hccl_env", "fail", "unset HCCL_CONNECT_TIMEOUT RANK_TABLE_FILE")
def variables_of_hccl_are_wrong(machine: Machine) -> None:
    machine.environ.update(HCCL_CONNECT_TIMEOUT="10min", RANK_TABLE_FILE="/work/table.json", HCCL_BUFFSIZE="200")


@pytest.mark.parametrize(("spoil", "check", "status", "hint", "device"), case.params)
def test_failure(tmp_path: Path, spoil: Spoil, check: str, status: str, hint: str, device: str) -> None:
    examine_spoilt(tmp_path, spoil, check, status, hint, device)


def test_a_simulated_device_needs_no_nodes(tmp_path: Path) -> None:
    machine = healthy(tmp_path)
    container_without_devices(machine)
    machine.environ["MS_SIMULATION_LEVEL"] = "1"
    assert machine.check("device_nodes").status == "skip"
