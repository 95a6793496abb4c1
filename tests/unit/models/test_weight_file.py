"""Telling the kinds of weight files apart, and the readers other than PyTorch's."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from torch_pickles import call, dictionary, named, tensor, write_legacy, write_zip

from msrun_cli.common.errors import CheckpointError
from msrun_cli.models.weight_file import read_npz, read_safetensors, read_weights

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
STATE = dictionary({"w": tensor("0", 6, (2, 3))}, empty=call(named("collections.OrderedDict")))


def write_safetensors(path: Path, header: dict | bytes, body: bytes = WEIGHT.tobytes()) -> Path:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return path


def entry(dtype: str = "F32", shape: object = (2, 3), offsets: object = (0, 24)) -> dict:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".bin"])
def test_kind_is_told_by_content(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    write_zip(path, STATE, {"0": WEIGHT.tobytes()})
    np.testing.assert_array_equal(read_weights(path)["w"], WEIGHT)
    write_legacy(path, STATE, {"0": WEIGHT})
    np.testing.assert_array_equal(read_weights(path)["w"], WEIGHT)
    with path.open("wb") as stream:
        np.savez(stream, w=WEIGHT.astype(np.float16), n=np.int64(3))
    arrays = read_weights(str(path))
    assert arrays["w"].dtype == np.float32 and arrays["n"] == 3
    np.testing.assert_array_equal(arrays["w"], WEIGHT)


def test_safetensors(tmp_path: Path) -> None:
    header = entry() | {"__metadata__": {"format": "pt"}}
    header["h"] = {"dtype": "BF16", "shape": [2], "data_offsets": [24, 28]}
    header["f"] = {"dtype": "F16", "shape": [], "data_offsets": [28, 30]}
    body = WEIGHT.tobytes() + np.array([0x3FC0, 0xC000], "<u2").tobytes() + np.float16(0.5).tobytes()
    arrays = read_weights(write_safetensors(tmp_path / "a.safetensors", header, body))
    np.testing.assert_array_equal(arrays["w"], WEIGHT)
    assert arrays["h"].tolist() == [1.5, -2.0] and arrays["f"] == 0.5
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert arrays["w"].flags.writeable


@pytest.mark.parametrize(
    "header",
    [
        entry(offsets=(0, 28)),
        entry(offsets=(0, 20)),
        entry(offsets=(-24, 24)),
        entry(offsets=(24, 0)),
        entry(shape=(2, 4)),
        entry(shape=(-1, 3)),
        entry(shape=(2**40, 2**40)),
        entry(shape=None),
        entry(dtype="F8_E4M3"),
        {"w": 3},
        [1],
        b"{",
        b"[" * 100_000,
        b"{}"[:0],
    ],
    ids=str,
)
def test_damaged_safetensors(header: dict | bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        read_safetensors(write_safetensors(tmp_path / "a.safetensors", header))


def test_safetensors_with_a_huge_declared_header(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 7 + b"\x7f" + b"{}")
    with pytest.raises(CheckpointError, match="header of"):
        read_weights(tmp_path / "a.safetensors")


def test_npz_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match="plain arrays"):
        read_weights(tmp_path / "a.npz")


def test_npz_bomb_and_truncation(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", w=np.zeros(5_000_000, np.uint8))
    with pytest.raises(CheckpointError, match="expand"):
        read_npz(tmp_path / "bomb.npz")
    stream = io.BytesIO()
    np.savez(stream, w=WEIGHT)
    for length in (4, 100, len(stream.getvalue()) - 1):
        (tmp_path / "cut.npz").write_bytes(stream.getvalue()[:length])
        with pytest.raises(CheckpointError, match="not a complete"):
            read_weights(tmp_path / "cut.npz")


def test_missing_file_names_the_path_and_what_is_near(tmp_path: Path) -> None:
    for name in ("yolov5n.pt", "yolov5s.pt", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"yolov5m\.pt does not exist\. In .* there is: .*yolov5n\.pt") as caught:
        read_weights(tmp_path / "yolov5m.pt")
    assert "notes.txt" not in str(caught.value) and caught.value.exit_code == 5
    with pytest.raises(CheckpointError, match="neither does its folder"):
        read_weights(tmp_path / "none" / "a.pt")
    with pytest.raises(CheckpointError, match="is a folder.*yolov5n.pt"):
        read_weights(tmp_path)


def test_empty_and_unknown_files(tmp_path: Path) -> None:
    (tmp_path / "empty.ckpt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="0 bytes"):
        read_weights(tmp_path / "empty.ckpt")
    (tmp_path / "page.bin").write_bytes(b"<!DOCTYPE html><html>")
    with pytest.raises(CheckpointError, match=r"page\.bin starts with .*DOCTYPE.*\.npz"):
        read_weights(tmp_path / "page.bin")


def test_mindspore_checkpoint(tmp_path: Path) -> None:
    mindspore = pytest.importorskip("mindspore")
    values = {
        "w": mindspore.Tensor(WEIGHT),
        "half": mindspore.Tensor(WEIGHT.astype(np.float16)),
        "brain": mindspore.Tensor(WEIGHT).astype(mindspore.bfloat16),
    }
    path = tmp_path / "a.ckpt"
    mindspore.save_checkpoint(
        [{"name": n, "data": v} for n, v in values.items()], str(path), append_dict={"note": "text"}
    )
    arrays = read_weights(path)
    assert set(arrays) == set(values)
    for array in arrays.values():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, WEIGHT)
    (tmp_path / "cut.ckpt").write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"cut\.ckpt is not a complete MindSpore checkpoint"):
        read_weights(tmp_path / "cut.ckpt")
