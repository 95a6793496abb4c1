"""MindSpore and the Python packages around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msrun_cli.environment.checks.system import extension_of
from msrun_cli.environment.installed import Package, module_folders, requirements
from msrun_cli.environment.machine import MINDSPORE_NAMES, Machine
from msrun_cli.environment.results import Check, Cost, Outcome, fail, fine, skip, warn
from msrun_cli.environment.versions import satisfies, version_key

_OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
_OPENCV_BOUNDS = ">=4.8,<4.12"
_OLDEST = "2.7.0"
_MINDSPORE_BOUNDS = ">=2.7,<2.11"  # as in pyproject.toml
_HAVE_CHECKS = {"numpy", "mindspore", *_OPENCV}


def mindspore(machine: Machine) -> Outcome:
    package, host = machine.mindspore, machine.host
    folders = host.facts.search_path
    if package is None:
        stray = module_folders(host, folders, "mindspore")
        hint = f"{machine.pip} install 'mindspore{_MINDSPORE_BOUNDS}'"
        if stray:
            return warn(
                f"{stray[0]}/mindspore without metadata",
                "an installed package",
                stray[0],
                f"{hint} (a folder or a build of your own is no installed package)",
            )
        return fail("not installed", f"MindSpore {_OLDEST} or newer", ", ".join(folders), hint, stops_run=True)
    copies = [copy for name in MINDSPORE_NAMES for copy in machine.packages.get(name, [])]
    repair = f"{machine.pip} install --force-reinstall --no-deps mindspore=={package.version}"
    row = machine.matrix.mindspore_row(package.version)
    if extension_of(machine, package) is None and host.facts.system == "Linux":
        return fail(
            f"{package.version}, but {package.location}/mindspore has no compiled module (_c_expression)",
            "a complete package",
            package.metadata,
            repair,
            stops_run=row is not None,  # a version that is not known may be built another way
        )
    if len(copies) > 1:
        listed = ", ".join(f"{copy.name} {copy.version} in {copy.location}" for copy in copies)
        names = " ".join(sorted({copy.name for copy in copies}))
        hint = f"{machine.pip} uninstall -y {names} && {machine.pip} install mindspore=={package.version}"
        return warn(f"{len(copies)} copies: {listed}", "one", package.location, hint)
    if not satisfies(package.version, f">={_OLDEST}"):
        cann = machine.active_cann
        hint = f"{machine.pip} install 'mindspore{_MINDSPORE_BOUNDS}'" + (", and the CANN for it" if cann else "")
        return fail(package.version, f"MindSpore {_OLDEST} or newer for msrun-cli", package.metadata, hint)
    if row is None:
        return warn(
            package.version,
            "a version of the compatibility table",
            package.metadata,
            f"the nearest known ones: {machine.matrix.near_mindspore(package.version)}",
        )
    return fine(package.version, f"{_OLDEST} or newer", package.metadata)


def numpy(machine: Machine) -> Outcome:
    package = machine.package("numpy")
    known = machine.matrix.numpy
    release = machine.mindspore.version if machine.mindspore else known["up_to_mindspore"]
    bounds = known["needs"] if version_key(release) <= version_key(known["up_to_mindspore"]) else ""
    if package is None:
        hint = f"{machine.pip} install 'numpy>=1.25,<2'"
        stray = module_folders(machine.host, machine.host.facts.search_path, "numpy")
        if stray:
            return warn("without metadata, so of unknown version", f"numpy {bounds}", stray[0], hint)
        return fail("not installed", f"numpy {bounds}", "search path of Python", hint, stops_run=True)
    if not bounds:
        return fine(package.version, "as MindSpore's metadata says", package.metadata)
    if not satisfies(package.version, bounds):
        hint = f"{machine.pip} install 'numpy>=1.25,<2' 'opencv-python{_OPENCV_BOUNDS}'"
        return fail(package.version, f"numpy {bounds} for MindSpore {release}", package.metadata, hint)
    return fine(package.version, f"numpy {bounds}", package.metadata)


def opencv(machine: Machine) -> Outcome:
    installed = [machine.packages[name][0] for name in _OPENCV if name in machine.packages]
    expected = f"one OpenCV {_OPENCV_BOUNDS}"
    if not installed:
        folders = module_folders(machine.host, machine.host.facts.search_path, "cv2")
        if folders:
            return fine(f"cv2 in {folders[0]}, not installed by pip", expected, folders[0])
        hint = f"{machine.pip} install 'opencv-python-headless{_OPENCV_BOUNDS}'"
        return fail("not installed", expected, "search path of Python", hint, stops_run=True)
    listed = ", ".join(f"{package.name} {package.version}" for package in installed)
    wrong = [package for package in installed if not satisfies(package.version, _OPENCV_BOUNDS)]
    if wrong:
        newer = any(version_key(package.version) >= version_key("4.12") for package in wrong)
        hint = f"{machine.pip} install '{wrong[0].name}{_OPENCV_BOUNDS}' 'numpy>=1.25,<2'"
        details = ("OpenCV 4.12 and later need numpy 2, which breaks MindSpore",) if newer else ()
        return fail(listed, expected, wrong[0].metadata, hint, details)
    if len({package.version for package in installed}) > 1:
        names = " ".join(package.name for package in installed)
        hint = f"{machine.pip} uninstall -y {names} && {machine.pip} install 'opencv-python-headless{_OPENCV_BOUNDS}'"
        return warn(listed, expected, installed[0].location, hint, ("they overwrite each other's cv2",))
    return fine(listed, expected, installed[0].metadata)


def opencv_import(machine: Machine) -> Outcome:
    if not module_folders(machine.host, machine.host.facts.search_path, "cv2"):
        return skip("OpenCV is not installed")
    command = [machine.host.facts.executable, "-c", "import cv2; print(cv2.__version__)"]
    output = machine.host.run(command, 60)
    source = 'python -c "import cv2"'
    if output.ok:
        return fine(f"imports, {(output.tail(1) or ['?'])[0]}", "imports", source)
    if output.problem == "missing":
        return skip(f"{command[0]} cannot be run")
    reason = (output.tail(1) or [output.ending()])[0]
    details = tuple(output.tail(8))
    if re.search(r"lib(GL|gthread|SM|Xext|Xrender|X11|EGL)[\w.-]*\.so", output.text):
        names = " ".join(name for name in _OPENCV if name in machine.packages and not name.endswith("headless"))
        hint = (
            f"{machine.pip} uninstall -y {names or 'opencv-python'} && "
            f"{machine.pip} install 'opencv-python-headless{_OPENCV_BOUNDS}'"
        )
    elif "numpy" in output.text.lower():
        hint = f"{machine.pip} install 'numpy>=1.25,<2' 'opencv-python{_OPENCV_BOUNDS}'"
    else:
        hint = f"{machine.pip} install --force-reinstall --no-deps 'opencv-python-headless{_OPENCV_BOUNDS}'"
    return fail(reason if output.problem == "" else output.ending(), "imports", source, hint, details)


def dependencies(machine: Machine) -> Outcome:
    """What msrun-cli and MindSpore say they require, against what is installed."""
    roots = [package for package in (machine.package("msrun-cli"), machine.mindspore) if package]
    if not roots:
        return skip("neither msrun-cli nor MindSpore is installed as a package")
    missing, unfit = unmet(machine, roots, _HAVE_CHECKS)
    source = ", ".join(f"{package.metadata}/METADATA" for package in roots)
    if not missing and not unfit:
        return fine("all there", "all there", source)
    wanted = " ".join(f"'{text}'" for text in sorted({text for text, _ in missing + unfit}))
    hint = f"{machine.pip} install {wanted}"
    details = tuple(reason for _, reason in missing + unfit)
    found = "; ".join(details)
    return (fail if missing else warn)(found, "all there", source, hint, details)


def unmet(
    machine: Machine, roots: Iterable[Package], left_out: set[str]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(missing, of a wrong version): requirement such as "rich>=13.8", and who wants it and what is there."""
    missing, unfit = [], []
    for root in roots:
        for needed in requirements(machine.host, root):
            text = f"{needed.name}{needed.bounds}"
            found = machine.package(needed.name)
            if needed.name in left_out:
                continue
            if found is None:
                missing.append((text, f"{root.name} requires {text}, which is not installed"))
            elif not satisfies(found.version, needed.bounds):
                unfit.append((text, f"{root.name} requires {text}, found {found.version}"))
    return missing, unfit


CHECKS = (
    Check("mindspore", "MindSpore is there, complete, once, and a known version", Cost.FILES, "any", mindspore),
    Check("numpy", "numpy's version fits MindSpore", Cost.FILES, "any", numpy),
    Check("opencv", "OpenCV's version fits numpy", Cost.FILES, "any", opencv),
    Check("opencv_import", "OpenCV imports (libGL in containers)", Cost.SLOW, "any", opencv_import),
    Check("dependencies", "the packages that msrun-cli and MindSpore require", Cost.FILES, "any", dependencies),
)
