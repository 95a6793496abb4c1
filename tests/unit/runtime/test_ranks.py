"""What ranks tell one another, with a stand-in for the network, and the context that each parallel mode asks for."""

from __future__ import annotations

import threading

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from msrun_cli.runtime import ranks as module
from msrun_cli.runtime.ranks import Ranks, SharedStatistics, context_arguments


class Loopback:
    """All-gather among threads, each of which is a rank."""

    def __init__(self, count: int) -> None:
        self.barrier, self.sent = threading.Barrier(count), {}

    def ranks(self, rank: int) -> Ranks:
        loopback = self

        class Connected(Ranks):
            def _gather_ints(self, values):
                assert values.dtype == np.int32
                loopback.sent[self.rank] = values
                loopback.barrier.wait(10)
                rows = [loopback.sent[other] for other in range(self.count)]
                loopback.barrier.wait(10)
                assert len({row.shape for row in rows}) == 1  # what all-gather needs
                return np.concatenate(rows)

        return Connected(rank, self.barrier.parties)

    def run(self, work):
        results: dict[int, object] = {}

        def call(rank: int) -> None:
            results[rank] = work(self.ranks(rank))

        threads = [threading.Thread(target=call, args=[rank]) for rank in range(self.barrier.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return [results[rank] for rank in range(self.barrier.parties)]


def test_arrays_of_any_kind_reach_every_rank():
    def arrays(rank):
        return np.arange(rank * 5, dtype=np.float32).reshape(-1, 5), np.array([rank], np.int64), np.array(["é" * rank])

    for found in Loopback(3).run(lambda ranks: ranks.gather(arrays(ranks.rank))):
        for rank, received in enumerate(found):
            for array, expected in zip(received, arrays(rank), strict=True):
                assert array.dtype == expected.dtype
                np.testing.assert_array_equal(array, expected)


def test_largest_and_differing():
    assert Loopback(3).run(lambda ranks: ranks.largest([0, 15, 2][ranks.rank])) == [15] * 3
    values = [[1.0, 2.0], [1.0, 2.0], [1.0, np.nextafter(np.float32(2), np.float32(3))]]

    def compare(ranks):
        return ranks.differing([Parameter(Tensor(values[ranks.rank], ms.float32), name="a")])

    assert Loopback(3).run(compare) == [[2]] * 3


def test_statistics_become_the_mean_and_weights_stay():
    class SecondOfTwo(Ranks):
        """The other rank's values are larger by one."""

        def mean(self, values):
            assert values.dtype == np.float32 and values.shape == (5,)
            return values + np.float32(0.5)

    kept = [
        Parameter(Tensor(np.full(shape, 2), ms.float32), name=name)
        for name, shape in (("bn.moving_mean", 2), ("conv.weight", (2, 2)), ("ema.bn.moving_variance", 3))
    ]
    SharedStatistics(kept, SecondOfTwo(1, 2))()
    for parameter, value in zip(kept, (2.5, 2, 2.5), strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), np.full(parameter.shape, value))


def test_one_process_keeps_what_it_has():
    alone = Ranks()
    parameter = Parameter(Tensor([3.0], ms.float32), name="bn.moving_mean")
    SharedStatistics([parameter], alone)()
    alone.broadcast([parameter])
    values = np.array([1.0])
    assert alone.gather((values,))[0][0] is values and alone.mean(values) is values
    assert (alone.largest(7), alone.differing([parameter]), parameter.asnumpy()[0]) == (7, [], 3.0)


COMMON = {"gradients_mean": True, "device_num": 8, "global_rank": 3}
SHARDED = {"dataset_strategy": "data_parallel"}


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        ({"mode": "data_parallel"}, {"parallel_mode": "data_parallel"}),
        ({"mode": "semi_auto"}, {"parallel_mode": "semi_auto_parallel", **SHARDED}),
        (
            {"mode": "auto", "search": "sharding_propagation"},
            {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation", **SHARDED},
        ),
        (
            {"mode": "optimizer_sharding", "level": "level2", "threshold_kb": 16, "shard_size": 4},
            {
                "parallel_mode": "semi_auto_parallel",
                "enable_parallel_optimizer": True,
                "parallel_optimizer_config": {
                    "optimizer_level": "level2",
                    "parallel_optimizer_threshold": 16,
                    "optimizer_weight_shard_size": 4,
                },
                **SHARDED,
            },
        ),
    ],
)
def test_context_of_each_mode(parallel, expected):
    arguments = context_arguments(parallel, Ranks(3, 8))
    assert arguments == COMMON | expected
    try:
        ms.set_auto_parallel_context(**arguments)  # MindSpore knows all of them
        for key in ("parallel_mode", "device_num", "global_rank", "gradients_mean"):
            assert ms.get_auto_parallel_context(key) == arguments[key]
    finally:
        ms.reset_auto_parallel_context()


def test_joining_sets_the_context(monkeypatch):
    from mindspore import communication

    calls = []
    monkeypatch.setattr(communication, "init", lambda: calls.append("init"))
    monkeypatch.setattr(communication, "get_rank", lambda: 1)
    monkeypatch.setattr(communication, "get_group_size", lambda: 4)
    monkeypatch.setattr(module.ms, "set_auto_parallel_context", lambda **arguments: calls.append(arguments))
    assert module.join({"mode": "data_parallel"}) == Ranks(1, 4)
    assert calls == ["init", context_arguments({"mode": "data_parallel"}, Ranks(1, 4))]
