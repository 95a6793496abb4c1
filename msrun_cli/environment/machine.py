"""What several checks ask about one machine; each answer is found once."""

from __future__ import annotations

import shlex
from functools import cached_property

from msrun_cli.environment import npu_smi
from msrun_cli.environment.cann import Cann, find_cann, pointed_to
from msrun_cli.environment.compatibility import Chip, Matrix, load_matrix
from msrun_cli.environment.driver import Driver, Firmware, read_driver, read_firmware
from msrun_cli.environment.host import Host, Output
from msrun_cli.environment.installed import Package, installed_packages

MINDSPORE_NAMES = ("mindspore", "mindspore-dev", "mindspore-ascend", "mindspore-gpu")
_SMI_PLACES = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi", "/usr/bin/npu-smi")


class Machine:
    """device: "cpu" or "ascend", what the checks are about; "auto" finds out."""

    def __init__(self, host: Host, device: str = "auto") -> None:
        self.host = host
        self.matrix: Matrix = load_matrix()
        self.wanted = device

    @cached_property
    def device(self) -> str:
        if self.wanted != "auto":
            return self.wanted
        return "ascend" if self.device_nodes or self.cann or self.driver or pointed_to(self.host) else "cpu"

    @cached_property
    def packages(self) -> dict[str, list[Package]]:
        return installed_packages(self.host, self.host.facts.search_path)

    def package(self, *names: str) -> Package | None:
        """The first that is installed."""
        return next((self.packages[name][0] for name in names if name in self.packages), None)

    @cached_property
    def mindspore(self) -> Package | None:
        return self.package(*MINDSPORE_NAMES)

    @cached_property
    def cann(self) -> list[Cann]:
        return find_cann(self.host, self.host.facts.search_path)

    @cached_property
    def active_cann(self) -> Cann | None:
        """The one the environment points to, else the first that was found."""
        return self.cann[0] if self.cann else None

    @cached_property
    def driver(self) -> Driver | None:
        return read_driver(self.host)

    @cached_property
    def firmware(self) -> Firmware | None:
        return read_firmware(self.host)

    @cached_property
    def device_nodes(self) -> list[str]:
        """/dev/davinci0 ..., by number."""
        nodes = [node for node in self.host.glob("/dev/davinci[0-9]*") if node[len("/dev/davinci") :].isdigit()]
        return sorted(nodes, key=lambda node: int(node[len("/dev/davinci") :]))

    @cached_property
    def smi(self) -> str | None:
        """The program, on PATH or where the driver puts it."""
        found = self.host.which("npu-smi") or [place for place in _SMI_PLACES if self.host.is_file(place)]
        return found[0] if found else None

    @cached_property
    def npu_output(self) -> Output:
        """Of `npu-smi info`."""
        return self.host.run([self.smi or "npu-smi", "info"], 15)

    @cached_property
    def npus(self) -> npu_smi.Table:
        return npu_smi.parse(self.npu_output.text)

    @cached_property
    def chip(self) -> Chip | None:
        """The kind of the first NPU, as far as npu-smi tells it."""
        chips = self.npus.chips
        return self.matrix.chip(chips[0].name) if chips else None

    @property
    def pip(self) -> str:
        """How to call pip for the examined Python."""
        return f"{shlex.quote(self.host.facts.executable)} -m pip"
