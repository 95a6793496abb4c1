"""What the builders do with errors of what they build, and with checkpoints of other classes."""

from __future__ import annotations

import logging

import mindspore as ms
import pytest
from omegaconf import OmegaConf

from msrun_cli.builders.data import build_data
from msrun_cli.builders.network import check_class_names
from msrun_cli.common.errors import DataError
from msrun_cli.engine.checkpoint import save_checkpoint


def test_an_error_for_users_is_not_wrapped_by_hydra():
    target = "msrun_cli.data.imagefolder.read_imagefolder"
    dataset = OmegaConf.create({"_target_": target, "root": "nowhere", "name": "x", "on_bad_sample": "skip"})
    with pytest.raises(DataError, match="no such folder"):
        build_data(dataset)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        (["a", "b", "c"], ""),
        (["a", "x", "c"], 'class 1 is "x" there and "b" here'),
        (["a", "c", "b"], "error"),
        (["a", "b"], 'class 2 is missing there and "c" here'),
        (["a", "b", "c", "d"], 'class 3 is "d" there and missing here'),
        (None, ""),
    ],
)
def test_class_names_of_a_checkpoint_are_compared(stored, outcome, tmp_path, caplog):
    path = tmp_path / "权重 last.ckpt"
    if stored is None:
        ms.save_checkpoint([{"name": "w", "data": ms.Tensor([1.0])}], str(path))
    else:
        save_checkpoint(path, [("w", ms.Tensor([1.0]))], {"classes": stored})
    if outcome == "error":
        with pytest.raises(DataError, match='class 1 is "c" there and "b" here.*another order'):
            check_class_names(str(path), ("a", "b", "c"))
        return
    with caplog.at_level(logging.WARNING, "msrun"):
        check_class_names(str(path), ("a", "b", "c"))
    assert outcome in caplog.text and bool(caplog.text) == bool(outcome)
