"""What --cfg prints."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.suggest import did_you_mean, listed


def print_job(config: DictConfig, package: str | None, *, resolve: bool) -> None:
    """What the task gets, an evaluated run's settings included, which Hydra's own --cfg does not know."""
    keys = [str(key) for key in config if key != "hydra"]
    part = OmegaConf.select(config, package) if package else OmegaConf.masked_copy(config, keys)
    if OmegaConf.is_config(part):
        if package:
            print(f"# @package {package}")
        print(OmegaConf.to_yaml(part, resolve=resolve), end="")
    else:
        print(part)


def require_part(package: str | None, configs: list[DictConfig]) -> None:
    """Raises:
    ConfigError: --package names a part that the configuration does not have.
    """
    if package is None or package in ("_global_", "") or not configs:
        return
    if OmegaConf.select(configs[0], package, default="") == "":
        keys = [str(key) for key in configs[0]]
        raise ConfigError(
            f"--package {package}: there is no such part.{did_you_mean(package, keys)} Parts: {listed(keys)}."
        )
