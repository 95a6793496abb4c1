"""Parameters that are not trained, chosen by patterns on their names."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from mindspore import nn

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.name_patterns import matching
from msrun_cli.runtime.mindspore_versions import is_batch_norm


@dataclass(frozen=True)
class Frozen:
    """names: of the parameters that are no longer trained; numbers: how many numbers they hold; norms: BatchNorm
    layers whose running statistics stand still; trained: parameters that are left.
    """

    names: tuple[str, ...]
    numbers: int
    norms: int
    trained: int

    def __str__(self) -> str:
        numbers = f"{self.numbers:,}".replace(",", " ")
        total = len(self.names) + self.trained
        return f"{len(self.names)} of {total} parameters ({numbers} numbers), {self.norms} BatchNorm layers stand still"


def freeze(network: nn.Cell, patterns: Sequence[str]) -> Frozen:
    """Take the parameters whose names fit one of the patterns out of training, in place.

    They get neither gradient nor optimizer state and keep every bit. A BatchNorm whose gamma and beta are both frozen
    normalises by its running statistics, as in an evaluation, and no longer moves them.

    Raises:
        ConfigError: a pattern fits no trained parameter, or nothing is left to train.
    """
    trained = network.trainable_params()
    names = [parameter.name for parameter in trained]
    setting = f"freeze=[{','.join(patterns)}]"
    chosen = {name for pattern in patterns for name in matching(names, pattern, setting)}
    if len(chosen) == len(names):
        raise ConfigError(f"{setting} takes all {len(names)} parameters: nothing is left to train.")
    frozen = [parameter for parameter in trained if parameter.name in chosen]
    for parameter in frozen:
        parameter.requires_grad = False
    norms = 0
    for _, cell in network.cells_and_names():
        if is_batch_norm(cell) and all(_fits(item.name, patterns) for item in (cell.gamma, cell.beta)):
            cell.use_batch_statistics = False
            norms += 1
    numbers = sum(int(parameter.size) for parameter in frozen)
    return Frozen(tuple(parameter.name for parameter in frozen), numbers, norms, len(names) - len(frozen))


def _fits(name: str, patterns: Sequence[str]) -> bool:
    """For gamma and beta, which an `nn.BatchNorm2d(affine=False)` has, too, but does not train."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
