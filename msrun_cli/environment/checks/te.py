"""`te` and `hccl`, CANN's Python packages, and what they require. They are never imported here."""

from __future__ import annotations

import os
import re

from msrun_cli.environment.checks.packages import unmet
from msrun_cli.environment.explain import explain_lines
from msrun_cli.environment.installed import Package, installed_packages, module_folders
from msrun_cli.environment.machine import Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import series

_WHEELS = ("te", "opc-tool", "auto-tune", "dataflow", "schedule-search", "hccl")
# What CANN's compiler imports; the metadata of its packages names only a part in some versions.
_IMPORTED = (
    *("absl-py", "attrs", "cloudpickle", "decorator", "jinja2", "ml-dtypes", "numpy", "psutil", "scipy", "sympy"),
    "tornado",
)
_VERSION_FILES = {"te": "te/version.py", "hccl": "hccl/sys_version.py"}


def _cann_folders(machine: Machine) -> list[str]:
    """Where the active CANN keeps Python packages."""
    cann = machine.active_cann
    return [f"{cann.path}/python/site-packages", f"{cann.path}/opp/built-in/op_impl/ai_core/tbe"] if cann else []


def te(machine: Machine) -> Outcome:
    """One copy, CANN's own, of CANN's version: wheels of an older CANN may be left in site-packages."""
    cann, host = machine.active_cann, machine.host
    if cann is None:
        return skip("no CANN was found")
    on_path = module_folders(host, host.facts.search_path, "te")
    if not on_path:
        beside = module_folders(host, _cann_folders(machine), "te")
        found = f"not on Python's path{f', but in {beside[0]}' if beside else ''}"
        hint = f"source {cann.set_env}" if beside else f"{machine.pip} install {cann.path}/lib64/te-*-py3-none-any.whl"
        return fail(found, "te on PYTHONPATH", "PYTHONPATH and site-packages", hint)
    foreign = [folder for folder in on_path if not _inside(machine, folder)]
    renew = (
        f"{machine.pip} uninstall -y te topi hccl && source {cann.set_env} (before CANN 8: then install "
        f"{cann.path}/lib64/te-*.whl and hccl-*.whl)"
    )
    for module in _VERSION_FILES:
        folder = next(iter(module_folders(host, on_path, module)), "")
        number = _version(machine, folder, module)
        if number and cann.series and series(number) != cann.series:
            return fail(
                f"{module} {number} in {folder}",
                f"{module} {cann.series} of {cann.path}",
                f"{folder}/{_VERSION_FILES[module]}",
                renew,
            )
    if foreign and len(on_path) > 1:
        return warn(f"copies in {', '.join(on_path)}", "CANN's own alone", "PYTHONPATH and site-packages", renew)
    return fine(f"in {on_path[0]}", "CANN's own", on_path[0])


def _inside(machine: Machine, folder: str) -> bool:
    return any(cann.owns(machine.host.resolve(folder)) for cann in machine.cann)


def _version(machine: Machine, folder: str, module: str) -> str | None:
    text = (machine.host.read(os.path.join(folder, _VERSION_FILES[module])) if folder else None) or ""
    match = re.search(r"version\w*\s*=\s*['\"](\d+(?:\.\w+)+)['\"]", text)
    return match.group(1) if match else None


def te_requirements(machine: Machine) -> Outcome:
    """The packages that CANN's compiler needs: pip does not install them with CANN."""
    if machine.active_cann is None:
        return skip("no CANN was found")
    folders = [*machine.host.facts.search_path, *_cann_folders(machine)]
    found = installed_packages(machine.host, folders)
    wheels: list[Package] = [found[name][0] for name in _WHEELS if name in found]
    missing, unfit = unmet(machine, wheels, {*_WHEELS, "te", "topi"})
    named = {re.split(r"[<>=!~]", text)[0] for text, _ in missing + unfit}
    missing += [
        (name, f"CANN's compiler imports {name}, which is not installed")
        for name in _IMPORTED
        if machine.package(name) is None and name not in named
    ]
    source = ", ".join(wheel.metadata for wheel in wheels) or "packages that CANN's compiler imports"
    if not missing and not unfit:
        return fine("all there", "all there", source)
    details = tuple(reason for _, reason in missing + unfit)
    wanted = " ".join(f"'{text}'" if re.search(r"[<>=!~]", text) else text for text, _ in missing + unfit)
    return (fail if missing else warn)(
        "; ".join(details), "all there", source, f"{machine.pip} install {wanted}", details
    )


def te_import(machine: Machine) -> Outcome:
    """In a process of its own: an import of CANN's packages may end in an abort."""
    if machine.active_cann is None:
        return skip("no CANN was found")
    code = "import te, tbe"
    output = machine.host.run([machine.host.facts.executable, "-c", code], 120)
    source = f'python -c "{code}"'
    if output.problem == "missing":
        return skip(f"{machine.host.facts.executable} cannot be run")
    if output.ok:
        return fine("imports", "imports", source)
    known = explain_lines(output.text.splitlines())
    hint = (
        known[0].error.remedy
        if known
        else f"source {machine.active_cann.set_env}, then msrun check-env --only te,python"
    )
    reason = (output.tail(1) or [""])[0] if output.code is not None else output.ending()
    return fail(reason or output.ending(), "imports", source, hint, tuple(output.tail(8)))


CHECKS = (
    Check("te", "CANN's Python packages te and hccl, of CANN's version", Cost.FILES, "ascend", te),
    Check("te_requirements", "the packages that te and hccl need", Cost.FILES, "ascend", te_requirements),
    Check("te_import", "te and tbe import", Cost.SLOW, "ascend", te_import),
)
