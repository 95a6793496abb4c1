"""What every recipe starts with: the run folder and the log."""

from __future__ import annotations

import os
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from msrun_cli.config.inherit import run_record
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.log import start_log
from msrun_cli.runtime.run_folder import RunFolder, open_run_folder


def start_run(cfg: DictConfig) -> RunFolder:
    """Open the run folder that Hydra chose and send the log to it.

    In one of several processes the folder is there already; rank 0 alone writes its log into it, what the others say
    goes to their own files.
    """
    rank = rank_environment.rank()
    if rank is not None:
        run = RunFolder(Path(os.environ[rank_environment.RUN_FOLDER]))
        start_log(run.log if rank == 0 else None)
        return run
    run = create_run(cfg)
    start_log(run.log)
    return run


def create_run(cfg: DictConfig, root: Path | None = None) -> RunFolder:
    """The run folder with config.yaml, overrides.yaml and environment.json. root: None = as Hydra chose it."""
    return open_run_folder(
        root or HydraConfig.get().runtime.output_dir,
        OmegaConf.to_yaml(cfg, resolve=True),
        OmegaConf.to_yaml(OmegaConf.create(run_record(cfg))),
    )
