"""The processes (ranks) of one job, and what they tell one another besides gradients."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

Arrays = tuple[np.ndarray, ...]

# Modes of the configuration -> those of MindSpore.
_MODES = {
    "data_parallel": "data_parallel",
    "optimizer_sharding": "semi_auto_parallel",
    "semi_auto": "semi_auto_parallel",
    "auto": "auto_parallel",
}


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is. All methods but the properties must be called by all ranks together;
    in a job of one process they give back what they get.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Rank 0 writes files and shows progress."""
        return self.rank == 0

    @property
    def shard(self) -> tuple[int, int]:
        return self.rank, self.count

    def gather(self, arrays: Arrays) -> list[Arrays]:
        """The arrays of every rank, in the order of the ranks; they may differ in number, shape and type."""
        if self.count == 1:
            return [arrays]
        packed = io.BytesIO()
        np.savez(packed, *arrays)
        return [_unpacked(payload) for payload in self._gather_bytes(packed.getvalue())]

    def mean(self, values: np.ndarray) -> np.ndarray:
        """float32 (N,): element by element over the ranks, the same bits on each.

        What is averaged are differences to rank 0, so that values on which all agree stay the same to the last bit.
        """
        if self.count == 1:
            return values
        own = Tensor(values.astype(np.float32))
        first = ops.Broadcast(0)((own,))[0].asnumpy()
        total = ops.AllReduce()(Tensor(own.asnumpy() - first)).asnumpy()
        return first + total * np.float32(1 / self.count)

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers, 0 <= number < 2**31."""
        return number if self.count == 1 else int(self._gather_ints(np.array([number], np.int32)).max())

    def broadcast(self, parameters: Iterable[Parameter]) -> None:
        """Give every rank the values of rank 0, in place."""
        if self.count == 1:
            return
        send = ops.Broadcast(0)
        for parameter in parameters:
            if parameter.dtype == ms.float32:
                parameter.set_data(send((Tensor(parameter.asnumpy()),))[0])
            else:
                first = self.gather((parameter.asnumpy(),))[0][0]
                parameter.set_data(Tensor(first, parameter.dtype))

    def differing(self, parameters: Iterable[Parameter]) -> list[int]:
        """Ranks whose values are not those of rank 0 to the last bit; the same list on every rank."""
        checksum = 0
        for parameter in parameters if self.count > 1 else ():
            checksum = zlib.crc32(parameter.asnumpy().tobytes(), checksum)
        sums = [int(arrays[0]) for arrays in self.gather((np.array(checksum),))]
        return [rank for rank, other in enumerate(sums) if other != sums[0]]

    def _gather_bytes(self, payload: bytes) -> list[bytes]:
        """All ranks send as much as the longest, as int32: what all-gather takes on every device."""
        lengths = self._gather_ints(np.array([len(payload)], np.int32))
        words = -(-int(lengths.max()) // 4)
        sent = np.frombuffer(payload.ljust(4 * words, b"\0"), np.int32)
        rows = self._gather_ints(sent).reshape(self.count, words)
        return [row.tobytes()[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]

    def _gather_ints(self, values: np.ndarray) -> np.ndarray:
        return ops.AllGather()(Tensor(values)).asnumpy()


def _unpacked(payload: bytes) -> Arrays:
    with np.load(io.BytesIO(payload), allow_pickle=False) as file:
        return tuple(file[name] for name in file.files)


def join(parallel: Mapping[str, Any]) -> Ranks:
    """Meet the other ranks and set MindSpore's parallel context. The device must be set before.

    parallel: the group of the configuration, see conf/parallel.
    Raises RuntimeError when the ranks do not meet.
    """
    from mindspore.communication import get_group_size, get_rank, init

    init()
    ranks = Ranks(get_rank(), get_group_size())
    ms.set_auto_parallel_context(**context_arguments(parallel, ranks))
    return ranks


def context_arguments(parallel: Mapping[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Arguments of `mindspore.set_auto_parallel_context`, as its documentation asks for each mode."""
    mode = parallel["mode"]
    arguments: dict[str, Any] = {
        "parallel_mode": _MODES[mode],
        "gradients_mean": True,
        "device_num": ranks.count,
        "global_rank": ranks.rank,
    }
    if mode != "data_parallel":
        arguments["dataset_strategy"] = "data_parallel"  # each rank reads its own share of a batch
    if mode == "optimizer_sharding":
        arguments["enable_parallel_optimizer"] = True
        arguments["parallel_optimizer_config"] = {
            "optimizer_level": parallel["level"],
            "parallel_optimizer_threshold": parallel["threshold_kb"],
            "optimizer_weight_shard_size": parallel["shard_size"],
        }
    if mode == "auto":
        arguments["search_mode"] = parallel["search"]
    return arguments


class SharedStatistics:
    """Averages running statistics of BatchNorm over the ranks, so that all evaluate and save the same network.

    Each rank moves them by its own share of a batch. They move linearly, and so does their average over time, so a mean
    now and then gives the same as a mean in every step.

    parameters: of all networks; those that are no statistics are left alone.
    """

    NAMES = ("moving_mean", "moving_variance")

    def __init__(self, parameters: Sequence[Parameter], ranks: Ranks) -> None:
        self.ranks = ranks
        self.statistics = [item for item in parameters if item.name.endswith(self.NAMES)] if ranks.count > 1 else []

    def __call__(self) -> None:
        """To be called by all ranks after the same step."""
        if not self.statistics:
            return
        arrays = [parameter.asnumpy() for parameter in self.statistics]
        mean = self.ranks.mean(np.concatenate([array.reshape(-1) for array in arrays]))
        parts = np.split(mean, np.cumsum([array.size for array in arrays])[:-1])
        for parameter, array, part in zip(self.statistics, arrays, parts, strict=True):
            if not np.array_equal(part, array.reshape(-1)):
                # not set_data: a compiled graph would go on with the memory that the parameter had before
                ops.assign(parameter, Tensor(part.reshape(array.shape), parameter.dtype))
