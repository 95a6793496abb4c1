"""Commands that install CANN, driver and firmware from the vendor's download pages. A * is what is not known."""

from __future__ import annotations

_ARCH = "$(uname -m)"  # x86_64 or aarch64, as in the names of the files


def install_toolkit(version: str) -> str:
    return f"bash Ascend-cann-toolkit_{version}_linux-{_ARCH}.run --install"


def install_ops(package: str, version: str) -> str:
    """package: Ascend-cann-910b-ops, before CANN 8.5 Ascend-cann-kernels-910b."""
    return f"bash {package}_{version}_linux-{_ARCH}.run --install"


def install_driver(release: str, upgrade: bool = True) -> str:
    option = "--upgrade" if upgrade else "--full --install-for-all"
    return f"bash Ascend-hdk-*-npu-driver_{release.lower()}_linux-{_ARCH}.run {option} && sudo reboot"


def install_firmware() -> str:
    """Firmware has versions of its own, so that of the driver is not in its name."""
    return "bash Ascend-hdk-*-npu-firmware_*.run --upgrade && sudo reboot"
