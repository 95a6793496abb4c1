"""What the builders do with errors of what they build."""

from __future__ import annotations

import logging

import mindspore as ms
import pytest
from omegaconf import OmegaConf

from msrun_cli import build
from msrun_cli.common.errors import DataError
from msrun_cli.engine.checkpoint import save_checkpoint
from msrun_cli.models.weight_file import read_weights


def test_an_error_for_users_is_not_wrapped_by_hydra():
    target = "msrun_cli.data.imagefolder.read_imagefolder"
    dataset = OmegaConf.create({"_target_": target, "root": "nowhere", "name": "x", "image_size": 32})
    with pytest.raises(DataError, match="no such folder"):
        build.build_data(dataset)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [(["a", "b", "c"], ""), (["a", "x", "c"], "said"), (["a", "c", "b"], "error"), (["a", "b"], "said"), (None, "")],
)
def test_class_names_of_a_checkpoint_are_compared(stored, outcome, tmp_path, caplog):
    path = tmp_path / "权重 last.ckpt"
    if stored is None:
        ms.save_checkpoint([{"name": "w", "data": ms.Tensor([1.0])}], str(path))
    else:
        save_checkpoint(path, [ms.Parameter(ms.Tensor([1.0]), name="w")], stored)
    if outcome == "error":
        with pytest.raises(DataError, match='class 1 is "c" there and "b" here'):
            build.check_class_names(str(path), ("a", "b", "c"))
        return
    with caplog.at_level(logging.WARNING, "msrun"):
        build.check_class_names(str(path), ("a", "b", "c"))
    assert bool(caplog.text) == (outcome == "said")
    assert read_weights(path)["w"].tolist() == [1.0]  # the names are no weight
