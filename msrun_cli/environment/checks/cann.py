"""CANN: the installations, their versions, the variables of set_env.sh, MindSpore's Ascend plugin."""

from __future__ import annotations

import os
from glob import escape

from msrun_cli.environment.cann import Cann, kernel_family, pointed_to
from msrun_cli.environment.checks.system import missing_libraries
from msrun_cli.environment.checks.vendor_commands import install_ops, install_toolkit
from msrun_cli.environment.driver import install_folder
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import series, version_key, without_stage

_TBE = "opp/built-in/op_impl/ai_core/tbe"
_NO_CANN = "no CANN was found"
_SETS_ENV_ITSELF = "2.4"  # MindSpore before this version finds CANN without set_env.sh


def recommended(machine: Machine) -> str:
    """The CANN for the installed MindSpore, in words."""
    row = machine.matrix.mindspore_row(machine.mindspore.version) if machine.mindspore else None
    return f"CANN {row.cann[0]}" if row else "the CANN of your MindSpore"


def _toolkit(machine: Machine) -> str:
    """The command that installs it."""
    row = machine.matrix.mindspore_row(machine.mindspore.version) if machine.mindspore else None
    return install_toolkit(row.cann[0] if row else "*")


def roots(machine: Machine) -> Outcome:
    """All installations, and which one the environment points to."""
    host, pointed = machine.host, pointed_to(machine.host)
    listed = tuple(f"{cann.label} in {cann.path}" + _through(cann) for cann in machine.cann)
    if pointed and not host.is_dir(pointed):
        hint = (
            f"source {machine.cann[0].set_env}"
            if machine.cann
            else f"install {recommended(machine)}: {_toolkit(machine)}"
        )
        return fail(
            f"the environment points to {pointed}, which does not exist",
            "an existing folder",
            "ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, ASCEND_OPP_PATH",
            hint,
            listed,
        )
    if not machine.cann:
        hint = (
            f"install {recommended(machine)} (toolkit and op package), then source its set_env.sh: {_toolkit(machine)}"
        )
        return fail("none", "a CANN installation", "ASCEND_HOME_PATH, /usr/local/Ascend, ~/Ascend, site-packages", hint)
    mixed = _roots_on(machine, "LD_LIBRARY_PATH") | _roots_on(machine, "PYTHONPATH")
    if len(mixed) > 1:
        hint = f"open a new shell and source one of them only: source {machine.cann[0].set_env}"
        return fail(
            f"the search paths mix {' and '.join(sorted(mixed))}",
            "one installation",
            "LD_LIBRARY_PATH, PYTHONPATH",
            hint,
            listed,
        )
    if len(machine.cann) > 1:
        found = f"{len(machine.cann)}: {'; '.join(listed)}"
        families = {"nnae" if "/nnae" in cann.path else "toolkit" for cann in machine.cann}
        if not pointed or len(families) > 1:
            hint = f"choose one: source {machine.cann[0].set_env}"
            return warn(
                found, "one installation, or one that the environment points to", "ASCEND_HOME_PATH", hint, listed
            )
        return fine(f"{listed[0]} (the environment points to it), {len(machine.cann) - 1} more", "", pointed, listed)
    return fine(listed[0], "a CANN installation", machine.cann[0].source, listed)


def _through(cann: Cann) -> str:
    return "" if cann.places[0] == cann.path else f" -> {cann.places[0]}"


def _roots_on(machine: Machine, variable: str) -> set[str]:
    """Installations that folders of a search path belong to."""
    folders = [machine.host.resolve(f) for f in machine.host.environ.get(variable, "").split(os.pathsep) if f]
    return {cann.path for cann in machine.cann if any(cann.owns(folder) for folder in folders)}


def version(machine: Machine) -> Outcome:
    """MindSpore compares the first two numbers of Version= in compiler/version.info."""
    cann, package = machine.active_cann, machine.mindspore
    if cann is None:
        return skip(_NO_CANN)
    if package is None:
        return skip("MindSpore is not installed")
    if cann.series is None:
        hint = f"ls -l {cann.source}; where this user may read it, install CANN again: {_toolkit(machine)}"
        return warn("no version", "a line Version=", cann.source, hint)
    row = machine.matrix.mindspore_row(package.version)
    pair = f"MindSpore {package.version} with CANN {cann.label} (internal {cann.internal})"
    if row is None:
        near = machine.matrix.near_mindspore(package.version)
        return warn(pair, "a pair of the compatibility table", cann.source, f"the nearest known pairs: {near}")
    wanted = " or ".join(row.cann)
    if row.accepts is None:
        if without_stage(cann.version or "") in row.cann:
            return fine(pair, f"CANN {wanted}", f"{cann.source}; {row.source}")
        return warn(
            pair,
            f"CANN {wanted} (others are not proven)",
            f"{cann.source}; {row.source}",
            f"install CANN {row.cann[0]} and source its set_env.sh: {install_toolkit(row.cann[0])}",
        )
    expected = f"CANN {wanted} (internal {', '.join(row.accepts)})"
    if cann.series in row.accepts:
        return fine(pair, expected, f"{cann.source}; {row.source}")
    hint = f"install CANN {row.cann[0]} and source its set_env.sh: {install_toolkit(row.cann[0])}"
    if not machine.matrix.knows_internal(cann.series):
        near = machine.matrix.near_cann(cann.version or cann.series)
        return warn(f"{pair}: in no table", expected, f"{cann.source}; {row.source}", f"{hint}; nearest known: {near}")
    release = _mindspore_for(machine, cann)
    if release:
        hint += f", or for this CANN: {machine.pip} install mindspore=={release}"
    return fail(pair, expected, f"{cann.source}; {row.source}", hint)


def _mindspore_for(machine: Machine, cann: Cann) -> str | None:
    """The newest that recommends this CANN, else the newest that accepts it."""
    rows = machine.matrix.mindspore
    recommending = [row.version for row in rows if without_stage(cann.version or "") in row.cann]
    accepting = [row.version for row in rows if row.accepts and cann.series in row.accepts]
    found = recommending or accepting
    return found[-1] if found else None


def parts(machine: Machine) -> Outcome:
    """The parts of one installation belong to one version; where they differ, the parts are right, not the label."""
    cann = machine.active_cann
    if cann is None:
        return skip(_NO_CANN)
    if not cann.components:
        return skip("no part has a version.info")
    listed = ", ".join(f"{name} {text}" for name, text in cann.components.items())
    source = f"{cann.path}/*/version.info"
    if len({series(text) for text in cann.components.values()}) > 1:
        again = f"{install_toolkit(cann.version or '*')} and the same with its op package"
        hint = f"install CANN {cann.label} again, toolkit and op package of one version: {again}"
        return fail(listed, "one version", source, hint)
    if cann.version and version_key(cann.series or "0") >= version_key("8.2") and series(cann.version) != cann.series:
        hint = (
            f"trust the parts: this is CANN {cann.series}; to be sure, install one version again: "
            f"{install_toolkit(f'{cann.series}.*')}"
        )
        return warn(f"called {cann.version}, parts: {listed}", "one version", source, hint)
    return fine(listed, "one version", source)


def kernels(machine: Machine) -> Outcome:
    """The package of compiled operators: a package of its own, for one chip and one version."""
    cann = machine.active_cann
    if cann is None:
        return skip(_NO_CANN)
    family = machine.chip.family if machine.chip else None
    package = _kernel_package(cann, family)
    hint = f"install {package} of version {cann.label}: {install_ops(package, cann.version or '*')}"
    if not cann.kernels:
        return fail("none", "the op package of the chip", f"{cann.path}/*-linux, opp/.../kernel", hint)
    listed = ", ".join(f"{name} {number}".strip() for name, number, _ in cann.kernels)
    source = cann.kernels[0][2]
    families = {kernel_family(name) for name, _, _ in cann.kernels} - {None}
    if family and families and family not in families:
        return fail(listed, f"a package for {family}", source, hint)
    wrong = [number for _, number, _ in cann.kernels if number and not _same(number, cann)]
    if wrong:
        return fail(listed, f"version {cann.label}", source, hint)
    return fine(listed, f"a package for {family or 'the chip'}", source)


def _same(number: str, cann: Cann) -> bool:
    if cann.version is None:
        return True  # nothing to compare with
    own = without_stage(cann.version)
    return without_stage(number) == own or series(number) == cann.series and "RC" not in own


def _kernel_package(cann: Cann, family: str | None) -> str:
    chip = family or "CHIP"
    if version_key(cann.series or "0") >= version_key("8.5"):
        return "Ascend-cann-A3-ops" if chip == "910_93" else f"Ascend-cann-{chip}-ops"
    return f"Ascend-cann-kernels-{chip}"


def variables(machine: Machine) -> Outcome:
    """What set_env.sh exports: set, pointing to folders that exist, and into the same CANN."""
    cann = machine.active_cann
    if cann is None:
        return skip(_NO_CANN)
    missing = _unset(machine)
    dangling = _dangling(machine)
    hint = f"source {cann.set_env}"
    source = "ASCEND_HOME_PATH, ASCEND_OPP_PATH, LD_LIBRARY_PATH, PYTHONPATH"
    if missing:
        details = (*missing, *dangling)
        finds_itself = machine.mindspore and version_key(machine.mindspore.version) < version_key(_SETS_ENV_ITSELF)
        judge = warn if finds_itself else fail
        return judge("; ".join(missing), f"the variables of {cann.set_env}", source, hint, details)
    if dangling:
        return warn("; ".join(dangling), "existing folders", source, f"open a new shell and {hint}", dangling)
    return fine(f"set, for {cann.path}", "set", source)


def _unset(machine: Machine) -> list[str]:
    """Sentences on what is lacking."""
    host, environ = machine.host, machine.host.environ
    lacking = [f"{name} is not set" for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH") if not environ.get(name)]
    opp = environ.get("ASCEND_OPP_PATH")
    if opp and not host.is_dir(opp):
        lacking.append(f"ASCEND_OPP_PATH={opp} does not exist")
    wanted = {"LD_LIBRARY_PATH": "lib64", "PYTHONPATH": _TBE}
    for name, ending in wanted.items():
        folders = [folder.rstrip("/") for folder in environ.get(name, "").split(os.pathsep)]
        inside = [folder for folder in folders if folder.endswith(f"/{ending}")]
        if not any(_in_cann(machine, folder) for folder in inside if host.is_dir(folder)):
            lacking.append(f"{name} has no existing .../{ending} of this CANN")
    return lacking


def _in_cann(machine: Machine, folder: str) -> bool:
    return any(cann.owns(machine.host.resolve(folder)) for cann in machine.cann)


def _dangling(machine: Machine) -> tuple[str, ...]:
    """Folders of the search paths that look like Ascend's and do not exist."""
    found = []
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH"):
        for folder in machine.host.environ.get(name, "").split(os.pathsep):
            roots_named = any(folder.startswith(f"{cann.path}/") for cann in machine.cann)
            if folder and ("/Ascend/" in folder or roots_named) and not machine.host.is_dir(folder):
                # set_env.sh itself adds folders that only exist with some options installed
                if not roots_named:
                    found.append(f"{name}: {folder} does not exist")
    return tuple(found)


def plugin(machine: Machine) -> Outcome:
    """`ldd` of the library through which MindSpore reaches CANN."""
    package = machine.mindspore
    if package is None:
        return skip("MindSpore is not installed")
    found = machine.host.glob(f"{escape(package.location)}/mindspore/lib/plugin/libmindspore_ascend.so*")
    if not found:
        return fail(
            "the package has no libmindspore_ascend.so",
            "a wheel for Linux",
            package.location,
            f"{machine.pip} install --force-reinstall --no-deps mindspore=={package.version}",
        )
    output = machine.host.run(["ldd", found[-1]], 10)
    if output.problem:
        return skip(f"ldd: {output.ending()}")
    lacking = missing_libraries(output.text)
    source = f"ldd {found[-1]}"
    if not lacking:
        return fine("all libraries found", "all found", source)
    return fail(
        f"not found: {', '.join(lacking)}", "all found", source, _mend_libraries(machine, lacking), tuple(lacking)
    )


def _mend_libraries(machine: Machine, lacking: list[str]) -> str:
    cann = machine.active_cann
    if lacking == ["libascend_hal.so"]:
        folder = f"{install_folder(machine.host, 'Driver')}/driver/lib64/driver"
        return f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH (in a container: mount it)"
    if cann is None:
        return f"install {recommended(machine)}, then source its set_env.sh: {_toolkit(machine)}"
    if _unset(machine):
        return f"source {cann.set_env}"
    return (
        f"install {recommended(machine)}: the libraries of CANN {cann.label} do not fit this MindSpore; "
        f"{_toolkit(machine)}"
    )


CHECKS = (
    Check("cann_roots", "CANN installations, and the one the environment points to", Cost.FILES, "ascend", roots),
    Check("cann_version", "MindSpore and CANN belong together", Cost.FILES, "ascend", version),
    Check("cann_parts", "the parts of CANN have one version", Cost.FILES, "ascend", parts),
    Check(
        "op_kernels", "CANN's op package: there, of the same version, for the chip", Cost.COMMANDS, "ascend", kernels
    ),
    Check("ascend_env", "the variables of set_env.sh are set and point to folders", Cost.FILES, "ascend", variables),
    Check("plugin", "ldd of MindSpore's Ascend plugin", Cost.COMMANDS, "ascend", plugin),
)
