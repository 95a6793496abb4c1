"""All checks, in the order in which they are made and shown."""

from __future__ import annotations

from msrun_cli.environment.checks import cann, driver, hccl, npu, packages, process, resources, smoke, system, te
from msrun_cli.environment.results import Check

GROUPS: dict[str, tuple[Check, ...]] = {
    "system": system.CHECKS,
    "packages": packages.CHECKS,
    "cann": (*cann.CHECKS, *te.CHECKS),
    "driver": driver.CHECKS,
    "npu": npu.CHECKS,
    "hccl": hccl.CHECKS,
    "process": process.CHECKS,
    "resources": resources.CHECKS,
    "smoke": smoke.CHECKS,
}
CHECKS: tuple[Check, ...] = tuple(check for checks in GROUPS.values() for check in checks)
