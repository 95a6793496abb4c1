"""What the user typed -> the overrides that Hydra gets."""

from __future__ import annotations

from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode

from msrun_cli.config import resume
from msrun_cli.config.composer import Composer
from msrun_cli.config.inherit import inherited_choices

_LISTS = ("profile.amp",)  # `profile.amp=O0,O2` is one list; without brackets Hydra takes it for two jobs of a sweep


def prepared(composer: Composer, overrides: list[str], multirun: bool = False) -> tuple[list[str], list[str]]:
    """`+experiment=x` becomes `experiment=x`; the group choices of an evaluated or resumed run stand first; notes."""
    try:
        groups = composer.groups
        typed = [
            text[1:] if text.startswith("+") and text[1:].partition("=")[0] in groups else text
            for text in (_quoted(composer, text if multirun else _listed(text)) for text in overrides)
        ]
        inherited = inherited_choices(typed) if composer.is_group("model") else []
        offered = [item.partition("=") for item in inherited]
        known = [
            f"{key}={option}"
            for key, _, option in offered
            if key == "name" or composer.has_option(key.split("@")[0], option)
        ]
        return resume.prepared(composer, known + typed, multirun)
    except HydraException:  # said better by the examination
        return overrides, []


def _quoted(composer: Composer, text: str) -> str:
    """The override, its value in quotes where Hydra's grammar wants them: paths with blanks or Chinese characters."""
    key, equals, value = text.partition("=")
    try:
        composer.parse(text)
    except OverrideParseException:
        if equals and value and not set(value) & set("\"'{}[]()$,"):
            return f'{key}="{value}"'
    return text


def _listed(text: str) -> str:
    """The override, its value in brackets where the key holds a list."""
    key, equals, value = text.partition("=")
    if key not in _LISTS or not value or value[0] in "[$" or value == "null":
        return text
    return f"{key}{equals}[{value}]"


def configured_sweep(composer: Composer, overrides: list[str]) -> bool:
    """Several values without -m are right where the configuration itself asks for a sweep (hydra.mode: MULTIRUN)."""
    try:
        if not any(composer.parse(text).is_sweep_override() for text in overrides):
            return False
        return bool(composer.compose(overrides, multirun=True).hydra.mode == RunMode.MULTIRUN)
    except Exception:  # whatever it is, the examination names it
        return False
