"""What the builders do with errors of what they build."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from msrun_cli import build
from msrun_cli.common.errors import DataError


def test_an_error_for_users_is_not_wrapped_by_hydra():
    target = "msrun_cli.data.imagefolder.read_imagefolder"
    dataset = OmegaConf.create({"_target_": target, "root": "nowhere", "name": "x", "image_size": 32})
    with pytest.raises(DataError, match="no such folder"):
        build.build_data(dataset)
