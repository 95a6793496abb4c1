"""A program of its own: one compiled training step on a device, compared with numpy.

    python -m msrun_cli.runtime.smoke CPU|Ascend

Its last line is JSON: device, mindspore (version), import_s, step_s, error (null or a sentence). A broken installation
may crash it; only the process that started it can tell.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from msrun_cli.runtime.process import prepare_process

_TOLERANCE = 1e-2  # an NPU multiplies float32 matrices with float16 inputs unless told otherwise


def main() -> int:
    prepare_process()
    device = sys.argv[1] if len(sys.argv) > 1 else "CPU"
    started = time.perf_counter()
    import mindspore

    imported = time.perf_counter()
    report: dict[str, Any] = {"device": device, "mindspore": mindspore.__version__, "import_s": imported - started}
    report["error"] = one_step(device)
    report["step_s"] = time.perf_counter() - imported
    print(json.dumps(report), flush=True)
    return 1 if report["error"] else 0


def one_step(device: str) -> str | None:
    """Forward, backward and update of a linear layer in graph mode; a sentence where the numbers are wrong."""
    import mindspore as ms
    import numpy as np
    from mindspore import Parameter, Tensor, nn, ops

    ms.set_device(device)
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(0)
    inputs, weight, wanted = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (16, 4), (8, 4)))
    rate = 0.1

    class Linear(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter(Tensor(weight), name="weight")

        def construct(self, x, y):
            error = ops.matmul(x, self.weight) - y
            return (error * error).mean()

    class Step(nn.Cell):
        def __init__(self, network: nn.Cell) -> None:
            super().__init__(auto_prefix=False)
            self.network = network
            self.gradient = ms.value_and_grad(network, None, network.trainable_params())

        def construct(self, x, y):
            loss, (gradient,) = self.gradient(x, y)
            ops.assign(self.network.weight, self.network.weight - rate * gradient)
            return loss

    step = Step(Linear())
    loss = float(step(Tensor(inputs), Tensor(wanted)).asnumpy())
    error = inputs @ weight - wanted
    updated = weight - rate * 2 / error.size * inputs.T @ error
    right = float((error * error).mean())
    if not np.isfinite(loss) or abs(loss - right) > _TOLERANCE * right:
        return f"the loss is {loss:.6g} where numpy has {right:.6g}"
    distance = float(np.abs(step.network.weight.asnumpy() - updated).max())
    return f"a weight is off by {distance:.3g} after the update" if distance > _TOLERANCE else None


if __name__ == "__main__":
    sys.exit(main())
