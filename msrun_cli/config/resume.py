"""`train resume=...` goes on in the folder of a run, with the run's configuration; the user's overrides win."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import CheckpointError, ConfigError
from msrun_cli.config import inherit

if TYPE_CHECKING:
    from msrun_cli.config.composer import Composer

# Group on the command line -> section of the configuration.
GROUPS = {
    **inherit.GROUPS,
    "transforms@train_transforms": "train_transforms",
    "loss": "loss",
    "loss_scale": "loss_scale",
    "device": "device",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "ema": "ema",
    "saving@checkpoint": "checkpoint",
    "logger": "logger",
    "launch": "launch",
    "parallel": "parallel",
}
_WHOLE = ("experiment", "debug", "recipe")  # groups that set everything
_RUN_FOLDER = "hydra.run.dir"


def prepared(composer: Composer, overrides: Sequence[str], multirun: bool = False) -> tuple[list[str], list[str]]:
    """The overrides with `resume` naming a file, the run's choices before and its folder behind; and notes.

    Raises CheckpointError when there is nothing to go on from, ConfigError when an override does not go with resume.
    """
    user = inherit.parsed(overrides)
    wanted = next((item for item in user if item.key_or_group == "resume"), None)
    if wanted is None or wanted.is_delete() or wanted.value() is None:
        return list(overrides), []
    if multirun or any(item.is_sweep_override() for item in user):
        raise ConfigError("resume does not go with -m or several values: a run goes on alone, in its own folder.")
    others = [text for text, item in zip(overrides, user, strict=True) if item is not wanted]
    keys = {inherit.group_key(item) for item in user}
    for name in _WHOLE:
        if name in keys:
            raise ConfigError(f"{name}=... does not go with resume: the run has its configuration. Set single keys.")
    value = str(wanted.value())
    file = _newest(composer, others) if value == "auto" else checkpoint_file(value)
    if file is None:
        return others, ["resume=auto: there is no run of this name to go on with, so this is a new one."]
    folder = run_of(file, value)
    choices = inherit.recorded_choices(folder, _taken_groups(overrides))
    inherited = [
        f"{group}={option}"
        for group, option in choices.items()
        if group not in keys and composer.has_option(group.split("@")[0], option)
    ]
    place = [] if _RUN_FOLDER in keys else [f"{_RUN_FOLDER}={_quoted(folder)}"]
    return [*inherited, *others, f"resume={_quoted(file)}", *place], []


def checkpoint_file(value: str) -> Path:
    """The checkpoint that resume=VALUE means: a run folder's newest, or the file itself."""
    path = Path(value).expanduser().absolute()
    if not path.is_dir():
        inherit.require_file("resume", value)
        return path
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    found = newest_of(folder)
    if found is None:
        raise CheckpointError(
            f"resume={value}: there is no checkpoint (last.ckpt) in {folder}. Give the folder of a run that has saved "
            "one, or a checkpoint file."
        )
    return found


def newest_of(checkpoints: Path) -> Path | None:
    """last.ckpt, or the newest file where it is missing."""
    if (checkpoints / "last.ckpt").is_file():
        return checkpoints / "last.ckpt"
    files = sorted(checkpoints.glob("[!.]*.ckpt"), key=lambda file: file.stat().st_mtime)  # none half written
    return files[-1] if files else None


def run_of(file: Path, value: str) -> Path:
    folder = inherit.run_folder(str(file))
    if folder is None:
        raise CheckpointError(
            f"resume={value} lies in no run folder (no config.yaml near it), so nobody knows its settings. To start a "
            f"new training from its weights, use weights={value}."
        )
    return folder


def _newest(composer: Composer, overrides: Sequence[str]) -> Path | None:
    """For resume=auto: the newest checkpoint of the runs that these overrides would stand beside."""
    config = composer.compose(list(overrides))
    folder = Path(str(config.output_dir)).expanduser() / "train" / str(config.name)
    found = [newest_of(run / "checkpoints") for run in folder.glob("*") if (run / "config.yaml").is_file()]
    files = sorted((file for file in found if file is not None), key=lambda file: file.stat().st_mtime)
    return files[-1].absolute() if files else None


def take_over(config: DictConfig, overrides: Sequence[str]) -> tuple[Path, DictConfig, list[str], list[str]]:
    """Put the run's settings into a train configuration, in place.

    Returns the run's folder, its configuration, the names that were taken, and a note of what differs from the run.
    """
    folder = run_of(Path(config.resume), config.resume)
    run_config = inherit.load_run_config(folder)
    groups = _taken_groups(overrides)
    keys = [str(key) for key in config if str(key) not in ("hydra", "resume", *GROUPS.values())]
    taken = inherit.apply_run_config(
        config, run_config, overrides, inherit.recorded_choices(folder, groups), groups, keys
    )
    old, new = _own(run_config), _own(config)
    _refuse_other_freeze(folder, old.get("freeze") or [], new.get("freeze") or [])
    changes = [
        f"{key}={new.get(key)} (was {old.get(key)})" for key in sorted(old | new) if old.get(key) != new.get(key)
    ]
    return folder, run_config, taken, [f"resuming {folder} with changes: {', '.join(changes)}"] if changes else []


def _taken_groups(overrides: Sequence[str]) -> dict[str, str]:
    """A new launch chooses the parallel mode, as in a new run."""
    keys = {inherit.group_key(item) for item in inherit.parsed(overrides)}
    return {group: name for group, name in GROUPS.items() if group != "parallel" or "launch" not in keys}


def _refuse_other_freeze(folder: Path, old: object, new: object) -> None:
    """A parameter that was frozen has no optimizer state to go on with; one that was trained would lose it."""
    if old != new:
        raise ConfigError(
            f"freeze={_listed(new)} does not go with resume: {folder} was trained with freeze={_listed(old)}, and its "
            "checkpoints hold the optimizer state of those parameters. Leave freeze out, or start a new run from its "
            f"weights: weights={folder / 'checkpoints' / 'last.ckpt'} freeze={_listed(new)}."
        )


def _listed(patterns: object) -> str:
    return f"[{','.join(map(str, patterns))}]" if isinstance(patterns, list) else str(patterns)


def _own(config: DictConfig) -> dict[str, object]:
    """{dotted key: value}, without what is not the run's own."""
    own = [str(key) for key in config if key not in ("hydra", "resume")]
    return inherit.flat(OmegaConf.to_container(OmegaConf.masked_copy(config, own), resolve=True))


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
