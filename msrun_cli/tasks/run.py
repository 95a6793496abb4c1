"""What every recipe starts with: the run folder and the log."""

from __future__ import annotations

import logging

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from msrun_cli.config.inherit import run_record
from msrun_cli.environment.run_start import remarks, run_facts
from msrun_cli.runtime.log import start_log
from msrun_cli.runtime.run_folder import RunFolder, open_run_folder

log = logging.getLogger("msrun")


def start_run(cfg: DictConfig) -> RunFolder:
    """Open the run folder that Hydra chose and send the log to it."""
    run = open_run_folder(
        HydraConfig.get().runtime.output_dir,
        OmegaConf.to_yaml(cfg, resolve=True),
        OmegaConf.to_yaml(OmegaConf.create(run_record(cfg))),
        run_facts(cfg.device.target),
    )
    start_log(run.log)
    for remark in remarks(cfg.device.target):
        log.warning("%s", remark)
    return run
