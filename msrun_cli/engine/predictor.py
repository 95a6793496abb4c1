"""A network with its decoder, called with numpy batches of one fixed shape."""

from __future__ import annotations

import logging
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msrun_cli.runtime.graph_cache import GraphCache

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
    graphs: where a graph compiled earlier is found.
    """

    def __init__(self, network: nn.Cell, decoder: nn.Cell, batch_size: int, graphs: GraphCache | None = None) -> None:
        self.cell = _Decoded(network, decoder)
        self.cell.set_train(False)
        self.cell.set_grad(False)
        self.batch_size = batch_size
        self.graphs = graphs
        self.compiled = ms.get_context("mode") != ms.GRAPH_MODE

    def __call__(self, images: np.ndarray) -> np.ndarray:
        count = len(images)
        if count < self.batch_size:
            images = np.concatenate([images, np.repeat(images[-1:], self.batch_size - count, axis=0)])
        predictions = self.cell(Tensor(images)) if self.compiled else self._first(Tensor(images))
        return predictions.asnumpy()[:count]

    def _first(self, images: Tensor) -> Tensor:
        started = time.perf_counter()
        found = self.graphs is not None and self.graphs.begin("eval")
        predictions = self.cell(images)
        if self.graphs is not None:
            self.graphs.end()
        self.compiled = True
        log.info("evaluation graph %s in %.1f s", "loaded" if found else "compiled", time.perf_counter() - started)
        return predictions
