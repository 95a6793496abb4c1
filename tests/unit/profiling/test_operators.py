from __future__ import annotations

import pytest

from msrun_cli.profiling.operators import OperatorRun, busy_us, phases_of, summarize_operators

NETWORK = "Default/forward-ScaledLoss/network-Net"
# One step of a compiled train step: (name, type, duration in us), one after the other.
STEP = [
    ("Default/TensorMove-op0", "TensorMove", 10),  # copy of statistics, before the forward pass
    (f"{NETWORK}/conv-Conv2d/Conv2D-op0", "Conv2D", 300),
    ("Expand/_SumExt/ReduceSum-op9", "ReduceSum", 20),  # of the forward pass, since it runs after one of its operators
    ("Default/forward-ScaledLoss/loss-Loss/Mul-op4", "Mul", 70),
    (f"Gradients/{NETWORK}/conv-Conv2d/Grad_Conv2D/Conv2DBackpropFilter-op0", "Conv2DBackpropFilter", 400),
    ("Expand/_Muls/Mul-op1", "Mul", 50),  # of the backward pass
    ("Default/Sqrt-op0", "Sqrt", 30),  # norm of the gradient
    ("Expand/_Divs/Div-op1", "Div", 5),
    ("Default/optimizer-SGD/ApplyMomentum-op3", "ApplyMomentum", 60),
    ("Default/average-ExponentialMovingAverage/Lerp-op1", "Lerp", 55),
]


def runs(steps: int, gap_us: float = 10) -> list[OperatorRun]:
    found, at = [], 0.0
    for _ in range(steps):
        for name, kind, duration in STEP:
            found.append(OperatorRun(name, kind, at, duration))
            at += duration + gap_us
    return found


def test_phases_come_from_scopes() -> None:
    phases, split = phases_of(runs(1))
    assert split == "scopes"
    assert phases == ["update", *["forward"] * 3, *["backward"] * 2, *["update"] * 4]


def test_summary_is_per_step() -> None:
    summary = summarize_operators(runs(3)[::-1], 3)  # in any order
    assert summary is not None
    assert summary.operators_ms == pytest.approx(1.0) and summary.busy_ms == pytest.approx(1.0)
    assert summary.phases_ms == pytest.approx({"forward": 0.39, "backward": 0.45, "update": 0.16})
    first, second = summary.by_type[:2]
    assert (first.name, first.phase, first.count) == ("Conv2DBackpropFilter", "backward", 1)
    assert first.ms == pytest.approx(0.4) and first.share == pytest.approx(0.4)
    assert second.name == "Conv2D"
    mul = next(row for row in summary.by_type if row.name == "Mul")
    assert (mul.count, mul.phase) == (2, "forward") and mul.ms == pytest.approx(0.12)
    assert summary.by_name[0].name.endswith("Conv2DBackpropFilter-op0")
    document = summary.as_json(top=4)
    assert len(document["by_name"]) == 4 and len(document["by_type"]) == 9


def test_without_scopes_the_types_tell() -> None:
    names = [("MatMul", 0), ("ReluGrad", 10), ("Conv2DBackpropInput", 20), ("Momentum", 30)]
    found = [OperatorRun(name, name, at, 5) for name, at in names]
    assert phases_of(found) == (["-", "backward", "backward", "-"], "types")
    summary = summarize_operators(found, 1)
    assert summary is not None and summary.phases_ms == {} and summary.busy_ms == pytest.approx(0.02)


def test_time_in_which_several_run_counts_once() -> None:
    overlapping = [OperatorRun("a", "a", 0, 100), OperatorRun("b", "b", 20, 30), OperatorRun("c", "c", 90, 40)]
    assert busy_us(overlapping) == 130
    assert summarize_operators([], 3) is None and summarize_operators(overlapping, 0) is None
