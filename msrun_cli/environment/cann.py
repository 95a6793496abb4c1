"""CANN on disk: where it is and what it says about itself. Both layouts (ascend-toolkit/latest, cann-8.5.0)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import escape

from msrun_cli.environment.host import Host
from msrun_cli.environment.versions import Range, line_of, parse_ranges, series

_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_USUAL = (
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/nnae/latest",
    "/usr/local/Ascend/latest",
    "{home}/Ascend/cann",
    "{home}/Ascend/ascend-toolkit/latest",
    "{home}/Ascend/nnae/latest",
)
_PATTERNS = (
    "/usr/local/Ascend/cann-*",
    "/usr/local/Ascend/ascend-toolkit/[0-9]*",
    "/usr/local/Ascend/nnae/[0-9]*",
    "{home}/Ascend/cann-*",
    "{home}/Ascend/ascend-toolkit/[0-9]*",
)
_COMPONENTS = ("compiler", "runtime", "opp", "hccl", "toolkit")
_KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"


@dataclass(frozen=True)
class Cann:
    """One installation.

    path: as it was found; places: where it really lies, without links (`latest` may be a folder of links to its parts)
    set_env: the script to source; version: 8.0.RC3, internal: 7.5.0.1.129, None where no file says it
    source: the file that gave the internal version; line: V100R001C19; compatible: lines it works with
    components: version of each part; kernels: op packages, as (name, version, file)
    """

    path: str
    places: tuple[str, ...]
    set_env: str
    version: str | None
    internal: str | None
    source: str
    line: str | None
    compatible: tuple[Range, ...]
    components: dict[str, str]
    kernels: tuple[tuple[str, str, str], ...]

    @property
    def series(self) -> str | None:
        return None if self.internal is None else series(self.internal)

    @property
    def label(self) -> str:
        return self.version or (f"internal version {self.internal}" if self.internal else "unknown version")

    def owns(self, resolved: str) -> bool:
        """Whether a place, without links, lies in this installation."""
        return any(f"{resolved}/".startswith(f"{place}/") for place in self.places)


def pointed_to(host: Host) -> str | None:
    """The folder that the environment names, existing or not."""
    for name in _VARIABLES:
        if host.environ.get(name):
            return host.environ[name]
    opp = host.environ.get("ASCEND_OPP_PATH", "").rstrip("/")
    return opp.removesuffix("/opp") if opp.endswith("/opp") else None


def find_cann(host: Host, package_folders: Sequence[str]) -> list[Cann]:
    """All installations, the one the environment points to first; a folder that two names lead to counts once."""
    found: dict[str, Cann] = {}
    for path in _candidates(host, package_folders):
        if not _looks_like_cann(host, path):
            continue
        key = _resolved_root(host, path)
        if key not in found:
            found[key] = read_cann(host, path)
        elif host.resolve(path) not in found[key].places:
            found[key] = replace(found[key], places=(*found[key].places, host.resolve(path)))
    return list(found.values())


def _resolved_root(host: Host, path: str) -> str:
    """The same for all names of one installation: where its parts lie."""
    for part in ("compiler", "opp"):
        if host.exists(f"{path}/{part}"):
            return os.path.dirname(host.resolve(f"{path}/{part}"))
    return host.resolve(path)


def _candidates(host: Host, package_folders: Sequence[str]) -> list[str]:
    home = host.facts.home
    pointed = pointed_to(host)
    paths = [pointed] if pointed else []
    paths += [path.format(home=home) for path in _USUAL]
    patterns = [pattern.format(home=escape(home)) for pattern in _PATTERNS]
    patterns += [f"{escape(folder)}/ascend/cann-*" for folder in package_folders]
    conda = host.environ.get("CONDA_PREFIX")
    if conda:
        patterns += [f"{escape(conda)}/Ascend/cann*", f"{escape(conda)}/Ascend/ascend-toolkit/latest"]
    return [*paths, *(path for pattern in patterns for path in host.glob(pattern))]


def _looks_like_cann(host: Host, path: str) -> bool:
    marks = ("compiler/version.info", "version.cfg", "opp", "share/info")
    return any(host.exists(f"{path}/{mark}") for mark in marks) or bool(_install_infos(host, path, "toolkit"))


def read_cann(host: Host, path: str) -> Cann:
    components = {name: text for name in _COMPONENTS if (text := _component(host, path, name))}
    compiler, source = _compiler(host, path)
    infos = _install_infos(host, path, "toolkit") or _install_infos(host, path, "nnae")
    info = parse_info(host.read(infos[0])) if infos else {}
    config, named = _version_cfg(host, path)
    internal = compiler.get("Version") or components.get("compiler") or config
    if internal is not None and "compiler" not in components:
        components["compiler"] = internal
    if not compiler.get("Version"):
        source = f"{path}/version.cfg" if config else source
    inner = info.get("innerversion") or compiler.get("innerversion") or ""
    return Cann(
        path=path,
        places=tuple(dict.fromkeys((host.resolve(path), _resolved_root(host, path)))),
        set_env=_set_env(host, path),
        version=_name(compiler.get("version_dir")) or named or _name(info.get("version")),
        internal=internal,
        source=source,
        line=line_of(inner),
        compatible=tuple(parse_ranges(info.get("compatible_version", ""))),
        components=components,
        kernels=tuple(_kernel_packages(host, path)),
    )


def _set_env(host: Host, path: str) -> str:
    """Inside the root, or (ascend-toolkit, nnae) beside it."""
    parent = os.path.dirname(path.rstrip("/"))
    inside = host.is_file(f"{path}/set_env.sh") or not host.is_file(f"{parent}/set_env.sh")
    return f"{path if inside else parent}/set_env.sh"


def parse_info(text: str | None) -> dict[str, str]:
    """KEY=VALUE lines; a byte order mark, blanks and comments do no harm."""
    pairs = {}
    for line in (text or "").lstrip("\ufeff").splitlines():
        key, sign, value = line.partition("=")
        if sign and not key.lstrip().startswith("#"):
            pairs[key.strip()] = value.strip()
    return pairs


def _compiler(host: Host, path: str) -> tuple[dict[str, str], str]:
    """The file MindSpore reads, and its place in newer layouts."""
    for file in (f"{path}/compiler/version.info", f"{path}/share/info/compiler/version.info"):
        text = host.read(file)
        if text is not None:
            return parse_info(text), file
    return {}, f"{path}/compiler/version.info"


def _component(host: Host, path: str, name: str) -> str | None:
    for file in (f"{path}/{name}/version.info", f"{path}/share/info/{name}/version.info"):
        version = parse_info(host.read(file)).get("Version")
        if version:
            return version
    return None


def _version_cfg(host: Host, path: str) -> tuple[str | None, str | None]:
    """(internal, name) of `compiler_running_version=[7.6.0.1.220:8.0.0]`."""
    values = parse_info(host.read(f"{path}/version.cfg"))
    for key in ("compiler_running_version", "toolkit_running_version", "runtime_running_version"):
        match = re.match(r"\[([^:\]]+):?([^\]]*)\]", values.get(key, ""))
        if match:
            return match[1], match[2] or None
    return None, None


def _name(text: str | None) -> str | None:
    """8.5.0 of "cann-8.5.0" and "8.5.0"."""
    match = re.search(r"\d+\.\d+\.\w+(\.\w+)*", text or "")
    return match.group(0) if match else None


def _install_infos(host: Host, path: str, kind: str) -> list[str]:
    return host.glob(f"{escape(path)}/*-linux/ascend_*{kind}*_install.info")


def _kernel_packages(host: Host, path: str) -> list[tuple[str, str, str]]:
    """By their own info files, by the line in version.cfg, and by the folders of compiled kernels."""
    found = []
    for kind in ("ops", "kernels"):
        for file in _install_infos(host, path, kind):
            info = parse_info(host.read(file))
            found.append((info.get("package_name", os.path.basename(file)), info.get("version", ""), file))
    if not found:
        folders = [name for name in host.names(f"{path}/{_KERNELS}") if name.startswith("ascend")]
        recorded = parse_info(host.read(f"{path}/version.cfg")).get("opp_kernel_running_version", "")
        version = re.sub(r"^\[[^:\]]*:?|\]$", "", recorded)
        found += [(name, version, f"{path}/{_KERNELS}") for name in folders]
        if recorded and not folders:
            found.append(("opp_kernel", version, f"{path}/version.cfg"))
    return found


def kernel_family(package_name: str) -> str | None:
    """The chip of Ascend-cann-910b-ops, Ascend-cann-kernels-310p, Ascend-cann-A3-ops, ascend910_93."""
    match = re.search(r"(?:cann-kernels-|cann-|^ascend)(a3|910_93|910b|910|310p|310b|310|950)\b", package_name.lower())
    if match is None:
        return None
    return "910_93" if match[1] == "a3" else match[1]
