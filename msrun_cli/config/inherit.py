"""`eval checkpoint=RUN/checkpoints/best.ckpt` takes over the configuration of the run; the user's overrides win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from msrun_cli.common.errors import CheckpointError, ConfigError
from msrun_cli.config.suggest import nearest

# Group on the command line -> section of the configuration. The device is this machine's, not the run's.
GROUPS = {
    "task": "task",
    "dataset": "dataset",
    "transforms@eval_transforms": "eval_transforms",
    "model": "model",
    "amp": "amp",
    "evaluator": "evaluator",
}
KEYS = ("image_size", "batch_size")


def run_record(config: DictConfig) -> dict[str, Any]:
    """What a job writes as overrides.yaml: option of each group, and the overrides as typed. Only inside a job."""
    del config  # the composition knows more than the configuration
    hydra = HydraConfig.get()
    choices = {str(key): value for key, value in hydra.runtime.choices.items() if not str(key).startswith("hydra/")}
    return {"choices": choices, "overrides": [str(text) for text in hydra.overrides.task]}


def run_folder(checkpoint: str) -> Path | None:
    """The run that a checkpoint belongs to: the nearest folder above it with a config.yaml, at most two levels up."""
    path = Path(checkpoint).expanduser().absolute()
    for folder in path.parents[:2]:
        if (folder / "config.yaml").is_file():
            return folder
    return None


def checkpoints_of(overrides: Sequence[str]) -> list[str]:
    """Values of `checkpoint=` (several in a sweep)."""
    values: list[str] = []
    for override in parsed(overrides):
        if override.key_or_group == "checkpoint" and not override.is_delete():
            found = (
                [str(item) for item in override.sweep_iterator()] if override.is_choice_sweep() else [override.value()]
            )
            values = [str(item) for item in found if item is not None]
    return values


def inherited_choices(overrides: Sequence[str]) -> list[str]:
    """Group overrides of the run, to stand before the user's; in a sweep over checkpoints those that all runs share."""
    chosen = [set(_recorded_choices(checkpoint).items()) for checkpoint in checkpoints_of(overrides)]
    if not chosen:
        return []
    own = {group_key(override) for override in parsed(overrides)}
    shared = dict(set.intersection(*chosen))
    inherited = [f"{group}={shared[group]}" for group in GROUPS if group in shared and group not in own]
    names = {_run_name(checkpoint) for checkpoint in checkpoints_of(overrides)} - {None}
    if len(names) == 1 and not own & {"name", "dataset", "model"}:
        inherited.append(f'name="{names.pop()}"')  # the folder of the evaluation is called like the run
    return inherited


def load_run_config(folder: Path) -> DictConfig:
    """Raises ConfigError for a damaged file."""
    path = folder / "config.yaml"
    try:
        loaded = OmegaConf.load(path)
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"the run's configuration {path} cannot be read: {error}") from error
    if not isinstance(loaded, DictConfig):
        raise ConfigError(f"the run's configuration {path} must hold a section of keys.")
    return loaded


def apply_run_config(
    config: DictConfig,
    run_config: DictConfig,
    overrides: Sequence[str],
    run_choices: dict[str, str] | None = None,
    groups: Mapping[str, str] = GROUPS,
    keys_taken: Sequence[str] = KEYS,
) -> list[str]:
    """Put the run's sections into a configuration, in place; returns the names that were taken.

    A group override of the user keeps the composed section, unless it names the option that the run had; an override
    of one key changes that key of the run's section.
    """
    user = parsed(overrides)
    kept = {groups[group_key(item)] for item in user if _replaces(item, run_choices or {}, groups)}
    keys = {item.key_or_group for item in user}
    taken = [name for name in (*groups.values(), *keys_taken) if name in run_config and name in config]
    taken = [name for name in taken if name not in kept and not (name in keys_taken and name in keys)]
    if "dataset.image_size" in keys and "image_size" in taken:
        taken.remove("image_size")  # it follows the dataset's
    with flag_override(config, ["struct", "readonly"], False):
        for name in taken:
            config[name] = run_config[name]
        for item in user:
            if item.key_or_group.split(".")[0] in taken and not item.is_sweep_override():
                _set(config, item, groups)
    return taken


def recorded_choices(folder: Path, groups: Mapping[str, str] = GROUPS) -> dict[str, str]:
    """Group -> option from overrides.yaml; empty when the file is missing or unreadable."""
    choices = _recorded(folder).get("choices") or {}
    return {str(key): str(value) for key, value in choices.items() if value is not None and key in groups}


def recorded_overrides(folder: Path) -> list[str]:
    """The overrides as typed, from overrides.yaml; empty when the file is missing or unreadable."""
    return [str(text) for text in _recorded(folder).get("overrides") or ()]


def _recorded(folder: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load((folder / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def flat(container: Any) -> dict[str, object]:
    """{dotted key: value} of nested dicts."""
    values: dict[str, object] = {}

    def walk(node: object, path: str) -> None:
        if isinstance(node, dict) and node:
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else str(key))
        else:
            values[path] = node

    walk(container, "")
    return values


def require_file(key: str, value: str) -> None:
    """Raises CheckpointError when `value` is no file, naming what is near it."""
    path = Path(value).expanduser()
    if path.is_file():
        return
    if path.is_dir():
        inside = sorted(str(item.relative_to(path)) for item in path.rglob("*.ckpt"))[:5]
        what = f"it holds {', '.join(inside)}" if inside else "it holds no .ckpt file"
        raise CheckpointError(f"{key}={value} is a folder ({what}). Give the file itself.")
    folder = path.parent
    if not folder.is_dir():
        raise CheckpointError(f"{key}={value}: no such file; there is no folder {folder.absolute()} either.")
    names = sorted(item.name for item in folder.iterdir() if item.is_file())
    weights = [name for name in names if name.endswith((".ckpt", ".pt", ".pth", ".safetensors", ".npz"))]
    close = nearest(path.name, weights or names)
    hint = f' Did you mean "{folder / close}"?' if close else ""
    there = f" Files there: {', '.join((weights or names)[:8])}." if names else f" The folder {folder} is empty."
    raise CheckpointError(f"{key}={value}: no such file.{hint}{there}")


def _recorded_choices(checkpoint: str) -> dict[str, str]:
    folder = run_folder(checkpoint)
    return recorded_choices(folder) if folder else {}


def _run_name(checkpoint: str) -> str | None:
    folder = run_folder(checkpoint)
    try:
        return str(load_run_config(folder)["name"]).replace('"', "") if folder else None
    except (ConfigError, OmegaConfBaseException, KeyError):  # a fault of that file is said by the check
        return None


def parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(overrides))


def group_key(override: Override) -> str:
    return override.get_key_element().lstrip("+~")


def _replaces(override: Override, run_choices: dict[str, str], groups: Mapping[str, str]) -> bool:
    group = group_key(override)
    return (
        group in groups and not isinstance(override.value(), dict) and str(override.value()) != run_choices.get(group)
    )


def _set(config: DictConfig, override: Override, groups: Mapping[str, str]) -> None:
    if override.is_delete():
        parent, _, name = override.key_or_group.rpartition(".")
        node = OmegaConf.select(config, parent) if parent else config
        if node is not None and name in node:
            del node[name]
    elif group_key(override) not in groups or isinstance(override.value(), dict):
        OmegaConf.update(config, override.key_or_group, override.value(), merge=True, force_add=True)
