"""The private names of MindSpore: what they do, and that nothing else uses any."""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import mindspore.dataset as ds
import mindspore.profiler as msprof
import numpy as np
import pytest
from mindspore import nn
from mindspore.dataset import vision

from msrun_cli.models.sync_batch_norm import ExchangedBatchNorm2d
from msrun_cli.runtime import mindspore_versions, process

PACKAGE = Path(mindspore_versions.__file__).resolve().parents[1]
IMAGE = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def crops(seed: int) -> np.ndarray:
    operator = vision.RandomCrop(8)
    mindspore_versions.seed_operators(seed)
    return np.stack([operator(IMAGE) for _ in range(4)])


def test_a_seed_of_operators_repeats_them_and_leaves_other_generators_alone():
    random.seed(5)
    np.random.seed(5)
    wanted = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    first, other, again = crops(1), crops(2), crops(1)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert (random.random(), np.random.random()) == wanted


def test_without_the_private_name_operators_are_seeded_by_the_public_one(monkeypatch):
    seeds: list[int] = []
    monkeypatch.setattr(ds, "config", SimpleNamespace(set_seed=seeds.append))
    mindspore_versions.seed_operators(7)
    assert seeds == [7]


def test_a_transfer_is_stopped_and_released_where_there_is_one():
    calls: list[str] = []
    transfer = SimpleNamespace(stop_send=lambda: calls.append("stop"), release=lambda: calls.append("release"))
    mindspore_versions.end_transfer(SimpleNamespace())
    assert not calls
    mindspore_versions.end_transfer(SimpleNamespace(__transfer_dataset__=transfer))
    assert calls == ["stop", "release"]


def test_profiles_of_an_ascend_include_communication():
    (config,) = mindspore_versions.profile_communication().values()
    assert config.profiler_level == msprof.ProfilerLevel.Level1


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm, ExchangedBatchNorm2d])
def test_every_batch_norm_has_the_common_base(layer):
    assert mindspore_versions.is_batch_norm(layer.__new__(layer))
    assert not mindspore_versions.is_batch_norm(nn.LayerNorm((1,)))


@pytest.mark.parametrize(("library", "slow"), [("libdnnl.so.2", False), ("libdnnl.so.3", True)])
def test_only_onednn_3_is_held_to_avx2(monkeypatch, tmp_path, library, slow):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / library).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(mindspore_versions.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.delenv(process.ONEDNN_ISA, raising=False)
    monkeypatch.setattr(process, "set_here", {})
    monkeypatch.setattr(process, "_forward_interrupts", lambda: None)
    process.prepare_process()
    assert mindspore_versions.onednn_falls_back() == slow
    assert process.set_here.get(process.ONEDNN_ISA) == ("AVX2" if slow else None)
    assert ("set by msrun" if slow else "has no effect") in process.onednn_sentence()
    os.environ.pop(process.ONEDNN_ISA, None)


def test_without_mindspore_the_slow_case_is_assumed(monkeypatch):
    monkeypatch.setattr(mindspore_versions.importlib.util, "find_spec", lambda name: None)
    assert mindspore_versions.onednn_falls_back()


def private_names(source: str) -> Iterator[str]:
    """Private names of MindSpore and questions whether it has a name, in the text of a module."""
    tree = ast.parse(source)
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias for alias in node.names if alias.name.split(".")[0] == "mindspore"]
            bound |= {alias.asname or "mindspore" for alias in names}
            paths = [alias.name for alias in names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mindspore":
            bound |= {alias.asname or alias.name for alias in node.names}
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (path for path in paths if any(part.startswith("_") for part in path.split(".")))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr != "__version__":
            text = ast.unparse(node)
            if text.split(".")[0] in bound:
                yield text
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr"):
            if ast.unparse(node.args[0]).split(".")[0] in bound:
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and node.value == "__transfer_dataset__":
            yield node.value


def test_no_other_module_uses_private_names():
    found = {str(path.relative_to(PACKAGE)): list(private_names(path.read_text())) for path in PACKAGE.rglob("*.py")}
    own = found.pop("runtime/mindspore_versions.py")
    assert len(own) == 5, own
    assert not {path: names for path, names in found.items() if names}
