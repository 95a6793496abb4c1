"""Driver and firmware: what their version.info files say, the versions they declare to serve included."""

from __future__ import annotations

from dataclasses import dataclass

from msrun_cli.environment.cann import Cann, parse_info
from msrun_cli.environment.host import Host
from msrun_cli.environment.versions import Range, line_in_ranges, line_of, parse_ranges

_USUAL = "/usr/local/Ascend"


@dataclass(frozen=True)
class Driver:
    """version: 25.3.rc1; line: V100R001C23; serves: CANN lines; firmware: ranges of firmware versions it takes."""

    version: str
    line: str | None
    serves: tuple[Range, ...]
    firmware: tuple[Range, ...]
    source: str


@dataclass(frozen=True)
class Firmware:
    """version: 7.1.0.11.220; package: 23.0.7; drivers: ranges of driver versions it takes."""

    version: str
    package: str
    drivers: tuple[Range, ...]
    source: str


def install_folder(host: Host, part: str) -> str:
    """Where the driver or firmware was put. part: Driver or Firmware."""
    info = parse_info(host.read("/etc/ascend_install.info"))
    return info.get(f"{part}_Install_Path_Param", _USUAL).rstrip("/") or _USUAL


def read_driver(host: Host) -> Driver | None:
    files = (f"{install_folder(host, 'Driver')}/driver/version.info", "/var/davinci/driver/version.info")
    for file in files:
        info = parse_info(host.read(file))
        # From 26.x on, Version may be that of a part: package_version is the driver's.
        version = info.get("package_version") or info.get("Version")
        if version:
            return Driver(
                version=version,
                line=line_of(info.get("Innerversion", "")),
                serves=tuple(parse_ranges(info.get("compatible_version", ""))),
                firmware=tuple(parse_ranges(info.get("compatible_version_fw", ""))),
                source=file,
            )
    return None


def read_firmware(host: Host) -> Firmware | None:
    file = f"{install_folder(host, 'Firmware')}/firmware/version.info"
    info = parse_info(host.read(file))
    if not info.get("Version"):
        return None
    drivers = tuple(parse_ranges(info.get("compatible_version_drv", "")))
    return Firmware(info["Version"], info.get("package_version", ""), drivers, file)


def declared_fit(cann: Cann, driver: Driver) -> bool | None:
    """Whether CANN or the driver lists the other; None where neither list can be read."""
    answers = []
    if cann.line and driver.serves:
        answers.append(line_in_ranges(cann.line, driver.serves))
    if driver.line and cann.compatible:
        answers.append(line_in_ranges(driver.line, cann.compatible))
    return any(answers) if answers else None
