"""Driver and firmware: first by the lists they carry themselves, then by the table."""

from __future__ import annotations

import re

from msrun_cli.environment.cann import Cann
from msrun_cli.environment.checks.vendor_commands import install_driver, install_firmware
from msrun_cli.environment.compatibility import Matrix
from msrun_cli.environment.driver import Driver, declared_fit
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import in_ranges, version_key

_FITS, _NOT_PROVEN, _TOO_OLD, _UNKNOWN = "fits", "not proven", "too old", "unknown"


def driver(machine: Machine) -> Outcome:
    found, cann = machine.driver, machine.active_cann
    row = machine.matrix.cann_row(cann.version) if cann and cann.version else None
    mindspore = machine.matrix.mindspore_row(machine.mindspore.version) if machine.mindspore else None
    release = row.driver if row else mindspore.driver if mindspore and cann is None else None
    wanted = f"driver {release}" if release else "the driver of your CANN"
    if found is None:
        command = install_driver(release or "*", upgrade=False)
        hint = f"install {wanted} on the host ({command}); in a container mount /usr/local/Ascend/driver of the host"
        return fail("none", wanted, "/etc/ascend_install.info, /usr/local/Ascend/driver/version.info", hint)
    if cann is None:
        return fine(f"driver {found.version}, no CANN to compare with", "", found.source)
    declared, verdict = declared_fit(cann, found), _by_table(machine.matrix, cann, found)
    pair = f"driver {found.version} with CANN {cann.label}"
    details = _reasons(cann, found, declared, verdict)
    source = f"{found.source}, {cann.path}/*-linux/ascend_toolkit_install.info"
    expected = f"a driver that serves CANN {cann.label}" + (f", such as {row.driver}" if row and row.driver else "")
    if declared or declared is None and verdict == _FITS:
        return fine(pair, expected, source, details)
    hint = f"install {wanted} or a newer one on the host and restart it: {install_driver(release or '*')}"
    if verdict == _TOO_OLD or declared is False and verdict != _FITS:
        return fail(pair, expected, source, hint, details)
    near = f"the nearest known pairs: {machine.matrix.near_cann(cann.version or cann.internal or '')}"
    if verdict == _UNKNOWN:
        hint = near
    elif verdict == _NOT_PROVEN:
        hint = f"if something fails, {hint}; {near}"
    return warn(pair, expected, source, hint, details)


def _by_table(matrix: Matrix, cann: Cann, found: Driver) -> str:
    """A newer driver serves older CANNs; one older than the window does not. Without a known window nothing is said
    of an older driver, however old.
    """
    row = matrix.cann_row(cann.version) if cann.version else None
    if row is None or row.driver is None:
        return _UNKNOWN
    mine = version_key(found.version)
    if mine >= version_key(row.driver):
        return _FITS
    if row.oldest_driver is None:
        return _NOT_PROVEN
    return _FITS if mine >= version_key(row.oldest_driver) else _TOO_OLD


def _reasons(cann: Cann, found: Driver, declared: bool | None, verdict: str) -> tuple[str, ...]:
    lists = {True: "name each other", False: "do not name each other", None: "cannot be read"}[declared]
    return (
        f"driver line {found.line or '?'} serves {_shown(found.serves)}",
        f"CANN line {cann.line or '?'} works with {_shown(cann.compatible)}",
        f"their lists {lists}; by the table: {verdict}",
    )


def _shown(ranges: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(low if low == high else f"{low} to {high}" for low, high in ranges) or "?"


def firmware(machine: Machine) -> Outcome:
    found, driver_found = machine.firmware, machine.driver
    if found is None:
        return skip("no firmware/version.info (usual in a container)")
    if driver_found is None:
        return skip("no driver to compare with")
    pair = f"firmware {found.version} ({found.package or 'no package version'}) with driver {driver_found.version}"
    source = f"{driver_found.source}, {found.source}"
    if driver_found.firmware:
        fits, expected = in_ranges(found.version, driver_found.firmware), f"firmware {_shown(driver_found.firmware)}"
    elif found.drivers:
        fits, expected = in_ranges(driver_found.version, found.drivers), f"driver {_shown(found.drivers)}"
    else:
        return warn(pair, "a line compatible_version_fw", source, "the files do not tell: npu-smi info -t board -i 0")
    if fits:
        return fine(pair, expected, source)
    hint = f"install the firmware of driver {driver_found.version} on the host and restart it: {install_firmware()}"
    return fail(pair, expected, source, hint)


def board(machine: Machine) -> Outcome:
    """The vendor's own verdict on driver and firmware."""
    if machine.smi is None or not machine.npus.chips:
        return skip("npu-smi gives no table")
    number = str(machine.npus.chips[0].npu)
    output = machine.host.run([machine.smi, "info", "-t", "board", "-i", number], 15)
    source = f"npu-smi info -t board -i {number}"
    match = re.search(r"^\s*Compatibility\s*:\s*(\S+)", output.text, flags=re.MULTILINE)
    if match is None:
        return skip("npu-smi does not tell")
    if match.group(1).upper() == "OK":
        return fine("Compatibility: OK", "OK", source)
    return fail(
        f"Compatibility: {match.group(1)}",
        "OK",
        source,
        f"install driver and firmware of one release on the host and restart it: {install_firmware()}, then "
        f"{install_driver('*')}",
    )


CHECKS = (
    Check("driver_version", "the driver serves this CANN", Cost.FILES, "ascend", driver),
    Check("firmware", "firmware and driver belong together", Cost.FILES, "ascend", firmware),
    Check("npu_board", "npu-smi's verdict on driver and firmware", Cost.COMMANDS, "ascend", board),
)
