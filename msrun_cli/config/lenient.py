"""Composition that goes on after a fault, so that all faults are shown at once; Hydra alone stops at the first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.composer import Composer, yaml_fault
from msrun_cli.config.origin import Origins, short
from msrun_cli.config.suggest import did_you_mean, listed, nearest

_REPAIRS = 10


@dataclass
class Composition:
    """config is None when nothing could be composed."""

    config: DictConfig | None
    problems: list[str] = field(default_factory=list)
    origins: Origins = field(default_factory=Origins)


def compose(composer: Composer, overrides: list[str]) -> Composition:
    """Overrides that Hydra would refuse are reported and left out, one by one."""
    parsed, problems = _parse(composer, overrides)
    texts = [str(override.input_line) for override in parsed]
    try:
        config, texts = _compose_repaired(composer, texts, problems)
        if config is None:
            texts = _without_refused(composer, parsed, texts, problems)
            config, texts = _compose_repaired(composer, texts, problems)
    except ConfigError as error:
        return Composition(None, [*problems, str(error)])
    if config is None and not problems:
        problems.append(f"the configuration cannot be composed: {_reason(composer, texts)}")
    values = [item for item in parsed if not composer.is_group(item.key_or_group) or isinstance(item.value(), dict)]
    return Composition(config, problems, Origins(lambda: composer.files(texts), values))


def _parse(composer: Composer, overrides: list[str]) -> tuple[list[Override], list[str]]:
    parsed, problems = [], []
    for text in overrides:
        try:
            override = composer.parse(text)
        except HydraException as error:
            problems.append(_syntax(text, error))
            continue
        problem = _sweep_problem(override) or _group_problem(composer, override)
        if problem:
            problems.append(problem)
        else:
            parsed.append(override)
    return parsed, problems


def _syntax(text: str, error: HydraException) -> str:
    if "=" not in text and not text.startswith("~"):
        return f'"{text}" is no override: write KEY=VALUE, such as epochs=10.'
    reason = " ".join(str(error).split("\nSee https")[0].split())
    key, _, value = text.partition("=")
    return (
        f"override `{text}` cannot be read: {reason}. Values with blanks, commas, brackets or = are quoted twice: "
        f"'{key}=\"{value}\"'."
    )


def _sweep_problem(override: Override) -> str | None:
    if not override.is_sweep_override():
        return None
    key, _, value = str(override.input_line).partition("=")
    return f"`{key}={value}` holds several values: add -m to run one job for each, or write {key}=[{value}] for a list."


def _group_problem(composer: Composer, override: Override) -> str | None:
    group, value = override.key_or_group, override.value()
    if not composer.is_group(group) or isinstance(value, dict) or group.startswith("hydra"):
        return None
    where = f"(command line: {override.input_line})"
    if override.is_delete():
        return None
    if value is None:
        return f"{group} {where} chooses a file and cannot be null; leave it out with ~{group}."
    known = composer.groups
    key = override.get_key_element().lstrip("+")
    if not override.is_add() and key not in known:
        same = [item for item in known if item.split("@")[0] == group]
        return f'"{key}" {where} is not chosen anywhere.{did_you_mean(key, same or known)} Groups: {listed(known)}.'
    options = composer.options(group)
    wrong = [str(item) for item in (value if isinstance(value, list) else [value])]
    wrong = [item for item in wrong if not composer.has_option(group, item)]
    if not wrong:
        return None
    return f'{group} has no option "{wrong[0]}" {where}.{did_you_mean(wrong[0], options)} Options: {listed(options)}.'


def _compose_repaired(composer: Composer, texts: list[str], problems: list[str]) -> tuple[DictConfig | None, list[str]]:
    """Compose; a YAML file that names an option which does not exist is reported and the nearest option is used."""
    for _ in range(_REPAIRS):
        try:
            return composer.compose(texts), texts
        except MissingConfigException as error:
            repair = _repair(composer, texts, error, problems)
            if repair is None or repair in texts:
                return None, texts
            texts = [*texts, repair]
        except (HydraException, ValueError, TypeError):
            return None, texts
        except yaml.YAMLError as error:
            raise ConfigError(yaml_fault(error)) from error
    return None, texts


def _repair(composer: Composer, texts: list[str], error: MissingConfigException, problems: list[str]) -> str | None:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    options = list(error.options or [])
    if not group or not options:
        return None
    place, key = _choosing_line(composer, texts, group, option)
    hint = did_you_mean(option, options)
    problems.append(f'{place} chooses {key} "{option}", which does not exist.{hint} Options: {listed(options)}.')
    return f"{key}={nearest(option, options) or options[0]}"


def _choosing_line(composer: Composer, texts: list[str], group: str, option: str) -> tuple[str, str]:
    """(file and line, group with its package) of the defaults list that names the option."""
    chosen = [composer.parse(text) for text in texts]
    names = [f"{item.key_or_group}/{item.value()}" for item in chosen if composer.is_group(item.key_or_group)]
    pattern = re.compile(rf"/?\b({re.escape(group)}(?:@[\w.]+)?)\s*:\s*[\"']?{re.escape(option)}\b")
    for name in [composer.config_name, *names]:
        file = composer.source_file(name)
        for number, line in enumerate(file.path.read_text(encoding="utf-8").splitlines() if file else [], start=1):
            match = pattern.search(line)
            if file and match:
                return f"{short(file.path)}, line {number},", match.group(1)
    return f"{composer.config_name}.yaml", group


def _without_refused(composer: Composer, parsed: list[Override], texts: list[str], problems: list[str]) -> list[str]:
    """Find the overrides that do not compose; each gets its own paragraph."""
    groups = [item for item in parsed if composer.is_group(item.key_or_group) and not isinstance(item.value(), dict)]
    base_texts = [str(item.input_line) for item in groups]
    base_texts += [text for text in texts if text not in [str(item.input_line) for item in parsed]]
    good = [text for text in base_texts if _reason(composer, [text]) is None]
    problems += [f"`{text}`: {_reason(composer, [text])}" for text in base_texts if text not in good]
    base = _try(composer, good)
    for override in [item for item in parsed if item not in groups]:
        text = str(override.input_line)
        reason = _reason(composer, [*good, text])
        if reason is None:
            good.append(text)
        else:
            problems.append(_refused(composer, override, base) or f"`{text}`: {reason}")
    return good


def _refused(composer: Composer, override: Override, base: DictConfig | None) -> str | None:
    """The paragraph for a key that the configuration does not have."""
    parts, node = override.key_or_group.split("."), base
    if override.is_add() or override.is_force_add() or base is None:
        return None
    for position, part in enumerate(parts):
        keys = [str(key) for key in node if key != "hydra" or position] if isinstance(node, DictConfig) else []
        if part in keys or (part == "hydra" and not position):
            node = None if node is None or OmegaConf.is_missing(node, part) else node._get_node(part)  # type: ignore[assignment]
            continue
        valid = keys if position else sorted({*keys, *composer.groups})
        above = ".".join(parts[:position])
        hint = did_you_mean(part, valid, above) or _same_leaf(base, parts[-1])
        where = f"(command line: {override.input_line})"
        if not keys:
            return f'unknown key "{override.key_or_group}" {where}: "{above}" has no keys below it.'
        here = f'Keys of "{above}"' if position else "Keys and groups"
        listing = "" if hint and not position else f" {here}: {listed(valid)}."
        return f'unknown key "{".".join(parts[: position + 1])}" {where}.{hint}{listing}'
    return None


def _same_leaf(base: DictConfig, name: str) -> str:
    """People type `lr=0.1` for optimizer.lr."""
    found: list[str] = []

    def visit(node: dict[object, object], path: tuple[str, ...]) -> None:
        for key, value in node.items():
            if path and key == name:
                found.append(".".join((*path, str(key))))
            if isinstance(value, dict) and key != "hydra":
                visit(value, (*path, str(key)))

    data: Any = OmegaConf.to_container(base, resolve=False)
    visit(data if isinstance(data, dict) else {}, ())
    return f' Did you mean "{min(found, key=len)}"?' if found else ""


def _try(composer: Composer, texts: list[str]) -> DictConfig | None:
    try:
        return composer.compose(texts)
    except (HydraException, ValueError, TypeError, yaml.YAMLError):
        return None


def _reason(composer: Composer, texts: list[str]) -> str | None:
    """Why these overrides do not compose, in one line; None when they do."""
    try:
        composer.compose(texts)
    except yaml.YAMLError as error:
        return yaml_fault(error)
    except (HydraException, ValueError, TypeError) as error:
        cause = f"{error} {error.__cause__ or ''}".split("\nConfig search path")[0].split("full_key:")[0]
        return " ".join(cause.split())
    return None
