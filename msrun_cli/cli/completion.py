"""Completion of overrides: Hydra knows the groups, options and keys, Typer knows the shells."""

from __future__ import annotations

import os
import shlex
from typing import Any

_VALUE_OPTIONS = {
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--info",
    "-i",
    "--config-name",
    "-cn",
    "--config-dir",
    "-cd",
    "--save",
}


def complete_override(ctx: Any, incomplete: str) -> list[str]:
    """Continuations of the word under the cursor; empty on any fault, since a shell has no place for errors."""
    try:
        return _complete(str(ctx.info_name), incomplete)
    except Exception:
        return []


def _complete(command: str, incomplete: str) -> list[str]:
    words, current = _words(incomplete)
    overrides, config_name, config_dir = _split(command, words)
    found = query(config_name or command, config_dir, overrides, current)
    # Bash takes "=" for a word boundary and only replaces what stands after it.
    cut = current.rfind("=") + 1 if os.environ.get("COMP_WORDS") is not None and "=" in current else 0
    return [item[cut:] for item in found if item.startswith(current)]


def query(config_name: str, config_dir: str | None, overrides: list[str], current: str) -> list[str]:
    """Whole words that may stand in place of `current`, after the given overrides."""
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin

    from msrun_cli.config.composer import Composer

    plugin = DefaultCompletionPlugin(Composer(config_name, config_dir).loader)
    found = plugin._query(config_name=config_name, line=" ".join([*overrides, current]))
    return [item for item in found if not item.lstrip("+~").startswith("hydra") or current.lstrip("+~").startswith("h")]


def _words(incomplete: str) -> tuple[list[str], str]:
    """(words before the cursor, the word under it), with `key`, `=`, `value` joined again."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    cword = os.environ.get("COMP_CWORD")
    if cword is not None:
        words = words[: int(cword) + 1]
    joined = _joined(words[1:])
    if joined and (joined[-1] == incomplete or joined[-1].endswith(f"={incomplete}")) and not line.endswith(" "):
        return joined[:-1], joined[-1]
    return joined, incomplete


def _joined(words: list[str]) -> list[str]:
    joined: list[str] = []
    glue = False
    for word in words:
        if joined and (glue or word == "=" or word.startswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
        glue = word.endswith("=")
    return joined


def _split(command: str, words: list[str]) -> tuple[list[str], str | None, str | None]:
    """(overrides, --config-name, --config-dir) of the words behind the command."""
    rest = words[words.index(command) + 1 :] if command in words else words
    overrides, named = [], dict[str, str]()
    position = 0
    while position < len(rest):
        word = rest[position]
        if word in _VALUE_OPTIONS:
            named[word] = rest[position + 1] if position + 1 < len(rest) else ""
            position += 1
        elif not word.startswith("-"):
            overrides.append(word)
        position += 1
    return overrides, named.get("--config-name", named.get("-cn")), named.get("--config-dir", named.get("-cd"))
