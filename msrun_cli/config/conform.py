"""A checked configuration is brought to the types that `schema` declares."""

from __future__ import annotations

import os
import typing
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, flag_override

from msrun_cli.config.schema import hints, limits, split_optional


def conform(config: DictConfig, schema: type) -> DictConfig:
    """Bring a checked configuration to the declared types, in place: 1 -> 1.0, `sink: true` -> "on", `~` expanded."""
    with flag_override(config, ["struct", "readonly"], False):
        for name, hint in hints(schema).items():
            kind, _ = split_optional(hint)
            if name not in config or OmegaConf.is_missing(config, name) or config[name] is None:
                continue
            if is_dataclass(kind) and isinstance(config[name], DictConfig):
                conform(config[name], typing.cast(type, kind))
            else:
                _conform_value(config, name, kind, limits(schema)[name])
    return config


def _conform_value(config: DictConfig, name: str, kind: Any, limit: dict[str, Any]) -> None:
    value = config[name]
    if kind is float and isinstance(value, int):
        config[name] = float(value)
    elif isinstance(value, bool) and "on" in (limit.get("choices") or ()):
        config[name] = "on" if value else "off"
    elif limit.get("path") and isinstance(value, str) and value.startswith("~"):
        config[name] = os.path.expanduser(value)
