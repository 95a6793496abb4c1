"""Names of parameters by pattern: `model.24.*` is every name that begins with `model.24.`."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.suggest import nearest

_SHOWN = 12


def matching(names: Sequence[str], pattern: str, setting: str) -> list[str]:
    """The names that fit a pattern with the wildcards * (any text, dots too), ? and [...].

    setting: what the user wrote, for the error, such as `freeze=[model.0.*]`.

    Raises:
        ConfigError: no name fits; it tells the nearest ones.
    """
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise ConfigError(
            f"{setting}: no trained parameter of the network has a name that fits {pattern!r}.{_hint(names, pattern)}"
        )
    return found


def _hint(names: Sequence[str], pattern: str) -> str:
    beginnings = _beginnings(names)
    close = nearest(pattern, [*beginnings, *names])
    by_depth = [[item for item in beginnings if item.count(".") == depth] for depth in range(1, 5)]
    # as deep as the pattern is, so that what is listed can be typed; deeper where that is a single one
    shown = next((items for items in by_depth[max(pattern.count(".") - 1, 0) :] if len(items) > 1), list(names))
    more = f", ... ({len(shown)} in all)" if len(shown) > _SHOWN else ""
    hint = f" Did you mean {close!r}?" if close else ""
    return f"{hint} There are {', '.join(shown[:_SHOWN])}{more}; a name in full is {names[0]}."


def _beginnings(names: Sequence[str]) -> list[str]:
    """Every cell of the network as a pattern, in its order."""
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            found[f"{'.'.join(parts[:depth])}.*"] = None
    return list(found)
