"""What surrounds the program: the working directory, the msrun script, libraries that get in first."""

from __future__ import annotations

import os
import re
import shlex
from glob import escape

from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.kernels.library import COMPILERS
from msrun_cli.runtime.mindspore_versions import ONEDNN_2
from msrun_cli.runtime.process import ONEDNN_ISA, set_here

_SHADOWED = ("mindspore", "te", "tbe", "hccl", "numpy", "cv2", "hydra", "omegaconf", "typer", "rich", "msrun_cli")
_OWN, _THEIRS = "msrun_cli", "mindspore.parallel.cluster.run"


def shadows(machine: Machine) -> Outcome:
    """With `python -m`, Python takes a package from the working directory before the installed one."""
    host, cwd = machine.host, machine.host.facts.cwd
    if re.search(r"(site|dist)-packages/?$", cwd):
        return fine("the working directory is the packages' own", "", cwd)
    names = [name for name in _SHADOWED if _is_package(machine, os.path.join(cwd, name))]
    if 'name = "msrun-cli"' in (host.read(os.path.join(cwd, "pyproject.toml")) or ""):
        names = [name for name in names if name != "msrun_cli"]  # the checkout of this program
    if not names:
        return fine("none", "none", cwd)
    listed = ", ".join(os.path.join(cwd, name) for name in names)
    moves = " && ".join(_renaming(machine, os.path.join(cwd, name)) for name in names)
    hint = f"cd to another folder, or rename {', '.join(names)} in {cwd}: {moves}"
    if cwd in host.facts.search_path:
        return fail(listed, "none", cwd, hint, stops_run="mindspore" in names)
    return warn(listed, "none", cwd, hint, ("only programs started with `python -m` or `python -c` here meet them",))


def _renaming(machine: Machine, path: str) -> str:
    ending = ".py" if machine.host.is_file(f"{path}.py") else ""
    return f"mv {shlex.quote(path + ending)} {shlex.quote(f'{path}_other{ending}')}"


def _is_package(machine: Machine, path: str) -> bool:
    # A folder without __init__.py is taken only when there is no installed package of that name.
    host = machine.host
    if host.glob(f"{escape(path)}/_c_expression*.so"):
        return False  # MindSpore as its own build leaves it: complete, and meant
    return host.is_file(f"{path}.py") or host.is_file(f"{path}/__init__.py")


def msrun_script(machine: Machine) -> Outcome:
    """MindSpore installs a script of the same name: the one that was installed last is there."""
    host = machine.host
    if "PATH" not in host.environ:
        return skip("PATH is not known")
    scripts = os.path.dirname(host.facts.executable)
    on_path, beside = host.which("msrun"), os.path.join(scripts, "msrun")
    repair = f"{machine.pip} install --force-reinstall --no-deps msrun-cli"
    always = "msrun-cli and python -m msrun_cli always work"
    if not on_path:
        if not host.is_file(beside):
            found = f"no msrun on PATH, none in {scripts} (an uninstall of MindSpore or msrun-cli removes it)"
            return warn(found, "msrun of msrun-cli", "PATH", f"{repair}; {always}")
        if _owner(machine, beside) == _THEIRS:
            return warn(f"{beside} is MindSpore's launcher", "msrun of msrun-cli", beside, f"{repair}; {always}")
        return warn(f"{beside} is ours, but not on PATH", "on PATH", "PATH", f'export PATH="{scripts}:$PATH"; {always}')
    first, owner = on_path[0], _owner(machine, on_path[0])
    details = tuple(f"{path}: {_owner(machine, path) or 'unknown'}" for path in on_path)
    if owner == _THEIRS:
        return warn(
            f"{first} is MindSpore's launcher: `msrun train` would start it 8 times and return 0",
            "msrun of msrun-cli",
            first,
            f"{repair}; {always}",
            details,
        )
    if owner != _OWN:
        return warn(
            f"{first} is neither ours nor MindSpore's", "msrun of msrun-cli", first, f"{repair}; {always}", details
        )
    if host.resolve(os.path.dirname(first)) != host.resolve(scripts):
        return warn(
            f"{first} belongs to another Python than {host.facts.executable}",
            f"{beside}",
            first,
            f'export PATH="{scripts}:$PATH"; {always}',
            details,
        )
    return fine(f"{first} is ours", "msrun of msrun-cli", first, details)


def _owner(machine: Machine, script: str) -> str | None:
    text = machine.host.read(script) or ""
    return next((name for name in (_OWN, _THEIRS) if f"from {name}" in text), None)


def python_command(machine: Machine) -> Outcome:
    """CANN's compiler and MindSpore's launcher start `python` from PATH."""
    host = machine.host
    if "PATH" not in host.environ:
        return skip("PATH is not known")
    found = host.which("python")
    scripts = os.path.dirname(host.facts.executable)
    hint = f'export PATH="{scripts}:$PATH"'
    if not found:
        return warn("no `python` on PATH", f"python of {scripts}", "PATH", hint)
    if host.resolve(found[0]) != host.resolve(host.facts.executable):
        return warn(f"`python` is {found[0]}", f"{host.facts.executable}", "PATH", hint)
    return fine(found[0], host.facts.executable, "PATH")


def onednn(machine: Machine) -> Outcome:
    """The oneDNN of MindSpore 2.9 and 2.10 is many times slower with AVX-512 kernels."""
    host = machine.host
    flags = re.search(r"^flags\s*:(.*)$", host.read("/proc/cpuinfo") or "", flags=re.MULTILINE)
    if host.facts.machine not in ("x86_64", "amd64", "AMD64"):
        return skip("only x86-64 processors have a choice")
    package = machine.mindspore
    if package and host.glob(f"{escape(package.location)}/mindspore/{ONEDNN_2}"):
        return skip(f"the oneDNN of MindSpore {package.version} is not slower with AVX-512")
    wide = flags is not None and "avx512f" in flags.group(1)
    value = host.environ.get(ONEDNN_ISA)
    if value is None or ONEDNN_ISA in set_here:
        return fine(f"{ONEDNN_ISA} is not set: msrun sets AVX2", "AVX2 or less", "environment, /proc/cpuinfo")
    if wide and ("512" in value or "AMX" in value.upper() or value.upper() in ("ALL", "DEFAULT")):
        return warn(
            f"{ONEDNN_ISA}={value} on an AVX-512 processor",
            "AVX2",
            "environment, /proc/cpuinfo",
            f"unset {ONEDNN_ISA} (msrun then sets AVX2): convolutions may be 40 times slower",
        )
    return fine(f"{ONEDNN_ISA}={value}", "AVX2 or less", "environment, /proc/cpuinfo")


def libdnnl(machine: Machine) -> Outcome:
    """Another oneDNN that the loader finds before MindSpore's: undefined symbol dnnl_threadpool_interop_..."""
    host = machine.host
    folders = [folder for folder in host.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    own = f"{machine.mindspore.location}/mindspore/" if machine.mindspore else None
    found = [path for folder in folders for path in host.glob(f"{escape(folder)}/libdnnl.so*")]
    found = [path for path in found if own is None or not path.startswith(own)]
    if found:
        foreign = {os.path.dirname(path) for path in found}
        rest = os.pathsep.join(folder for folder in folders if folder.rstrip("/") not in foreign)
        hint = f"take {os.path.dirname(found[0])} off LD_LIBRARY_PATH: export LD_LIBRARY_PATH={shlex.quote(rest)}"
        return warn(found[0], "none before MindSpore's own", "LD_LIBRARY_PATH", hint)
    return fine("none", "none before MindSpore's own", "LD_LIBRARY_PATH")


def libgomp(machine: Machine) -> Outcome:
    """On aarch64 a second libgomp that is loaded late finds no room in the static TLS block."""
    host = machine.host
    if host.facts.machine != "aarch64":
        return skip("only aarch64 is concerned")
    if "libgomp" in host.environ.get("LD_PRELOAD", ""):
        return fine(f"LD_PRELOAD={host.environ['LD_PRELOAD']}", "", "environment")
    folders = host.facts.search_path
    copies = [path for folder in folders for path in host.glob(f"{escape(folder)}/*.libs/libgomp*.so*")]
    if copies:
        return warn(
            f"copies in {', '.join(sorted({os.path.dirname(path) for path in copies}))}",
            "one libgomp",
            ", ".join(copies),
            f"export LD_PRELOAD={copies[0]}",
            tuple(copies),
        )
    return fine("no second copy", "one libgomp", "site-packages/*.libs")


def compiler(machine: Machine) -> Outcome:
    """A training on a CPU has kernels of its own made, where it can."""
    host = machine.host
    if "PATH" not in host.environ:
        return skip("PATH is not known")
    wanted = host.environ.get("CXX")
    names = (wanted,) if wanted else COMPILERS
    found = [path for name in names for path in host.which(name)]
    expected = "a C++17 compiler"
    if not found:
        hint = "install g++ (apt install g++, yum install gcc-c++): training steps on a CPU then take a third less time"
        return warn(f"none of {', '.join(names)} on PATH", expected, "PATH, CXX", hint)
    return fine(found[0], expected, "PATH, CXX")


CHECKS = (
    Check("shadows", "folders here that hide installed packages", Cost.FILES, "any", shadows),
    Check("msrun_script", "whose script `msrun` is", Cost.FILES, "any", msrun_script, in_run=False),
    Check("python_command", "`python` on PATH is this one", Cost.FILES, "ascend", python_command, in_run=False),
    Check("onednn", "instruction set of CPU kernels", Cost.FILES, "cpu", onednn),
    Check("compiler", "a compiler for the kernels of a CPU", Cost.FILES, "cpu", compiler, in_run=False),
    Check("libdnnl", "another oneDNN on LD_LIBRARY_PATH", Cost.FILES, "any", libdnnl),
    Check("libgomp", "TLS block on aarch64", Cost.FILES, "any", libgomp),
)
