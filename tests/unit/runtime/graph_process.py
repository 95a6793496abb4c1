"""A process that compiles small graphs: python graph_process.py FOLDER NAME... prints name, found and result."""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msrun_cli.runtime.graph_cache import GraphCache


class Plus(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.full(4, 2, np.float32)), name="weight")

    def construct(self, x):
        return x * self.weight + 1.0


class Minus(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.full(4, 2, np.float32)), name="weight")

    def construct(self, x):
        return x * self.weight - 5.0


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    x = Tensor(np.arange(4, dtype=np.float32))
    graphs = GraphCache({"numbers": 4}, Path(sys.argv[1]))
    for name in sys.argv[2:]:
        cell = Plus() if name.startswith("plus") else Minus()
        if name.endswith("-uncached"):
            print(name, "-", *cell(x).asnumpy().tolist())
            continue
        found = graphs.begin(name)
        result = cell(x)
        graphs.end()
        print(name, found, *result.asnumpy().tolist())


if __name__ == "__main__":
    main()
