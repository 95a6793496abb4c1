"""BatchNorm over several devices: what is replaced, and that two processes equal one with the whole batch."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import mindspore.nn.layer.normalization as normalization
import numpy as np
import pytest
from mindspore import Tensor, nn

from msrun_cli.engine.amp import apply_amp
from msrun_cli.models.freezing import freeze
from msrun_cli.models.resnet import ResNet
from msrun_cli.models.sync_batch_norm import AscendSyncBatchNorm2d, ExchangedBatchNorm2d, synchronize_norms

CHECKOUT = Path(__file__).resolve().parents[3]


def small() -> nn.Cell:
    return nn.SequentialCell([nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, eps=1e-3, momentum=0.97), nn.ReLU()])


def test_one_device_keeps_its_layers():
    network = ResNet(3, 18)
    assert synchronize_norms(network, 1, "Ascend") == 0
    assert type(network.bn1).__name__ == "BatchNorm2d"


def test_every_layer_is_replaced_and_parameters_stay(monkeypatch):
    monkeypatch.setattr("msrun_cli.models.sync_batch_norm.ops.AllReduce", lambda: lambda values: values * 2)
    network = ResNet(3, 18)
    before = {parameter.name: parameter for parameter in network.get_parameters()}
    assert synchronize_norms(network, 2, "CPU") == 20
    assert isinstance(network.layer1[0].bn1, ExchangedBatchNorm2d)
    assert isinstance(network.layer2[0].downsample[1], ExchangedBatchNorm2d)
    assert network.bn1.eps == 1e-5 and network.bn1.new_share == pytest.approx(0.1)
    after = {parameter.name: parameter for parameter in network.get_parameters()}
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in after)
    assert freeze(network, ["layer1.*"]).norms == 4


def test_devices_with_the_same_batch_equal_one(monkeypatch):
    """The sum over two devices that hold the same is twice the own part."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    monkeypatch.setattr("msrun_cli.models.sync_batch_norm.ops.AllReduce", lambda: lambda values: values * 2)
    images = Tensor(np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype(np.float32))
    plain, synchronized = small(), small()
    synchronized[0].weight.set_data(plain[0].weight.value())
    synchronize_norms(synchronized, 2, "CPU")
    for network in (plain, synchronized):
        network.set_train(True)
    np.testing.assert_allclose(synchronized(images).asnumpy(), plain(images).asnumpy(), rtol=1e-4, atol=1e-5)
    count = 3 * 16
    unbiased = (count / (count - 1)) / (2 * count / (2 * count - 1))  # of twice as many values
    moved = [network[1].moving_variance.asnumpy() - 0.97 for network in (plain, synchronized)]
    np.testing.assert_allclose(moved[0], moved[1] * unbiased, rtol=1e-3)
    synchronized[1].moving_variance.set_data(plain[1].moving_variance.value())
    for network in (plain, synchronized):
        network.set_train(False)
    np.testing.assert_allclose(synchronized(images).asnumpy(), plain(images).asnumpy(), rtol=1e-4, atol=1e-5)


class AscendContext:
    """MindSpore's context as it is on an Ascend."""

    def __getattr__(self, name: str):
        return getattr(ms.context, name)

    def get_context(self, key: str):
        return "Ascend" if key == "device_target" else ms.get_context(key)


def test_an_ascend_gets_the_kernel_of_mindspore(monkeypatch):
    monkeypatch.setattr(normalization, "get_rank", lambda: 0)
    monkeypatch.setattr(normalization, "get_group_size", lambda: 8)
    monkeypatch.setattr(normalization, "context", AscendContext())
    network = small()
    assert synchronize_norms(network, 8, "Ascend") == 1
    norm = network[1]
    assert isinstance(norm, AscendSyncBatchNorm2d) and norm.is_global and norm.group_device_num == 8
    assert (norm.eps, norm.momentum) == (1e-3, pytest.approx(0.03))  # MindSpore stores the new share
    flags = {type(cell): cell.get_flags() for _, cell in apply_amp(network, "O2", "float16").cells_and_names()}
    assert flags[nn.Conv2d]["fp16"] and flags[AscendSyncBatchNorm2d]["fp32"]  # as a BatchNorm2d is treated


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_two_processes_equal_one(mode, tmp_path):
    script = Path(__file__).parent / "sync_norm_rank.py"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the launcher starts a bare `python`
    for count in (1, 2):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mindspore.parallel.cluster.run", "--join", "True"),
                *("--worker_num", str(count), "--local_worker_num", str(count), "--log_dir", str(tmp_path / "log")),
                *("--master_port", str(random.randint(9000, 19000)), str(script), mode, str(tmp_path)),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PATH": path},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    one = np.load(tmp_path / f"{mode}_1_0.npz")
    for rank in (0, 1):
        two = np.load(tmp_path / f"{mode}_2_{rank}.npz")
        assert set(two.files) == {"loss", "0.weight", "1.gamma", "1.beta", "1.moving_mean", "1.moving_variance"}
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-6, err_msg=name)
