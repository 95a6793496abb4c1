"""Signatures of `_target_` names, read from source text: nothing is imported, so nothing heavy or foreign runs."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msrun_cli.config.suggest import did_you_mean

OWN_PACKAGE = "msrun_cli"
PREFIXES_ENV = "MSRUN_TARGET_PREFIXES"

_SCALARS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
_LISTS = {"list", "tuple", "List", "Tuple", "Sequence", "Iterable", "Collection"}
_DICTS = {"dict", "Dict", "Mapping", "MutableMapping"}


class TargetError(Exception):
    """The target is refused or does not exist; the text says why and what to do."""


@dataclass(frozen=True)
class Parameter:
    name: str
    required: bool
    annotation: ast.expr | None

    def mismatch(self, value: Any) -> str | None:
        """What the annotation asks for when `value` (a plain YAML value) is clearly something else."""
        if self.annotation is None or _fits(value, self.annotation) is not False:
            return None
        return ast.unparse(self.annotation)


@dataclass(frozen=True)
class Signature:
    target: str
    parameters: dict[str, Parameter]
    any_keyword: bool  # takes **kwargs


def signature_of(target: str, package: str | None = None) -> Signature | None:
    """None when it cannot be read without importing. Raises TargetError.

    package: where shipped targets of this kind live, such as msrun_cli.models. Names outside need a prefix that the
    user trusts, in MSRUN_TARGET_PREFIXES: a configuration may come from somebody else's run folder.
    """
    _refuse_foreign(target, package)
    return _read(target)


@functools.cache
def _read(target: str) -> Signature | None:
    own = _inside(target, OWN_PACKAGE)
    source, names = _locate(target)
    if source is None:
        if own:
            raise TargetError(_no_such_module(target))
        return None
    tree = ast.parse(source.read_text(encoding="utf-8"))
    definition = _definition(tree, names)
    if definition is not None:
        return _signature(target, tree, definition)
    if own or (len(names) == 1 and not _mentions(tree, names[0])):
        known = [item.name for item in tree.body if isinstance(item, (ast.ClassDef, ast.FunctionDef))]
        public = [name for name in known if not name.startswith("_")]
        name = ".".join(names)
        hint = did_you_mean(name, public) or f" It defines: {', '.join(public)}."
        raise TargetError(f'{source.name} defines no class or function "{name}".{hint}')
    return None


def trusted_prefixes() -> list[str]:
    return [part.strip().rstrip(".") for part in os.environ.get(PREFIXES_ENV, "").split(",") if part.strip()]


def _refuse_foreign(target: str, package: str | None) -> None:
    trusted = trusted_prefixes()
    if any(_inside(target, prefix) for prefix in trusted):
        return
    allowed = package or OWN_PACKAGE
    if not _inside(target, allowed):
        top = target.rpartition(".")[0] or target
        raise TargetError(
            f"only names below {allowed} are run from a configuration, since it may come from somebody else. "
            f"If you trust this one, set the environment variable {PREFIXES_ENV}={','.join([*trusted, top])}."
        )


def _inside(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def _locate(target: str) -> tuple[Path | None, list[str]]:
    """(source file of the module, names inside it). Parent packages are not imported."""
    top, *rest = target.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return None, rest
    if not spec.submodule_search_locations:
        return (Path(spec.origin), rest) if spec.origin and spec.origin.endswith(".py") else (None, rest)
    folder, found, names = Path(next(iter(spec.submodule_search_locations))), None, rest
    for position, part in enumerate(rest):
        if (folder / part).is_dir():
            folder = folder / part
        elif (folder / f"{part}.py").is_file():
            found, names = folder / f"{part}.py", rest[position + 1 :]
            break
        else:
            package = folder / "__init__.py"
            found = package if package.is_file() and package.stat().st_size else None
            names = rest[position:]
            break
    return found if names else None, names


def _no_such_module(target: str) -> str:
    folder = Path(next(iter(importlib.util.find_spec(OWN_PACKAGE).submodule_search_locations)))  # type: ignore[union-attr, arg-type]
    known = OWN_PACKAGE
    for part in target.split(".")[1:]:
        modules = [item.stem for item in folder.iterdir() if item.suffix == ".py" or (item / "__init__.py").is_file()]
        public = [name for name in modules if not name.startswith("_")]
        if part not in public:
            return f'{known} has no module "{part}".{did_you_mean(part, public)}'
        folder, known = folder / part, f"{known}.{part}"
    return f"{target} is a module; the name of a class or function in it is missing."


def _definition(tree: ast.Module, names: list[str]) -> ast.ClassDef | ast.FunctionDef | None:
    body: list[ast.stmt] = tree.body
    found: ast.ClassDef | ast.FunctionDef | None = None
    for name in names:
        matches = [item for item in body if isinstance(item, (ast.ClassDef, ast.FunctionDef)) and item.name == name]
        if not matches:
            return None
        found, body = matches[-1], matches[-1].body
    return found


def _mentions(tree: ast.Module, name: str) -> bool:
    """Whether the module binds the name by an import, an assignment or a condition."""
    imported = any(
        alias.name == "*" or (alias.asname or alias.name).split(".")[0] == name
        for item in ast.walk(tree)
        if isinstance(item, (ast.Import, ast.ImportFrom))
        for alias in item.names
    )
    return imported or any(
        isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store) and item.id == name for item in ast.walk(tree)
    )


def _signature(target: str, tree: ast.Module, node: ast.ClassDef | ast.FunctionDef) -> Signature | None:
    if isinstance(node, ast.FunctionDef):
        return _from_arguments(target, node.args, skip_first=False)
    if any("dataclass" in ast.unparse(item) for item in node.decorator_list):
        return _from_fields(target, node) if not node.bases else None
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _from_arguments(target, item.args, skip_first=True)
    for base in node.bases:
        inherited = _definition(tree, [ast.unparse(base)])
        if isinstance(inherited, ast.ClassDef) and inherited is not node:
            return _signature(target, tree, inherited)
    return None if node.bases else Signature(target, {}, any_keyword=False)


def _from_arguments(target: str, arguments: ast.arguments, skip_first: bool) -> Signature:
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    named = [(item, index < first_default) for index, item in enumerate(positional)][1 if skip_first else 0 :]
    named += [
        (item, default is None) for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    parameters = {item.arg: Parameter(item.arg, required, item.annotation) for item, required in named}
    return Signature(target, parameters, any_keyword=arguments.kwarg is not None)


def _from_fields(target: str, node: ast.ClassDef) -> Signature:
    found = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if "ClassVar" not in ast.unparse(item.annotation):
                found[item.target.id] = Parameter(item.target.id, item.value is None, item.annotation)
    return Signature(target, found, any_keyword=False)


def _fits(value: Any, annotation: ast.expr) -> bool | None:
    """False when the value is clearly of another type; None when that cannot be told."""
    if isinstance(annotation, ast.Constant):
        if annotation.value is None:
            return value is None
        return (
            _fits(value, ast.parse(annotation.value, mode="eval").body) if isinstance(annotation.value, str) else None
        )
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _any_fits(value, [annotation.left, annotation.right])
    if isinstance(annotation, ast.Subscript):
        name, inner = _last_name(annotation.value), annotation.slice
        items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name in ("Optional", "Union"):
            return True if name == "Optional" and value is None else _any_fits(value, items)
        if name == "Literal":
            return value in [item.value for item in items if isinstance(item, ast.Constant)]
        return _fits_name(value, name)
    return _fits_name(value, _last_name(annotation))


def _any_fits(value: Any, options: list[ast.expr]) -> bool | None:
    verdicts = [_fits(value, option) for option in options]
    return True if True in verdicts else None if None in verdicts else False


def _fits_name(value: Any, name: str) -> bool | None:
    if name in _SCALARS:
        if isinstance(value, bool):
            return name == "bool"
        return isinstance(value, _SCALARS[name])
    if name in _LISTS:
        return isinstance(value, list)
    if name in _DICTS:
        return isinstance(value, dict)
    return None


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
