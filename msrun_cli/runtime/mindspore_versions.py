"""What depends on the version of MindSpore: its private names that this project needs. No other module uses any.

Tested are MindSpore 2.7.2 and 2.10 (scripts/test_versions.sh). Both have all public names that are used here, and all
private ones below in the same place. What differs between the two, and why nothing has to be done about it:

- CPU kernels round differently. The same seed draws the same first weights, and the losses of the first steps of a
  YOLOv5n agree to 1e-6, but only the version that made a run repeats it bit by bit.
- The profiler's kernel_details.csv has columns "Block Dim" and "Mix Block Dim" in 2.7, "Block Num" and "Mix Block Num"
  in 2.10; profiling/ascend_tables.py reads neither.
- The launcher of 2.7 sets MS_NODE_RANK and knows no --bind_numa. Neither is used: a rank knows its number by RANK_ID,
  and cores are bound by --bind_core, which both have.
- Many internal modules have moved (mindspore.common.api to mindspore.graph.api); nothing is imported from those.

2.10 announces another signature for nn.BatchNorm2d: a default momentum of 0.1 in place of 0.9, and
track_running_stats in place of use_batch_statistics. models/batch_norm.py, sync_batch_norm.py and freezing.py rest on
the present one, which is a reason for the upper bound in pyproject.toml.
"""

from __future__ import annotations

from typing import Any

import mindspore.dataset as ds
import mindspore.profiler as msprof
from mindspore.nn.layer.normalization import _BatchNorm as BatchNormBase
from mindspore.ops.operations._grad_ops import BatchNormGrad

__all__ = ["BatchNormBase", "BatchNormGrad", "end_transfer", "profile_communication", "seed_operators"]


def seed_operators(seed: int) -> None:
    """Seed MindSpore's data operators that are made from now on, and nothing else.

    The public `ds.config.set_seed` would also seed Python's and numpy's global generators, from which another thread
    may be taking the first weights of the network at this moment. A version without the private name gets that one.
    """
    getattr(ds.config, "_config", ds.config).set_seed(seed)


def end_transfer(dataset: Any) -> None:
    """Stop readers and queue of a data set that was sunk, if it was.

    `Model.train` does so at its end, but not when an error leaves it: they would keep running.
    """
    transfer = getattr(dataset, "__transfer_dataset__", None)
    if transfer is not None:
        transfer.stop_send()
        transfer.release()


def profile_communication() -> dict[str, Any]:
    """Arguments of `mindspore.profiler.profile` for the lowest level on an Ascend that includes communication."""
    return {"experimental_config": msprof._ExperimentalConfig(profiler_level=msprof.ProfilerLevel.Level1)}
