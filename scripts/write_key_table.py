#!/usr/bin/env python
"""Writes docs/configuration.md: every key of the configuration, from the schema and the YAML files under conf/.

    python scripts/write_key_table.py            write the file
    python scripts/write_key_table.py --check    exit code 1 when the file is not up to date

Types and ranges are those of the schema (config/schema.py) or of the signature that a `_target_` has; defaults are what
composes without overrides; meanings are the comments behind the keys in the YAML files, else those in the schema.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import re
import sys
import tokenize
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.files import write_text
from msrun_cli.config import schema
from msrun_cli.config.check import range_words
from msrun_cli.config.composer import Composer, SourceFile
from msrun_cli.config.origin import Origins
from msrun_cli.config.paths import conf_dir
from msrun_cli.config.signatures import signature_of

FILE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
COMMANDS = {"train": "msrun train", "eval": "msrun eval", "check-data": "msrun check-data"}
# Groups whose files hold arguments of a `_target_`, in the order of the file.
ARGUMENT_GROUPS = ("dataset", "transforms", "model", "loss", "optimizer", "evaluator")

HEAD = """# Configuration: every key

Written by `scripts/write_key_table.py` from the schema and the YAML files; do not edit it by hand.

Defaults are those of every data set but the generated shapes, which `conf/recipe/shapes_detection.yaml` changes.
A key is set as `key=value` behind the command, or in a YAML file. `-` as a default: no file that composes by default
has the key; another option of its group adds it, or `+key=value`. `${...}`: the value of another key.
"""

Row = tuple[str, str, str, str]


def text() -> str:
    """The whole file."""
    parts = [HEAD]
    seen: set[str] = set()
    for command, words in COMMANDS.items():
        rows = [row for row in rows_of(command) if row[0] not in seen or command == "train"]
        seen |= {row[0] for row in rows}
        others = "" if command == "train" else " Keys that `msrun train` has, too, are above."
        parts.append(f"## `{words}`\n\nFrom `conf/{command}.yaml`.{others}\n\n{table(rows)}")
    parts.append("## Arguments by option\n\nKeys that belong to one option of a group, besides those above.\n")
    parts += [part for group in ARGUMENT_GROUPS for part in options_of(group)]
    return "\n".join(parts)


def rows_of(command: str) -> list[Row]:
    composer = Composer(command)
    plain = ["~recipe"] if "recipe" in composer.groups else []  # what suits the default data set alone
    origins = Origins(lambda: composer.files(plain))
    return list(_section(composer.compose(plain), schema.ROOTS[command], (), origins))


def _section(node: Any, kind: type, path: tuple[str, ...], origins: Origins) -> Iterator[Row]:
    values = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else {}
    assert isinstance(values, dict)
    comments, limits = comments_of(kind), schema.limits(kind)
    for name, hint in schema.hints(kind).items():
        if name == "_target_":
            continue
        key = (*path, name)
        inner, optional = schema.split_optional(hint)
        if typing.get_origin(inner) is dict:
            yield from _named_parts(inner, limits[name], key, values, comments, origins)
        elif is_dataclass(inner):
            yield from _section(node._get_node(name), typing.cast(type, inner), key, origins)
        else:
            words = type_words(inner, optional, limits[name])
            yield ".".join(key), words, shown(values[name]) if name in values else "-", meaning(key, comments, origins)


def _named_parts(
    hint: Any, limit: dict[str, Any], key: tuple[str, ...], values: dict[str, Any], comments: dict[str, str],
    origins: Origins,
) -> Iterator[Row]:  # fmt: skip
    """A section whose keys are names that the user chooses."""
    step = schema.split_optional(typing.get_args(hint)[1])[0]
    about = inspect.getdoc(step) or ""
    said = meaning(key, comments, origins) if limit["package"] is None else about.split("\n\n")[0].replace("\n", " ")
    default = shown(values[key[-1]]) if not values.get(key[-1]) and key[-1] in values else "see the options"
    yield ".".join(key), "named parts", default, said
    yield from _section(None, step, (*key, "NAME"), Origins())


def type_words(kind: Any, optional: bool, limit: dict[str, Any]) -> str:
    if limit.get("choices"):
        return ", ".join(limit["choices"]) + (" or null" if optional else "")
    if typing.get_origin(kind) is list:
        return f"a list, each item {range_words(typing.get_args(kind)[0], False, limit)}"
    return range_words(kind, optional, limit)


def meaning(key: tuple[str, ...], comments: dict[str, str], origins: Origins) -> str:
    """The comment of the YAML file that gives the default, of another option of the group, or of the schema."""
    found = [origins.comment(key)]
    found += [Origins(lambda file=file: [file]).comment(key[1:]) for file in files_of(key[0]) if len(key) > 1]
    found += [comments.get(key[-1], "")]
    said = [text for text in found if text and not text.startswith("no effect with this")]
    return re.sub(r"\bNone\b", "null", said[0]) if said else ""


def comments_of(kind: type) -> dict[str, str]:
    """Field -> the comment behind it in the source of the schema."""
    found: dict[str, str] = {}
    name = ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(kind)).readline):
        if token.type == tokenize.NAME and token.line.startswith(f"    {token.string}") and token.start[1] == 4:
            name = token.string
        elif token.type == tokenize.COMMENT and name:
            found[name.rstrip("_")] = token.string.lstrip("# ")
    return found


@functools.cache
def files_of(group: str) -> list[SourceFile]:
    composer = Composer("train")
    files = [composer.source_file(f"{group}/{path.stem}") for path in sorted((conf_dir() / group).glob("*.yaml"))]
    return [file for file in files if file is not None]


def options_of(group: str) -> Iterator[str]:
    common = {"dataset": schema.Dataset, "optimizer": schema.Optimizer, "model": schema.Model}.get(group, schema.Target)
    for file in files_of(group):
        origins = Origins(lambda file=file: [file])
        data = {key: value for key, value in file.data.items() if key not in schema.hints(common) or key == "network"}
        rows = list(_arguments(data, file.data.get("_target_"), (), origins))
        if rows:
            lines = [line.lstrip("# ") for line in file.path.read_text(encoding="utf-8").splitlines()]
            yield f"### `{group}/{file.path.stem}`\n\n{lines[0]}\n\n{table(rows)}"


def _arguments(data: dict[str, Any], target: str | None, path: tuple[str, ...], origins: Origins) -> Iterator[Row]:
    """Rows of the keys of a node; a nested node with a `_target_` has its own signature."""
    signature = signature_of(target, None) if target and target != "???" else None
    for name, value in data.items():
        key = (*path, name)
        if name.startswith("_") or name == "defaults":
            continue
        if isinstance(value, dict) and value:
            yield from _arguments(value, value.get("_target_"), key, origins)
            continue
        parameter = signature.parameters.get(name) if signature else None
        words = ast.unparse(parameter.annotation) if parameter and parameter.annotation else ""
        if name in schema.hints(schema.Step) and not words:
            hint, optional = schema.split_optional(schema.hints(schema.Step)[name])
            words = range_words(hint, optional, schema.limits(schema.Step)[name])
        yield ".".join(key), words, shown(value), origins.comment(key)


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return "must be set" if value == "???" else str(value)


def table(rows: list[Row]) -> str:
    lines = ["| key | type and range | default | meaning |", "|---|---|---|---|"]
    for key, *cells in rows:
        words, default, said = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| `{key}` | {words} | {_code(default)} | {said} |")
    return "\n".join(lines) + "\n"


def _code(default: str) -> str:
    return default if default in ("-", "must be set", "see the options") else f"`{default}`"


def main() -> int:
    new = text()
    if "--check" in sys.argv[1:]:
        old = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
        if old != new:
            print(f"{FILE} is not up to date: python scripts/write_key_table.py", file=sys.stderr)
        return int(old != new)
    write_text(FILE, new)
    print(f"written: {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
