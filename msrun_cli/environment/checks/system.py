"""Python, the operating system, the C libraries: what the MindSpore wheel needs of them."""

from __future__ import annotations

import re
from glob import escape

from msrun_cli.environment.cann import parse_info
from msrun_cli.environment.compatibility import MindSporeRow
from msrun_cli.environment.installed import Package
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import series, version_key

_OWN_PYTHON = ("3.10", "3.12")  # as in pyproject.toml
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_TAG = re.compile(r"_c_expression\.cpython-(\d)(\d+)-([a-z0-9_]+)-linux")
_MISSING_VERSION = re.compile(r"version [`'\"](GLIBC(?:XX)?_[\d.]+)[`'\"] not found")


def _row(machine: Machine) -> MindSporeRow | None:
    return machine.matrix.mindspore_row(machine.mindspore.version) if machine.mindspore else None


def extension_of(machine: Machine, package: Package) -> str | None:
    """MindSpore's compiled module; its name tells for which Python and processor it was built."""
    found = machine.host.glob(f"{escape(package.location)}/mindspore/_c_expression*.so")
    return found[0] if found else None


def _built_for(machine: Machine) -> tuple[str, str, str] | None:
    """(python, processor, file) of the compiled module, None where the name does not tell."""
    extension = extension_of(machine, machine.mindspore) if machine.mindspore else None
    match = _TAG.search(extension or "")
    return (f"{match[1]}.{match[2]}", match[3], extension or "") if match else None


def python(machine: Machine) -> Outcome:
    facts = machine.host.facts
    if not facts.python:
        return skip("the version of Python is not known")
    row, built = _row(machine), _built_for(machine)
    low, high = row.python if row else _OWN_PYTHON
    low = max(low, _OWN_PYTHON[0], key=version_key)
    high = min(high, _OWN_PYTHON[1], key=version_key)
    release = machine.mindspore.version if machine.mindspore else "2.10.0"
    found = f"Python {facts.python} ({facts.executable})"
    expected = f"Python {low} to {high}"
    hint = f"python{high} -m venv .venv && .venv/bin/python -m pip install msrun-cli mindspore=={release}"
    if version_key(low) > version_key(high):
        expected = f"a MindSpore for Python {_OWN_PYTHON[0]} to {_OWN_PYTHON[1]}, which {release} is not"
        hint = (
            f"{machine.pip} install 'mindspore>=2.7,<2.11' (msrun check-env --only cann_version names the CANN for it)"
        )
    if built and built[0] != series(facts.python):
        found += f", MindSpore is built for {built[0]}"
        return fail(
            found,
            f"Python {built[0]}",
            built[2],
            f"{machine.pip} install --force-reinstall mindspore=={release}",
            stops_run=True,
        )
    if not version_key(low) <= version_key(series(facts.python)) <= version_key(high):
        return fail(found, expected, row.source if row else "pyproject.toml of msrun-cli", hint)
    return fine(found, expected, row.source if row else "pyproject.toml of msrun-cli")


def operating_system(machine: Machine) -> Outcome:
    system = machine.host.facts.system
    name = parse_info(machine.host.read("/etc/os-release")).get("PRETTY_NAME", "").strip('"')
    found = f"{system}{f', {name}' if name else ''}"
    if system == "Linux":
        return fine(found, "Linux", "/etc/os-release")
    if machine.device == "ascend":
        return fail(
            found, "Linux", "uname", "use a Linux machine: CANN and the driver exist for Linux only", stops_run=True
        )
    return warn(found, "Linux", "uname", "msrun is tested on Linux; MindSpore's wheels for other systems are CPU only")


def architecture(machine: Machine) -> Outcome:
    name = machine.host.facts.machine
    if not name:
        return skip("the processor is not known")
    kind = _MACHINES.get(name.lower())
    if kind is None:
        return fail(
            name,
            "x86_64 or aarch64",
            "uname -m",
            "use another machine: there is no MindSpore wheel for this one",
            stops_run=True,
        )
    built = _built_for(machine)
    if built is None:
        return fine(name, "x86_64 or aarch64", "uname -m")
    if _MACHINES.get(built[1]) != kind:
        # The aarch64 wheel is tagged "any", so pip takes it where manylinux is not accepted (musl, --platform).
        release = machine.mindspore.version if machine.mindspore else ""
        hint = f"{machine.pip} install --force-reinstall --no-deps --no-cache-dir mindspore=={release}"
        return fail(f"{name}, but the wheel is for {built[1]}", f"a wheel for {kind}", built[2], hint, stops_run=True)
    return fine(f"{name}, wheel for {built[1]}", kind, built[2])


def glibc(machine: Machine) -> Outcome:
    facts = machine.host.facts
    if facts.system != "Linux":
        return skip(f"{facts.system} has no glibc")
    name, version = facts.libc
    if not version and not name:
        if machine.host.glob("/lib/ld-musl-*"):
            name = "musl"
        else:
            return skip("the C library is not known")
    row = _row(machine)
    needed = (row.glibc if row else None) or "2.17"
    source = row.source if row and row.glibc else "oldest system of MindSpore's install pages (CentOS 7)"
    hint = "use a newer system or container, such as Ubuntu 20.04 or openEuler 22.03"
    if name != "glibc":
        return fail(f"{name} {version}".strip(), f"glibc {needed} or newer", source, hint)
    if version_key(version) < version_key(needed):
        return fail(f"glibc {version}", f"glibc {needed} or newer", source, hint)
    return fine(f"glibc {version}", f"glibc {needed} or newer", source)


def libraries(machine: Machine) -> Outcome:
    """`ldd` of MindSpore's own module: libraries and symbol versions that this system lacks."""
    extension = extension_of(machine, machine.mindspore) if machine.mindspore else None
    if extension is None:
        return skip("MindSpore's compiled module is not there")
    command = f"ldd {extension}"
    output = machine.host.run(["ldd", extension], 10)
    if output.problem:
        return skip(f"ldd: {output.ending()}")
    versions = sorted(set(_MISSING_VERSION.findall(output.text)))
    lacking = missing_libraries(output.text)
    if not versions and not lacking:
        return fine("all found", "all found", command)
    details = tuple(line.strip() for line in output.text.splitlines() if "not found" in line)
    found = ", ".join([*versions, *lacking]) + " not found"
    if any(version.startswith("GLIBC_") for version in versions):
        hint = "use a newer system or container, such as Ubuntu 20.04: glibc cannot be upgraded by itself"
    elif versions:
        hint = "conda install -c conda-forge libstdcxx-ng, or put a newer libstdc++.so.6 first on LD_LIBRARY_PATH"
    else:
        release = machine.mindspore.version if machine.mindspore else ""
        hint = f"{machine.pip} install --force-reinstall --no-deps mindspore=={release}"
    return fail(found, "all found", command, hint, details)


def missing_libraries(ldd_text: str) -> list[str]:
    """Names of `libx.so => not found` lines."""
    return sorted(set(re.findall(r"^\s*(\S+) => not found", ldd_text, flags=re.MULTILINE)))


CHECKS = (
    Check("python", "Python's version fits the MindSpore wheel", Cost.FILES, "any", python),
    Check("os", "the operating system", Cost.FILES, "any", operating_system),
    Check("architecture", "the processor and the wheel's architecture", Cost.FILES, "any", architecture),
    Check("glibc", "the C library", Cost.FILES, "any", glibc),
    Check("libraries", "ldd of MindSpore's own module", Cost.COMMANDS, "any", libraries),
)
