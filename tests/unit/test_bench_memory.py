"""What scripts/bench_memory.py counts as activations, on a network where one can count by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, nn

from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.train_step import ScaledLoss

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_memory.py"


class Sum(nn.Cell):
    def construct(self, outputs, targets):
        value = outputs.astype("float32").sum()
        return value, value.reshape(1)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("bench_memory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# batch 5: the input (5 x 8) and the output of ReLU (5 x 16), which its own gradient and the next layer share. In half
# precision both have half the size, and the casts of both weights (16 x 8 and 4 x 16) are kept, too.
@pytest.mark.parametrize(
    ("level", "expected"), [("O0", 4 * (5 * 8 + 5 * 16)), ("O3", 2 * (5 * 8 + 5 * 16 + 16 * 8 + 4 * 16))]
)
def test_tensors_that_the_backward_pass_keeps(level, expected, script):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    network = nn.SequentialCell([nn.Dense(8, 16, has_bias=False), nn.ReLU(), nn.Dense(16, 4, has_bias=False)])
    weights = ParameterTuple(network.trainable_params())
    forward = ScaledLoss(apply_amp(network, level, "float16"), Sum())
    step = SimpleNamespace(forward=forward, weights=weights, get_parameters=network.get_parameters)
    batch = [Tensor(np.ones((5, 8), np.float32)), Tensor(np.zeros(5, np.float32))]
    kept, gradients = script.kept_for_backward(step, batch)
    assert gradients == 4 * (16 * 8 + 4 * 16)
    # the loss multiplies by a scale: two numbers of four bytes
    assert expected <= kept <= expected + 8
