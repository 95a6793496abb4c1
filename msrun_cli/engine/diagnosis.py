"""What is known about a batch whose gradient is not finite: the layer, and the batch itself for study."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msrun_cli.common.files import atomic_path
from msrun_cli.engine.train_step import ScaledLoss, TrainStep

log = logging.getLogger("msrun")

BATCH_FILE = "not_finite_batch.npz"


class _FiniteGradients(nn.Cell):
    """construct(*batch, scale) -> bool (P,): whether the gradient of each of P weights is finite."""

    def __init__(self, forward: ScaledLoss, weights: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.forward = forward
        self.gradient = ms.value_and_grad(forward, None, weights, has_aux=True)

    def construct(self, images, targets, scale):
        _, gradients = self.gradient(images, targets, scale)
        return ops.stack([ops.isfinite(gradient.astype(ms.float32).sum()) for gradient in gradients])


class Diagnosis:
    """Called with a skipped batch, its step and its loss scale when a training stops; gives sentences.

    weights: in the network's order, from the input on
    files_of: names of the image files of a batch, by its step (from 1)
    folder: of the run
    rank: of this process; each saves its own share of the batch
    """

    def __init__(
        self,
        step: TrainStep,
        weights: Sequence[Parameter],
        folder: Path,
        files_of: Callable[[int], list[str]],
        rank: int = 0,
    ) -> None:
        self.step, self.weights, self.folder, self.files_of = step, list(weights), folder, files_of
        self.file = BATCH_FILE if rank == 0 else f"rank_{rank}_{BATCH_FILE}"

    def __call__(self, batch: Sequence[Tensor], number: int, scale: float) -> str:
        log.info("looking for the layer (compiles once more) ...")
        probe = _FiniteGradients(self.step.forward, ParameterTuple(self.weights))
        probe.set_train(True)
        finite = probe(*batch, Tensor(scale, ms.float32)).asnumpy()
        names = [weight.name for weight, good in zip(self.weights, finite, strict=True) if not good]
        if names:
            layer = (
                f"In the last batch, {len(names)} of {len(finite)} gradients are not finite; gradients flow from the "
                f"end of the network to its start, and the first bad one on this way is {names[-1]}. "
            )
        else:
            layer = "The gradients of the last batch alone are finite. "
        return layer + self._saved(batch, number)

    def _saved(self, batch: Sequence[Tensor], number: int) -> str:
        path = self.folder / self.file
        files = self.files_of(number)
        try:
            with atomic_path(path) as temporary:
                arrays = {f"input_{index}": value.asnumpy() for index, value in enumerate(batch)}
                np.savez_compressed(temporary, files=np.array(files), **arrays)
        except OSError as error:
            return f"The batch could not be saved ({error})."
        return f"The batch is saved for study in {path}; its images are {', '.join(files[:8])}."
