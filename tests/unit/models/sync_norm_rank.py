"""One process of a job whose BatchNorm is synchronised: trains on its part of a batch and writes what came out.

python sync_norm_rank.py graph|pynative FOLDER
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init

from msrun_cli.models.sync_batch_norm import synchronize_norms

IMAGES = 4


class Loss(nn.Cell):
    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, images, targets):
        return ops.square(self.network(images) - targets).mean()


def main(mode: str, folder: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    init()
    devices, rank = get_group_size(), get_rank()
    rng = np.random.default_rng(0)
    network = nn.SequentialCell([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)])
    network[0].weight.set_data(Tensor(rng.standard_normal(network[0].weight.shape).astype(np.float32)))
    assert synchronize_norms(network, devices, "CPU") == (devices > 1)
    loss = Loss(network)
    loss.set_train(True)
    weights = ParameterTuple(network.trainable_params())
    gradient = ms.value_and_grad(loss, None, weights)
    if mode == "graph":
        gradient = ms.jit(gradient)
    part = slice(rank * IMAGES // devices, (rank + 1) * IMAGES // devices)
    batch = [rng.standard_normal((IMAGES, channels, 6, 6)).astype(np.float32)[part] for channels in (3, 4)]
    value, gradients = gradient(*map(Tensor, batch))
    total = ops.AllReduce()
    found = {w.name: (total(g) / devices).asnumpy() for w, g in zip(weights, gradients, strict=True)}
    found |= {p.name: p.asnumpy() for p in network.get_parameters() if "moving" in p.name}
    np.savez(f"{folder}/{mode}_{devices}_{rank}.npz", loss=(total(value) / devices).asnumpy(), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
