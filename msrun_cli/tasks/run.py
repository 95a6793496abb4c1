"""What every recipe starts with: the run folder and the log."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.inherit import run_record
from msrun_cli.environment.run_start import remarks, run_facts
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.log import start_log
from msrun_cli.runtime.run_folder import RunFolder, open_run_folder, write_environment

log = logging.getLogger("msrun")


def start_run(cfg: DictConfig) -> RunFolder:
    """Open the run folder that Hydra chose and send the log to it.

    In one of several processes the folder is there already; rank 0 alone writes its log into it, what the others say
    goes to their own files.
    """
    rank = rank_environment.rank()
    if rank is None:
        run = create_run(cfg)
    else:
        run = RunFolder(Path(os.environ[rank_environment.RUN_FOLDER]))
    start_log(None if rank else run.log)
    if not rank:
        for remark in remarks(cfg.device.target):
            log.warning("%s", remark)
    return run


def create_run(cfg: DictConfig, root: Path | None = None) -> RunFolder:
    """The run folder with config.yaml, overrides.yaml and environment.json. root: None = as Hydra chose it."""
    return open_run_folder(
        root or HydraConfig.get().runtime.output_dir,
        OmegaConf.to_yaml(cfg, resolve=True),
        OmegaConf.to_yaml(OmegaConf.create(run_record(cfg))),
        run_facts(cfg.device.target),
    )


def describe_host(run: RunFolder, node: int, target: str) -> None:
    """What `create_run` and the log of rank 0 say of their host, for another one: a file in logs/, and lines on stderr.

    Raises ConfigError when the folder cannot be written.
    """
    path = run.logs / f"environment_{node}.json"
    try:
        write_environment(path, run_facts(target))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}). Set output_dir to a folder of yours."
        ) from error
    for remark in remarks(target):
        print(f"warning: host {node}: {remark}", file=sys.stderr, flush=True)
