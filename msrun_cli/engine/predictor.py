"""A network with its decoder, called with numpy batches of one fixed shape."""

from __future__ import annotations

import logging
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

log = logging.getLogger("msrun")


class _Decoded(nn.Cell):
    def __init__(self, network: nn.Cell, decoder: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.decoder = decoder

    def construct(self, images):
        return self.decoder(self.network(images))


class Predictor:
    """predict(images uint8 (B, S, S, 3)) -> float32 predictions (B, ...), B at most `batch_size`.

    A smaller batch is padded to `batch_size`, since every new shape would compile another graph.
    """

    def __init__(self, network: nn.Cell, decoder: nn.Cell, batch_size: int) -> None:
        self.cell = _Decoded(network, decoder)
        self.cell.set_train(False)
        self.cell.set_grad(False)
        self.batch_size = batch_size
        self.compiled = ms.get_context("mode") != ms.GRAPH_MODE

    def __call__(self, images: np.ndarray) -> np.ndarray:
        count = len(images)
        if count < self.batch_size:
            images = np.concatenate([images, np.repeat(images[-1:], self.batch_size - count, axis=0)])
        started = time.perf_counter()
        predictions = self.cell(Tensor(images)).asnumpy()[:count]
        if not self.compiled:
            self.compiled = True
            log.info("evaluation graph compiled in %.1f s", time.perf_counter() - started)
        return predictions
