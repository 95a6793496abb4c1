"""Where rules between settings are registered, and how they are applied to a plain nested dict.

A rule names the keys it needs. It is silent when one of them is absent (the eval configuration has fewer keys than the
train configuration) or already reported as wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., "str | None"]
_ERRORS: list[tuple[tuple[str, ...], Rule]] = []
_REMARKS: list[tuple[tuple[str, ...], Rule]] = []
_ABSENT = object()


def registered_errors(config: dict[str, Any]) -> list[str]:
    return _apply(_ERRORS, config)


def registered_remarks(config: dict[str, Any]) -> list[str]:
    return _apply(_REMARKS, config)


def _apply(rules: list[tuple[tuple[str, ...], Rule]], config: dict[str, Any]) -> list[str]:
    found = []
    for keys, rule in rules:
        values = [_get(config, key) for key in keys]
        text = None if any(value is _ABSENT for value in values) else rule(*values)
        if text:
            found.append(text)
    return found


def _get(config: Any, key: str) -> Any:
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return _ABSENT
        config = config[name]
    return config


def error(*keys: str) -> Callable[[Rule], Rule]:
    return _register(_ERRORS, keys)


def remark(*keys: str) -> Callable[[Rule], Rule]:
    return _register(_REMARKS, keys)


def _register(target: list[tuple[tuple[str, ...], Rule]], keys: tuple[str, ...]) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        target.append((keys, rule))
        return rule

    return add
