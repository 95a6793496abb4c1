"""Everything that is looked at before the first job starts: composition, an evaluated run's settings, the check."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config import check, inherit, lenient, resume, schema
from msrun_cli.config.composer import Composer, SourceFile
from msrun_cli.config.origin import Origins

MAX_CHECKED_JOBS = 50


@dataclass
class Finding:
    """problems: paragraphs that stop the command; remarks: sentences that do not; configs: one per checked job.

    refused: Hydra itself would not compose the overrides.
    """

    refused: bool = False
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    configs: list[DictConfig] = field(default_factory=list)


def examine(composer: Composer, command: str, overrides: list[str], multirun: bool) -> Finding:
    """Compose and check every job that `overrides` stand for (in a sweep the first 50)."""
    finding = Finding()
    for job in jobs(composer, overrides) if multirun else [overrides]:
        composition = lenient.compose(composer, job)
        problems = list(composition.problems)
        finding.refused |= bool(problems)
        if composition.config is not None:
            try:
                notes = take_over_run(composition.config, job, composition.origins)
                problems += check.problems(composition.config, schema.ROOTS[command], composition.origins)
                finding.remarks += notes
                finding.remarks += [] if problems else check.remarks(composition.config)
            except ConfigError as error:
                problems.append(str(error))
            finding.configs.append(composition.config)
        finding.problems += problems
    finding.problems, finding.remarks = _unique(finding.problems), _unique(finding.remarks)
    return finding


def take_over_run(config: DictConfig, overrides: list[str], origins: Origins | None = None) -> list[str]:
    """For `checkpoint=` of an eval or `resume=` of a train configuration: the run's sections, in place.

    Returns notes for the user.
    """
    if isinstance(config.get("resume"), str):
        run, settings, names, notes = resume.take_over(config, overrides)
        _tell_origin(origins, run, settings, names)
        return notes
    if not isinstance(config.get("checkpoint"), str):
        return []
    checkpoint = config.checkpoint
    inherit.require_file("checkpoint", checkpoint)
    folder = inherit.run_folder(checkpoint)
    if folder is None:
        return [
            f"checkpoint={checkpoint} lies in no run folder (no config.yaml near it): the configuration is the "
            "composed one; give model=... and dataset=... to match."
        ]
    run_config = inherit.load_run_config(folder)
    taken = inherit.apply_run_config(config, run_config, overrides, inherit.recorded_choices(folder))
    _tell_origin(origins, folder, run_config, taken)
    return []


def _tell_origin(origins: Origins | None, folder: Path, run_config: DictConfig, taken: list[str]) -> None:
    if origins is not None:
        data = OmegaConf.to_container(run_config, resolve=False)
        kept = {str(key): value for key, value in data.items() if key in taken} if isinstance(data, dict) else {}
        origins.extra.append(SourceFile(folder / "config.yaml", (), kept))


def jobs(composer: Composer, overrides: list[str]) -> list[list[str]]:
    """Overrides of each job of a sweep, the last varying fastest; a continuous range is left to its sweeper."""
    choices: list[list[str]] = []
    for text in overrides:
        try:
            override = composer.parse(text)
        except HydraException:
            choices.append([text])
            continue
        if override.is_discrete_sweep():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        elif not override.is_sweep_override():
            choices.append([text])
    return [list(job) for job in itertools.islice(itertools.product(*choices), MAX_CHECKED_JOBS)]


def _unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))
