"""What depends on the version of MindSpore. Imports nothing heavy itself.

Tested are MindSpore 2.7.2 and 2.10 (scripts/test_versions.sh). Both have all public names that this project uses, and
in the same place the private ones below, which no other module may use. What differs is `onednn_falls_back`, and, with
no need to do anything about it:

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

import importlib.util
import os
from typing import Any

ONEDNN_2 = "lib/libdnnl.so.2"  # in the folder of the package; MindSpore 2.9 and 2.10 have libdnnl.so.3


def onednn_falls_back() -> bool:
    """Whether the installed MindSpore's oneDNN takes a slow convolution on AVX-512 processors.

    MindSpore 2.7 and 2.8 bundle oneDNN 2.2, whose convolution is the same with every instruction set and which does not
    read ONEDNN_MAX_CPU_ISA; 2.9 and 2.10 bundle oneDNN 3. A convolution of 8x64x40x40 takes 18 ms with 2.7.2, and with
    2.10 18 ms under AVX2, 2200 ms under AVX-512.
    """
    found = importlib.util.find_spec("mindspore")
    folders = (found.submodule_search_locations or []) if found else []
    return not any(os.path.exists(os.path.join(folder, ONEDNN_2)) for folder in folders)


def batch_norm_gradient(eps: float) -> Any:
    """The operator of the gradient in training: (dout, x, gamma, mean, variance, variance) -> (dx, dgamma, dbeta)."""
    from mindspore.ops.operations._grad_ops import BatchNormGrad

    return BatchNormGrad(is_training=True, epsilon=eps)


def is_batch_norm(cell: Any) -> bool:
    """Whether a cell is a BatchNorm layer of MindSpore's, of one or two dimensions, synchronised or not."""
    from mindspore.nn.layer.normalization import _BatchNorm

    return isinstance(cell, _BatchNorm)


def seed_operators(seed: int) -> None:
    """Seed MindSpore's data operators that are made from now on, and nothing else.

    The public `ds.config.set_seed` would also seed Python's and numpy's global generators, from which another thread
    may be taking the first weights of the network at this moment. A version without the private name gets that one.
    """
    import mindspore.dataset as ds

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
    import mindspore.profiler as msprof

    return {"experimental_config": msprof._ExperimentalConfig(profiler_level=msprof.ProfilerLevel.Level1)}
