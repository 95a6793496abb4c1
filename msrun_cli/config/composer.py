"""Hydra's composition in pieces. Only this module and completion use names that Hydra does not promise to keep."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.paths import conf_dir
from msrun_cli.config.suggest import did_you_mean, listed


@dataclass(frozen=True)
class SourceFile:
    """One YAML file of a composition: `data` is its content, merged at the key `package` (a tuple of names)."""

    path: Path
    package: tuple[str, ...]
    data: dict[str, Any]


class Composer:
    """Composes `config_name` from the shipped folder and an optional folder of the user, without running anything."""

    def __init__(self, config_name: str, config_dir: str | None = None) -> None:
        version.setbase("1.3")
        setup_globals()
        search_path = create_config_search_path(str(conf_dir()))
        if config_dir is not None:
            folder = os.path.abspath(config_dir)
            if not os.path.isdir(folder):
                raise ConfigError(f"--config-dir {config_dir}: there is no folder {folder}.")
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
        self.config_name = config_name
        self.loader = ConfigLoaderImpl(search_path)
        self._parser = OverridesParser.create(config_loader=self.loader)

    def parse(self, override: str) -> Override:
        """Raises hydra.errors.OverrideParseException."""
        return self._parser.parse_overrides([override])[0]

    def compose(self, overrides: list[str], multirun: bool = False) -> DictConfig:
        """The configuration with its `hydra` node. Raises HydraException and yaml.YAMLError."""
        mode = RunMode.MULTIRUN if multirun else RunMode.RUN
        return self.loader.load_configuration(self.config_name, list(overrides), run_mode=mode)

    def is_group(self, key: str) -> bool:
        return self.loader.repository.group_exists(key)

    def has_option(self, group: str, option: str) -> bool:
        return self.loader.repository.config_exists(f"{group}/{option}")

    def options(self, group: str) -> list[str]:
        return self.loader.get_group_options(group)

    @functools.cached_property
    def groups(self) -> list[str]:
        """Groups that the primary configuration chooses from, as written on the command line. Raises ConfigError."""
        if not self.loader.repository.config_exists(self.config_name):
            names = [name for name in self.options("") if name != "_dummy_empty_config_"]
            hint = did_you_mean(self.config_name, names)
            raise ConfigError(f'there is no configuration "{self.config_name}".{hint} Available: {listed(names)}.')
        try:
            defaults = self.loader.compute_defaults_list(self.config_name, [], RunMode.RUN)
        except HydraException as error:
            raise ConfigError(" ".join(str(error).split("Config search path")[0].split())) from error
        except yaml.YAMLError as error:
            raise ConfigError(yaml_fault(error)) from error
        return [key for key in defaults.overrides.known_choices if not key.startswith("hydra/")]

    def files(self, overrides: list[str]) -> list[SourceFile]:
        """The YAML files of the composition in the order in which they are merged, Hydra's own left out."""
        try:
            defaults = self.loader.compute_defaults_list(self.config_name, list(overrides), RunMode.RUN).defaults
        except HydraException:
            return []
        found = []
        for default in defaults:
            path = default.config_path or ""
            if not path.startswith("hydra/"):
                package = tuple(part for part in (default.package or "").split(".") if part and part != "_global_")
                found.append(self.source_file(path, package))
        return [item for item in found if item is not None]

    def source_file(self, config_path: str, package: tuple[str, ...] = ()) -> SourceFile | None:
        """config_path: such as "model/yolov5n"."""
        loaded = self.loader.repository.load_config(config_path)
        if loaded is None or not isinstance(loaded.config, DictConfig):
            return None
        data: Any = OmegaConf.to_container(loaded.config, resolve=False)
        folder = loaded.path.removeprefix("file://")
        return SourceFile(Path(folder) / f"{config_path}.yaml", package, data if isinstance(data, dict) else {})


def yaml_fault(error: yaml.YAMLError) -> str:
    """One sentence with file and line."""
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name.strip()}, line {mark.line + 1}" if mark is not None else "a YAML file"
    return f"{place} is not valid YAML: {getattr(error, 'problem', None) or error}."
