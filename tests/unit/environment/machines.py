"""Machines in folders: a healthy one with two 910B4, MindSpore 2.8.0 and CANN 8.5.0, to be spoilt by each test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import npu_tables

from msrun_cli.environment.examination import choose, examine
from msrun_cli.environment.results import Result
from msrun_cli.environment.tree import TreeHost

ENV = "/opt/env"
PYTHON = f"{ENV}/bin/python"
SITE = f"{ENV}/lib/python3.11/site-packages"
CANN = "/usr/local/Ascend/cann-8.5.0"
TBE = "opp/built-in/op_impl/ai_core/tbe"
TE_NEEDS = (
    *("absl-py", "attrs", "cloudpickle", "decorator", "jinja2", "ml-dtypes", "psutil", "scipy", "sympy", "tornado"),
)
ASCEND_LIBRARIES = (
    "\tlinux-vdso.so.1 (0x7ffd)\n\tlibge_runner.so => /usr/local/Ascend/cann/lib64/libge_runner.so (0x7f)\n"
)


class Machine:
    """Writes below `root`; `record` becomes host.json."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record: dict[str, Any] = {
            "machine": "aarch64",
            "libc": ["glibc", "2.34"],
            "python": "3.11.9",
            "executable": PYTHON,
            "search_path": [SITE],
            "cwd": "/work",
            "user": "worker",
            "user_id": 1000,
            "groups": [1000],
            "hostname": "node7",
            "known_hosts": ["node7"],
            "busy_ports": [],
            "cores": 8,
            "free_bytes": {"/work": 10**11, "/tmp": 10**11, "/dev/shm": 10**10},
            "environ": {"PATH": f"{ENV}/bin:/usr/local/bin:/usr/bin"},
            "commands": {},
        }

    @property
    def environ(self) -> dict[str, str]:
        return self.record["environ"]

    def file(self, path: str, text: str = "", mode: int = 0o644) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def remove(self, pattern: str) -> None:
        """Files and links by a pattern below the root; the pattern must match."""
        single = self.root / pattern.lstrip("/")
        found = [single] if single.is_symlink() else list(self.root.glob(pattern.lstrip("/")))
        assert found, pattern
        for place in found:
            place.unlink()

    def command(self, words: str, output: str = "", **ending: Any) -> None:
        self.record["commands"][words] = {"output": output, **ending}

    def package(self, name: str, version: str, requires: tuple[str, ...] = (), folder: str = SITE) -> None:
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires), "", "text"]
        self.file(f"{folder}/{name.replace('-', '_')}-{version}.dist-info/METADATA", "\n".join(lines))

    def unpackage(self, name: str) -> None:
        self.remove(f"{SITE}/{name.replace('-', '_')}-*.dist-info/METADATA")
        for folder in (self.root / SITE.lstrip("/")).glob(f"{name.replace('-', '_')}-*.dist-info"):
            folder.rmdir()

    def mindspore(self, version: str, tag: str = "311-aarch64") -> None:
        for old in (self.root / SITE.lstrip("/")).glob("mindspore-*.dist-info"):
            self.unpackage("mindspore")
            assert not old.exists()
        self.package("mindspore", version, ("numpy<2.0.0,>=1.20",))
        python, _, machine = tag.partition("-")
        for old in (self.root / SITE.lstrip("/")).glob("mindspore/_c_expression*"):
            old.unlink()
        self.file(f"{SITE}/mindspore/_c_expression.cpython-{python}-{machine}-linux-gnu.so")
        self.command(
            f"ldd {SITE}/mindspore/_c_expression.cpython-{python}-{machine}-linux-gnu.so", "libc.so.6 => /lib\n"
        )
        self.file(f"{SITE}/mindspore/lib/plugin/libmindspore_ascend.so.2")
        self.plugin(ASCEND_LIBRARIES)

    def plugin(self, ldd_text: str) -> None:
        self.command(f"ldd {SITE}/mindspore/lib/plugin/libmindspore_ascend.so.2", ldd_text)

    def cann(
        self,
        path: str = CANN,
        name: str = "8.5.0",
        internal: str = "8.5.0.1.231",
        inner: str = "V100R001C25SPC001B231",
        compatible: str = "[V100R001C19],[V100R001C20],[V100R001C21],[V100R001C22],[V100R001C23],[V100R001C25]",
        ops: str | None = "Ascend-cann-910b-ops",
    ) -> None:
        for part in ("compiler", "runtime", "opp", "hccl"):
            self.file(f"{path}/{part}/version.info", f"Version={internal}\nversion_dir={name}\n")
        info = (
            f"package_name=Ascend-cann-toolkit\nversion={name}\ninnerversion={inner}\ncompatible_version={compatible}\n"
        )
        self.file(f"{path}/aarch64-linux/ascend_toolkit_install.info", info)
        if ops:
            self.file(f"{path}/aarch64-linux/ascend_ops_install.info", f"package_name={ops}\nversion={name}\n")
        self.file(f"{path}/lib64/libge_runner.so")
        self.file(f"{path}/{TBE}/te/__init__.py")
        self.file(f"{path}/python/site-packages/te/__init__.py")
        self.file(f"{path}/set_env.sh")

    def no_cann(self) -> None:
        (self.root / CANN.lstrip("/")).rename(self.root / "removed")
        self.remove("/usr/local/Ascend/cann")
        self.forget_env()

    def source(self, path: str = CANN) -> None:
        """What set_env.sh exports."""
        self.environ.update(
            ASCEND_HOME_PATH=path,
            ASCEND_TOOLKIT_HOME=path,
            ASCEND_OPP_PATH=f"{path}/opp",
            LD_LIBRARY_PATH=f"{path}/lib64:{path}/lib64/plugin/opskernel",
            PYTHONPATH=f"{path}/python/site-packages:{path}/{TBE}",
        )

    def forget_env(self) -> None:
        """A shell in which set_env.sh was not sourced."""
        for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):
            self.environ.pop(name, None)

    def driver(
        self,
        version: str = "25.5.0",
        inner: str = "V100R001C25SPC001B212",
        serves: str = "[V100R001C19],[V100R001C20],[V100R001C21],[V100R001C22],[V100R001C23],[V100R001C25]",
        firmware: str = "[6.4.0,6.4.99],[7.0.0,8.9.9]",
    ) -> None:
        self.file(
            "/usr/local/Ascend/driver/version.info",
            f"Version=7.35.23\nascendhal_version=7.35.23\nInnerversion={inner}\ncompatible_version={serves}\n"
            f"compatible_version_fw={firmware}\npackage_version={version}\n",
        )

    def firmware(
        self, version: str = "7.8.0.5.216", package: str = "25.5.0", drivers: str = "[25.5.0,25.5.0.]"
    ) -> None:
        self.file(
            "/usr/local/Ascend/firmware/version.info",
            f"Version={version}\nfirmware_version=1.0\npackage_version={package}\ncompatible_version_drv={drivers}\n",
        )

    def npus(self, count: int = 2, table: str | None = None, mode: int = 0o666, **ending: Any) -> None:
        for number in range(count):
            self.file(f"/dev/davinci{number}", mode=mode)
        for name in ("davinci_manager", "devmm_svm", "hisi_hdc"):
            self.file(f"/dev/{name}", mode=mode)
        self.file("/usr/local/bin/npu-smi")
        self.command("npu-smi info", npu_tables.a2(count) if table is None else table, **ending)

    def links(
        self, count: int = 2, link: str = "UP", health: str = "Success", address: str | None = "29.1.112.213"
    ) -> None:
        self.file("/usr/local/Ascend/driver/tools/hccn_tool")
        for number in range(count):
            self.command(f"hccn_tool -i {number} -link -g", f"link status: {link}\n")
            self.command(f"hccn_tool -i {number} -net_health -g", f"net health status: {health}\n")
            text = f"ipaddr:{address}\nnetmask:255.255.0.0\n" if address else "hccn_tool is busy\n"
            self.command(f"hccn_tool -i {number} -ip -g", text)

    def smoke(self, output: str = "", device: str = "Ascend", **ending: Any) -> None:
        good = {"device": device, "mindspore": "2.8.0", "import_s": 1.0, "step_s": 2.0, "error": None}
        self.command(f"python -m msrun_cli.runtime.smoke {device}", output or json.dumps(good) + "\n", **ending)

    def host(self) -> TreeHost:
        self.file("/host.json", json.dumps(self.record))
        return TreeHost(self.root)

    def examine(self, device: str = "auto") -> dict[str, Result]:
        results = examine(self.host(), device, choose((), (), quick=False)).results
        return {result.check: result for result in results}

    def check(self, name: str, device: str = "auto") -> Result:
        (result,) = examine(self.host(), device, choose((name,), (), quick=False)).results
        return result


def healthy(root: Path) -> Machine:
    machine = Machine(root)
    (root / "work").mkdir(parents=True)
    (root / "tmp").mkdir()
    machine.file("/etc/os-release", 'PRETTY_NAME="openEuler 22.03 LTS"\n')
    machine.file("/usr/bin/g++")
    machine.file("/proc/meminfo", "MemTotal: 500000000 kB\nMemAvailable: 400000000 kB\n")
    machine.file("/etc/ascend_install.info", "UserName=HwHiAiUser\nDriver_Install_Path_Param=/usr/local/Ascend\n")
    machine.file(PYTHON)
    machine.file(f"{ENV}/bin/msrun", f"#!{PYTHON}\nfrom msrun_cli.cli.dispatch import main\n")
    machine.package("numpy", "1.26.4")
    machine.package("opencv-python", "4.11.0.86")
    machine.file(f"{SITE}/cv2/__init__.py")
    machine.package("msrun-cli", "0.1.0", ("rich>=13.8", "ruff>=0.6; extra == 'dev'"))
    machine.package("rich", "13.9.4")
    for name in TE_NEEDS:
        machine.package(name, "1.0.0")
    machine.mindspore("2.8.0")
    machine.cann()
    machine.link("/usr/local/Ascend/cann", CANN)
    machine.source()
    machine.driver()
    machine.firmware()
    machine.npus()
    machine.command("npu-smi info -t board -i 0", "\tSoftware Version : 25.5.0\n\tCompatibility   : OK\n")
    machine.links()
    machine.command("python -c import cv2; print(cv2.__version__)", "4.11.0\n")
    machine.command("python -c import te, tbe")
    machine.smoke()
    return machine


def cpu_only(root: Path) -> Machine:
    """An x86-64 machine without anything of Ascend."""
    machine = Machine(root)
    machine.record["machine"] = "x86_64"
    (root / "work").mkdir(parents=True)
    machine.file(PYTHON)
    machine.package("numpy", "1.26.4")
    machine.package("opencv-python", "4.11.0.86")
    machine.file(f"{SITE}/cv2/__init__.py")
    machine.mindspore("2.10.0", "311-x86_64")
    machine.file("/usr/bin/g++")
    machine.file("/proc/cpuinfo", "model name : Xeon\nflags : sse4_1 avx avx2 avx512f avx512bw\n")
    machine.smoke(device="CPU")
    machine.command("python -c import cv2; print(cv2.__version__)", "4.11.0\n")
    return machine
