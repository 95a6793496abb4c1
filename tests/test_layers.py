"""The layer table: imports point downwards only, and no two packages import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "msrun_cli"

# Top first. Names of one line may import one another in one direction.
LAYERS: list[set[str]] = [
    {"cli", "__main__"},
    {"config.bridge"},
    {"tasks"},
    {"builders"},
    {"vision", "engine"},
    {"profiling", "export", "reporting", "environment"},
    {"losses", "data", "evaluation"},
    {"models", "transforms", "optim"},
    {"runtime"},
    {"kernels"},
    {"config"},
    {"common"},
    {"__init__"},
]
LIGHT = {"cli", "config.bridge", "config", "common", "environment"}  # loaded by --help, --cfg, completion, check-env
FRAMEWORKS = {"mindspore", "numpy", "cv2", "matplotlib", "pycocotools"}
LEVEL = {name: index for index, names in enumerate(LAYERS) for name in names}

FILES = sorted(PACKAGE.rglob("*.py"))


def unit_of(parts: tuple[str, ...]) -> str:
    """Name in the table of a module of the package."""
    dotted = ".".join(parts)
    for name in sorted(LEVEL, key=len, reverse=True):
        if dotted == name or dotted.startswith(f"{name}."):
            return name
    return parts[0] if parts else "__init__"


def imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def own(path: Path) -> str:
    return unit_of(path.relative_to(PACKAGE).with_suffix("").parts)


def targets(path: Path) -> set[str]:
    found = {unit_of(tuple(name.split(".")[1:])) for name in imports(path) if name.split(".")[0] == "msrun_cli"}
    # `from msrun_cli import __version__` names an attribute, not a module.
    return {"__init__" if name == "__version__" else name for name in found}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    source = own(path)
    assert source in LEVEL, f"{source} is in no layer"
    for target in targets(path) - {source}:
        assert target in LEVEL, f"{path} imports {target}, which is in no layer"
        assert LEVEL[source] <= LEVEL[target], f"{path} imports upwards: {target}"


def test_packages_never_import_each_other() -> None:
    edges = {(own(path), target) for path in FILES for target in targets(path) if own(path) != target}
    assert not [edge for edge in edges if edge[::-1] in edges]


@pytest.mark.parametrize("path", [path for path in FILES if own(path) in LIGHT], ids=lambda path: path.stem)
def test_the_command_line_loads_no_framework(path: Path) -> None:
    loaded = {name.split(".")[0] for name in imports(path, top_level_only=True)}
    assert not loaded & FRAMEWORKS


def test_the_environment_is_examined_without_any_framework() -> None:
    """A broken MindSpore, numpy or OpenCV must not stop `check-env`: not even a function imports them."""
    for path in FILES:
        if own(path) == "environment":
            assert not FRAMEWORKS & {name.split(".")[0] for name in imports(path)}, path


def test_transforms_know_no_framework() -> None:
    for path in FILES:
        if own(path) == "transforms":
            assert "mindspore" not in {name.split(".")[0] for name in imports(path)}, path


def test_package_files_are_empty() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            assert path.read_text() == "", path
