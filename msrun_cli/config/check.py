"""Every fault of a composed configuration at once: unknown keys, wrong types and values, wrong arguments of targets."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from msrun_cli.config import rules, schema
from msrun_cli.config.origin import KeyPath, Origins
from msrun_cli.config.signatures import Signature, TargetError, signature_of
from msrun_cli.config.suggest import did_you_mean, listed, nearest

_INSTANTIATE_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_"}  # Hydra's own keys of a target node
_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
_UNREADABLE = object()


def problems(config: DictConfig, root: type, origins: Origins | None = None) -> list[str]:
    """One paragraph per fault, without the `hydra` node; empty when the configuration is right.

    root: a class of `schema.ROOTS`. origins: tells where a key came from; None leaves that out.
    """
    checker = _Checker(origins or Origins())
    checker.section(config, root, ())
    checker.foreign_targets(config, ())
    return checker.found + rules.violations(_plain(config, checker.faulty))


def remarks(config: DictConfig) -> list[str]:
    """Sentences on settings that are allowed but without effect or unwise."""
    return rules.remarks(_plain(config, []))


@dataclass
class _Checker:
    origins: Origins
    found: list[str] = field(default_factory=list)
    faulty: list[KeyPath] = field(default_factory=list)
    seen_targets: set[KeyPath] = field(default_factory=set)

    def report(self, path: KeyPath, text: str) -> None:
        self.found.append(text)
        self.faulty.append(path)

    def section(self, node: DictConfig, kind: type, path: KeyPath) -> None:
        """A node that is described by a class of `schema`."""
        hints, limits = schema.hints(kind), schema.limits(kind)
        arguments_allowed = getattr(kind, "ARGUMENTS", False)
        for name in node:
            if str(name) not in hints and not (path == () and name == "hydra") and not arguments_allowed:
                self.unknown((*path, str(name)), list(hints))
        present = {str(name) for name in node}  # `in` would deny keys that are still to be set
        for name, hint in hints.items():
            if name not in present:
                if limits[name].get("absent"):
                    continue
                self.report((*path, name), f'key "{_dotted((*path, name))}" is missing; it must not be removed.')
            else:
                self.value(node, name, hint, limits[name], path)

    def unknown(self, path: KeyPath, valid: list[str]) -> None:
        name, place = path[-1], self.origins.where(path)
        hint = did_you_mean(name, valid, _dotted(path[:-1])) or _elsewhere(self, name)
        text = f'unknown key "{_dotted(path)}"{place}.{hint}'
        self.report(path, text + ("" if hint else f" Valid keys here: {listed(valid)}."))

    def value(self, node: DictConfig, name: str, hint: Any, limit: dict[str, Any], parent: KeyPath) -> None:
        path = (*parent, name)
        value = self.read(node, name, path)
        kind, optional = schema.split_optional(hint)
        if value is _UNREADABLE or (value is None and optional):
            return
        if typing.get_origin(kind) is dict:
            step, _ = schema.split_optional(typing.get_args(kind)[1])
            self.steps(value, step, limit, path)
        elif typing.get_origin(kind) is list:
            self.items(value, typing.get_args(kind)[0], limit, path)
        elif is_dataclass(kind):
            self.subsection(value, typing.cast(type, kind), limit, path)
        else:
            wrong = _wrong(value, kind, optional, limit)
            if wrong and not self.follows_fault(node, name):
                self.report(path, f"{_dotted(path)}={_shown(value)}{self.origins.where(path)}: must be {wrong}.")

    def items(self, value: Any, kind: type, limit: dict[str, Any], path: KeyPath) -> None:
        items = _container(value)
        wrong = [item for item in items if _wrong(item, kind, False, limit)] if isinstance(items, list) else [items]
        if wrong:
            text = f"{_dotted(path)}={_shown(value)}{self.origins.where(path)}: must be a list, each item "
            choices = limit.get("choices")
            words = f"one of {', '.join(choices)}" if choices else range_words(kind, False, limit)
            self.report(path, f"{text}{words}.")

    def follows_fault(self, node: DictConfig, name: str) -> bool:
        """`${dataset.image_size}` is as wrong as dataset.image_size, which is reported already."""
        raw = _raw(node)[name]
        return isinstance(raw, str) and tuple(raw.removeprefix("${").removesuffix("}").split(".")) in self.faulty

    def read(self, node: DictConfig, name: str, path: KeyPath) -> Any:
        if OmegaConf.is_missing(node, name):
            self.report(path, _must_be_set(path, self.origins.comment(path)))
            return _UNREADABLE
        try:
            return node[name]
        except OmegaConfBaseException as error:
            raw = OmegaConf.to_container(node, resolve=False)
            text = str(raw[name]) if isinstance(raw, dict) else ""
            if "${hydra:" not in text:  # only known inside a job
                reason = str(error).splitlines()[0]
                self.report(path, f"{_dotted(path)}={text}{self.origins.where(path)}: cannot be resolved: {reason}.")
            return _UNREADABLE

    def steps(self, value: Any, kind: type, limit: dict[str, Any], path: KeyPath) -> None:
        if not isinstance(value, DictConfig):
            return self.report(path, f"{_dotted(path)}{self.origins.where(path)}: must be a section of named steps.")
        for name in value:
            step = self.read(value, str(name), (*path, str(name)))
            if step is not _UNREADABLE and step is not None:
                self.subsection(step, kind, limit, (*path, str(name)))

    def subsection(self, value: Any, kind: type, limit: dict[str, Any], path: KeyPath) -> None:
        if not isinstance(value, DictConfig):
            text = f"{_dotted(path)}={_shown(value)}{self.origins.where(path)}: must be a section with keys: "
            return self.report(path, f"{text}{listed(schema.hints(kind))}.")
        self.section(value, kind, path)
        if getattr(kind, "ARGUMENTS", False) and isinstance(_raw(value).get("_target_"), str):
            self.target(value, kind, limit, path)

    def target(self, node: DictConfig, kind: type, limit: dict[str, Any], path: KeyPath) -> None:
        self.seen_targets.add(path)
        signature = self.signature(str(_raw(node)["_target_"]), limit.get("package"), path)
        if signature is None:
            return
        common = set(schema.hints(kind)) | _INSTANTIATE_KEYS
        given = [str(name) for name in node if name not in common or name in signature.parameters]
        for name in given:
            if name not in common:
                self.argument(node, name, signature, (*path, name), common - _INSTANTIATE_KEYS)
        if limit.get("complete"):
            missing = [item.name for item in signature.parameters.values() if item.required]
            for name in [name for name in missing if name not in {str(key) for key in node}]:
                text = f"{_dotted((*path, name))} is missing: {signature.target} needs it{self.origins.where(path)}."
                self.report((*path, name), f"{text} Add it in the YAML file or as +{_dotted((*path, name))}=VALUE.")

    def signature(self, target: str, package: str | None, path: KeyPath) -> Signature | None:
        try:
            return signature_of(target, package)
        except TargetError as error:
            key = (*path, "_target_")
            self.report(key, f"{_dotted(key)}={target}{self.origins.where(key)}: {error}")
            return None

    def argument(self, node: DictConfig, name: str, signature: Signature, path: KeyPath, common: set[str]) -> None:
        parameter = signature.parameters.get(name)
        if parameter is None:
            if not signature.any_keyword:
                valid = sorted({*signature.parameters, *common})
                text = f'unknown key "{_dotted(path)}"{self.origins.where(path)}: {signature.target} has no argument'
                self.report(
                    path,
                    f'{text} "{name}".{did_you_mean(name, valid, _dotted(path[:-1]))} Valid keys: {listed(valid)}.',
                )
            return
        value = self.read(node, name, path)
        if value is _UNREADABLE or (isinstance(value, DictConfig) and "_target_" in value):
            return
        expected = parameter.mismatch(_container(value))
        if expected:
            text = f"{_dotted(path)}={_shown(value)}{self.origins.where(path)}: must be of type {expected}"
            self.report(path, f"{text} (argument of {signature.target}).")

    def foreign_targets(self, node: Any, path: KeyPath) -> None:
        """The target policy for `_target_` keys in places that the schema does not know."""
        if isinstance(node, DictConfig):
            raw = _raw(node)
            if isinstance(raw.get("_target_"), str) and path not in self.seen_targets:
                self.signature(raw["_target_"], None, path)
            children: list[Any] = [str(name) for name in raw if not (path == () and name == "hydra")]
        else:
            children = list(range(len(node)))
        for name in children:
            try:
                child = None if OmegaConf.is_missing(node, name) else node[name]
            except OmegaConfBaseException:
                continue
            if isinstance(child, (DictConfig, ListConfig)):
                self.foreign_targets(child, (*path, str(name)))


def _elsewhere(checker: _Checker, name: str) -> str:
    """People type `lr=0.1` for optimizer.lr: look for the name in all files of the composition."""
    found = {".".join((*file.package, *keys)) for file in checker.origins.files for keys in _leaves(file.data, name)}
    return f' Did you mean "{min(found, key=len)}"?' if found else ""


def _leaves(data: dict[str, Any], name: str, path: KeyPath = ()) -> list[KeyPath]:
    found = [(*path, name)] if path and name in data else []
    for key, value in data.items():
        if isinstance(value, dict):
            found += _leaves(value, name, (*path, str(key)))
    return found


def _wrong(value: Any, kind: Any, optional: bool, limit: dict[str, Any]) -> str | None:
    """What the value must be, when it is not."""
    choices = limit.get("choices")
    if choices:
        good = value in choices or (isinstance(value, bool) and "on" in choices)
        hint = nearest(str(value), choices)
        words = f"one of {', '.join(choices)}" + (" or null" if optional else "")
        return None if good else words + (f' (did you mean "{hint}"?)' if hint else "")
    if isinstance(value, str) and value in limit.get("words", ()):
        return None
    accepted = {float: (int, float)}.get(kind, (kind,))
    if isinstance(value, bool) and kind is not bool or not isinstance(value, accepted):
        return range_words(kind, optional, limit)
    if kind in (int, float) and not _in_range(value, limit):
        return range_words(kind, optional, limit)
    return None


def _in_range(value: float, limit: dict[str, Any]) -> bool:
    low, above, high, multiple = (limit.get(name) for name in ("low", "above", "high", "multiple"))
    return (
        value == value
        and abs(value) != float("inf")
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
        and (multiple is None or value % multiple == 0)
    )


def range_words(kind: Any, optional: bool, limit: dict[str, Any]) -> str:
    words = [_KINDS[kind]]
    if limit.get("multiple") is not None:
        words.append(f"that is a multiple of {limit['multiple']}")
    bounds = {"low": "at least", "above": "larger than", "high": "at most"}
    ends = [f"{text} {limit[name]}" for name, text in bounds.items() if limit.get(name) is not None]
    if limit.get("multiple") is not None and ends:
        ends[0] = f"and {ends[0]}"
    words.append(" and ".join(ends))
    text = " ".join(word for word in words if word) + "".join(f" or {word}" for word in limit.get("words", ()))
    return text + (" or null" if optional else "")


def _must_be_set(path: KeyPath, comment: str) -> str:
    key = _dotted(path)
    return f"{key} must be set{f': {comment}' if comment else ''}. Give it as {key}=VALUE."


def _raw(node: DictConfig) -> dict[str, Any]:
    data = OmegaConf.to_container(node, resolve=False)
    return {str(name): value for name, value in data.items()} if isinstance(data, dict) else {}


def _container(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=False) if isinstance(value, (DictConfig, ListConfig)) else value


def _plain(config: DictConfig, without: list[KeyPath]) -> dict[str, Any]:
    """The readable values as a plain dict; keys that are already reported are left out, so no rule speaks of them."""

    def copy(node: DictConfig, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name in node:
            key = (*path, str(name))
            try:
                if key in without or key == ("hydra",) or OmegaConf.is_missing(node, name):
                    continue
                value = node[name]
            except OmegaConfBaseException:
                continue
            result[str(name)] = copy(value, key) if isinstance(value, DictConfig) else value
        return result

    return copy(config, ())


def _dotted(path: KeyPath) -> str:
    return ".".join(path)


def _shown(value: Any) -> str:
    value = _container(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
