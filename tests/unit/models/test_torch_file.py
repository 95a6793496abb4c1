"""Reading PyTorch files: right numbers, every format, and nothing of a malicious file is ever executed."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from torch_pickles import (
    call,
    dictionary,
    instance,
    module,
    named,
    number,
    storage,
    tensor,
    text,
    tuple_of,
    write_legacy,
    write_zip,
)

from msrun_cli.common.errors import CheckpointError
from msrun_cli.models.torch_file import read_torch_file

NUMBERS = np.arange(6, dtype=np.float32)


def state_dict(**tensors: bytes) -> bytes:
    return dictionary(tensors, empty=call(named("collections.OrderedDict")))


# ---- real files


@pytest.mark.data
def test_yolov5n_has_the_349_arrays_of_its_state_dict(shared_data: Path) -> None:
    arrays = read_torch_file(shared_data / "weights" / "yolov5n.pt")
    with np.load(shared_data / "weights" / "yolov5n_state_fp16.npz") as expected:
        assert list(arrays) == expected.files
        assert len(arrays) == 349
        for name in expected.files:
            np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
            assert arrays[name].dtype == (np.int64 if name.endswith("num_batches_tracked") else np.float32)
            assert arrays[name].flags.writeable and arrays[name].flags.c_contiguous


@pytest.mark.data
def test_legacy_resnet20(shared_data: Path) -> None:
    arrays = read_torch_file(shared_data / "weights" / "cifar10_resnet20-12fca82f.th")
    assert arrays["conv1.weight"].shape == (16, 3, 3, 3)
    assert arrays["linear.weight"].shape == (10, 64)
    assert not any(name.startswith("module.") for name in arrays)
    assert (
        sum(array.size for name, array in arrays.items() if "running" not in name) == 269_722
    )  # He et al. 2015: 0.27 M
    assert all(np.isfinite(array).all() and np.abs(array).max() < 100 for array in arrays.values())


@pytest.mark.data
@pytest.mark.parametrize("name", ["yolov5n.pt", "cifar10_resnet20-12fca82f.th"])
def test_every_truncation_of_a_real_file_is_an_error(name: str, shared_data: Path, tmp_path: Path) -> None:
    data = (shared_data / "weights" / name).read_bytes()
    for length in [0, 1, 2, 15, 30, 100, 5000, len(data) // 2, len(data) - 1000, len(data) - 1]:
        (tmp_path / "cut.pt").write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="not a complete PyTorch file.*again"):
            read_torch_file(tmp_path / "cut.pt")


@pytest.mark.data
def test_flipped_bytes_never_end_in_another_error(shared_data: Path, tmp_path: Path) -> None:
    data = (shared_data / "weights" / "cifar10_resnet20-12fca82f.th").read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(150):
        damaged = np.frombuffer(data, np.uint8).copy()
        damaged[generator.integers(0, 14_000, 3)] = generator.integers(0, 256, 3)  # the pickles end at 14 063
        (tmp_path / "damaged.th").write_bytes(damaged.tobytes())
        try:
            read_torch_file(tmp_path / "damaged.th")
        except CheckpointError:
            pass


# ---- formats


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("Float", np.float32, np.float32),
        ("Half", np.float16, np.float32),
        ("Double", np.float64, np.float64),
        ("Long", np.int64, np.int64),
        ("Int", np.int32, np.int32),
        ("Byte", np.uint8, np.uint8),
        ("Bool", np.bool_, np.bool_),
    ],
)
def test_number_types(kind: str, dtype: type, expected: type, tmp_path: Path) -> None:
    values = np.array([0, 1, 1, 0]).astype(dtype)
    path = write_zip(tmp_path / "a.pt", state_dict(w=tensor("0", 4, (2, 2), kind=kind)), {"0": values.tobytes()})
    array = read_torch_file(path)["w"]
    assert array.dtype == expected
    np.testing.assert_array_equal(array, values.reshape(2, 2))


def test_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, 0.0, 3.0e38], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    body = state_dict(w=tensor("0", 4, kind="BFloat16"), s=tensor("0", 4, (), kind="BFloat16"))
    arrays = read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": bits.tobytes()}))
    np.testing.assert_array_equal(arrays["w"], (bits.astype(np.uint32) << 16).view(np.float32))
    assert arrays["w"][0] == 1.5 and isinstance(arrays["s"], np.ndarray) and arrays["s"].shape == ()


def test_views_strides_and_shared_storage(tmp_path: Path) -> None:
    body = state_dict(
        transposed=tensor("0", 6, (3, 2), (1, 3)),
        part=tensor("0", 6, (2,), (2,), offset=1),
        tied=tensor("0", 6, (2, 3)),
        scalar=tensor("0", 6, (), offset=5),
        odd=tensor("0", 6, (1, 6), (2**61, 1)),
        empty=tensor("1", 0, (0, 4)),
    )
    arrays = read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": NUMBERS.tobytes(), "1": b""}))
    np.testing.assert_array_equal(arrays["transposed"], NUMBERS.reshape(2, 3).T)
    assert arrays["transposed"].flags.c_contiguous
    assert arrays["part"].tolist() == [1, 3]
    assert arrays["tied"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["scalar"] == 5
    assert arrays["odd"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert arrays["empty"].shape == (0, 4)


def test_legacy_format_with_a_view(tmp_path: Path) -> None:
    body = dictionary(
        {
            "state_dict": state_dict(
                **{
                    "module.a": tensor("77", 6, (2, 3), view=(b"N",)),
                    "module.b": tensor("77", 6, (2,), view=(tuple_of(text("v"), number(3), number(2)),)),
                }
            )
        }
    )
    arrays = read_torch_file(write_legacy(tmp_path / "a.th", body, {"77": NUMBERS}))
    assert arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["b"].tolist() == [3, 4]


def test_big_endian_archive(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.pt", state_dict(w=tensor("0", 6)), {"0": NUMBERS.astype(">f4").tobytes()})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/byteorder", b"big")
    np.testing.assert_array_equal(read_torch_file(path)["w"], NUMBERS)


def network(first: str) -> bytes:
    parameter = call(named("torch._utils._rebuild_parameter"), tensor(first, 6), b"\x88", b"N")
    hidden = call(named("__builtin__.set"), b"](" + text("grid") + b"e")
    convolution = module("torch.nn.modules.conv.Conv2d", {"weight": parameter, "bias": b"N"})
    layers = module("torch.nn.modules.container.Sequential", modules={"0": convolution})
    buffers = dictionary({"anchors": tensor(first, 6, (3,)), "grid": tensor(first, 6)})
    return module("models.yolo.Model", modules={"model": layers}, _buffers=buffers, _non_persistent_buffers_set=hidden)


def test_network_of_placeholders_gives_state_dict_names(tmp_path: Path) -> None:
    body = dictionary({"epoch": number(-1), "ema": b"N", "model": network("0"), "optimizer": b"N"})
    arrays = read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": NUMBERS.tobytes()}))
    assert list(arrays) == ["anchors", "model.0.weight"]


def test_network_class_with_its_source_in_the_legacy_format(tmp_path: Path) -> None:
    name = named("torch.nn.modules.linear.Linear")
    with_source = tuple_of(text("module"), name, text("linear.py"), text("class Linear: ...")) + b"Q"
    body = module("torch.nn.modules.linear.Linear", {"weight": tensor("5", 6)}).replace(name, with_source, 1)
    assert list(read_torch_file(write_legacy(tmp_path / "a.th", body, {"5": NUMBERS}))) == ["weight"]


def test_ema_is_preferred_when_there_is_one(tmp_path: Path) -> None:
    body = dictionary({"model": network("0"), "ema": network("1")})
    blocks = {"0": NUMBERS.tobytes(), "1": (NUMBERS + 10).tobytes()}
    assert read_torch_file(write_zip(tmp_path / "a.pt", body, blocks))["model.0.weight"][0] == 10


@pytest.mark.parametrize("entry", ["state_dict", "model_state_dict", "model", "ema"])
def test_state_dict_inside_a_checkpoint(entry: str, tmp_path: Path) -> None:
    body = dictionary({"epoch": number(3), entry: state_dict(**{"module.w": tensor("0", 6)})})
    assert list(read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": NUMBERS.tobytes()}))) == ["w"]


def test_what_training_loops_add_is_thrown_away(tmp_path: Path) -> None:
    scalar = call(named("numpy.core.multiarray.scalar"), call(named("numpy.dtype"), text("f8"), b"\x89", b"\x88"))
    path = call(named("pathlib.PosixPath"), text("/etc"))
    body = dictionary({"best_fitness": scalar, "opt": dictionary({"dir": path}), "model": state_dict(w=tensor("0", 6))})
    assert list(read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": NUMBERS.tobytes()}))) == ["w"]


def test_module_prefix_stays_where_only_some_have_it(tmp_path: Path) -> None:
    body = state_dict(**{"module.w": tensor("0", 6), "v": tensor("0", 6)})
    assert set(read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": NUMBERS.tobytes()}))) == {"module.w", "v"}


# ---- files that are something else


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"<!DOCTYPE html>", b"\x80\x02", b"PK\x03\x04", pickle.dumps([1, 2])]
)
def test_not_a_torch_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.pt .*not a complete PyTorch file.*Copy or download it again"):
        read_torch_file(tmp_path / "a.pt")


def test_cut_archive_is_said_to_be_cut(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.pt", state_dict(w=tensor("0", 6)), {"0": NUMBERS.tobytes()})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match="the end of its zip archive is missing"):
        read_torch_file(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_torch_file(path)


def test_checkpoint_without_weights_says_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a dictionary of epoch, lr.*no weights.*torch\.save"):
        read_torch_file(write_zip(tmp_path / "a.pt", dictionary({"epoch": number(1), "lr": number(2)})))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(tensor("0", 6, (7,)), id="too many numbers"),
        pytest.param(tensor("0", 6, (2, 3), (3, 2)), id="strides beyond the end"),
        pytest.param(tensor("0", 6, (2,), (1,), offset=5), id="offset"),
        pytest.param(tensor("0", 6, (2,), (-1,), offset=5), id="negative stride"),
        pytest.param(tensor("0", 6, (2,), (1,), offset=-1), id="negative offset"),
        pytest.param(tensor("0", 6, (2**40,), (0,)), id="expanded without end"),
        pytest.param(tensor("0", 6, (2**61, 2**61), (0, 0)), id="overflow"),
        pytest.param(tensor("0", 6, (2, 3), (1,)), id="strides missing"),
        pytest.param(tensor("0", 2**40), id="storage declared too large"),
        pytest.param(tensor("0", 2**61, (2,), (2**60,)), id="offset in bytes overflows"),
        pytest.param(tensor("0", 5), id="storage declared too small"),
        pytest.param(tensor("0", 6, kind="Double"), id="other type"),
        pytest.param(tensor("1", 6), id="storage missing"),
        pytest.param(tensor("../version", 2, kind="Byte"), id="storage outside"),
        pytest.param(tensor("0", 6, view=(tuple_of(text("v"), number(4), number(4)),)), id="view beyond the end"),
        pytest.param(tensor("0", 6, (1,) * 40), id="40 dimensions"),
    ],
)
def test_sizes_are_checked_against_the_storage(bad: bytes, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        read_torch_file(write_zip(tmp_path / "a.pt", state_dict(w=bad), {"0": NUMBERS.tobytes()}))
    with pytest.raises(CheckpointError):
        read_torch_file(write_legacy(tmp_path / "a.th", state_dict(w=bad), {"0": NUMBERS}))


def test_compressed_storages_are_refused(tmp_path: Path) -> None:
    blocks = {"0": bytes(40_000_000)}
    path = write_zip(tmp_path / "bomb.pt", state_dict(w=tensor("0", 10_000_000)), blocks, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed"):
        read_torch_file(path)


def test_one_storage_shown_many_times_is_bounded(tmp_path: Path) -> None:
    block = np.zeros(10_000, np.float32)
    body = state_dict(**{f"w{i}": tensor("0", block.size) for i in range(200)})
    with pytest.raises(CheckpointError, match="16 times"):
        read_torch_file(write_zip(tmp_path / "a.pt", body, {"0": block.tobytes()}))


# ---- malicious files: nothing may run


class Executed(BaseException):
    """Raised by the traps; no `except Exception` swallows it."""


@pytest.fixture
def traps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the malicious files try to call ends the test at once."""

    def trap(*_: object, **__: object) -> None:
        raise Executed

    for owner, name in [(os, "system"), (os, "popen"), (subprocess, "Popen"), (builtins, "eval")]:
        monkeypatch.setattr(owner, name, trap)


def stack_global(name: str) -> bytes:
    where, _, what = name.rpartition(".")
    return text(where) + text(what) + b"\x93"


COMMAND = text("touch /tmp/executed")
ATTACKS = {
    "REDUCE": (call(named("os.system"), COMMAND), "os.system"),
    "posix": (call(named("posix.system"), COMMAND), "posix.system"),
    "STACK_GLOBAL": (call(stack_global("os.system"), COMMAND), "os.system"),
    "STACK_GLOBAL of objects": (b"})\x93", "other than text"),
    "eval": (call(named("__builtin__.eval"), text("1")), "__builtin__.eval"),
    "eval of python 3": (call(named("builtins.eval"), text("1")), "builtins.eval"),
    "getattr": (call(named("builtins.getattr"), named("torch.FloatStorage"), text("__class__")), "builtins.getattr"),
    "attribute path": (call(stack_global("torch._utils.os.system"), COMMAND), "torch._utils.os.system"),
    "import in torch": (call(named("torch.hub.load"), COMMAND), "torch.hub.load"),
    "nested pickle": (call(named("torch.storage._load_from_bytes"), COMMAND), "_load_from_bytes"),
    "named only": (named("os.system"), "os.system"),
    "call of a network class": (call(named("models.common.Conv"), COMMAND), "models.common.Conv"),
    "call of torch.nn": (call(named("torch.nn.modules.module.Module"), COMMAND), "torch.nn.modules.module.Module"),
    "call of a result": (call(call(named("collections.OrderedDict")), COMMAND), "calls a dict"),
    "call of a placeholder": (call(instance("models.yolo.Model", {}), COMMAND), "an object of models.yolo.Model"),
    "call of a storage class": (call(named("torch.FloatStorage"), number(2**40)), "calls a _Kind"),
    "NEWOBJ": (named("subprocess.Popen") + tuple_of(COMMAND) + b"\x81", "subprocess.Popen"),
    "NEWOBJ of a call": (named("collections.OrderedDict") + tuple_of() + b"\x81", "collections.OrderedDict"),
    "NEWOBJ_EX": (named("models.yolo.Model") + tuple_of() + b"}\x92", "NEWOBJ_EX"),
    "INST": (b"(" + COMMAND + b"ios\nsystem\n", "INST .os system"),
    "OBJ": (b"(" + named("models.yolo.Model") + COMMAND + b"o", "OBJ"),
    "EXT1": (b"\x82\x01", "EXT1"),
    "EXT2": (b"\x83\x01\x00", "EXT2"),
    "EXT4": (b"\x84\x01\x00\x00\x00", "EXT4"),
    "BUILD of a list": (b"]}b", "sets the state of a list"),
    "BUILD of a class": (named("models.yolo.Model") + b"}b", "sets the state of models.yolo.Model"),
    "copyreg": (call(named("copyreg._reconstructor"), named("os.system")), "copyreg._reconstructor"),
    "copyreg table": (
        call(named("copyreg.add_extension"), text("os"), text("system"), number(1)),
        "copyreg.add_extension",
    ),
    "PERSID": (b"Pos.system\n", "persistent id"),
    "persistent id: text": (text("os.system") + b"Q", "persistent id"),
    "persistent id: short": (tuple_of(text("storage")) + b"Q", "persistent id"),
    "persistent id: kind": (tuple_of(text("storage"), text("x"), text("0"), text("cpu"), number(1)) + b"Q", "storage"),
    "persistent id: module": (tuple_of(text("module"), text("os.system"), text("f"), text("s")) + b"Q", "no storage"),
    "persistent id: negative": (storage("0", -1), "storage"),
    "key of tuples": (b"}" + tuple_of(tuple_of()) + b"Ns", "a dictionary key is a tuple"),
    "key of a placeholder": (b"}" + instance("models.yolo.Model", {}) + b"Ns", "a dictionary key is an object"),
    "huge integer": (b"\x8a\xff" + b"\x7f" * 255, "integer"),
    "huge key": (b"}" + number(2**100) + b"Ns", "a dictionary key is a int"),
    "out-of-band buffer": (b"\x97", "NEXT_BUFFER"),
    "bytearray": (b"\x96" + (2**60).to_bytes(8, "little"), "."),
}


@pytest.mark.usefixtures("traps")
@pytest.mark.parametrize(("body", "named_in_message"), ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("layout", ["zip", "legacy", "in a checkpoint", "first pickle"])
def test_attacks_are_refused(layout: str, body: bytes, named_in_message: str, tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    if layout == "zip":
        write_zip(path, body)
    elif layout == "legacy":
        write_legacy(path, body, {})
    elif layout == "first pickle":
        path.write_bytes(b"\x80\x02" + body + b".")
    else:
        weights = state_dict(w=tensor("0", 6))
        write_zip(path, dictionary({"state_dict": weights, "extra": body}), {"0": NUMBERS.tobytes()})
    with pytest.raises(CheckpointError, match=named_in_message) as caught:
        read_torch_file(path)
    assert "evil.pt" in str(caught.value)
    if named_in_message != ".":
        assert "refused" in str(caught.value) and "Nothing in it was executed" in str(caught.value)


@pytest.mark.usefixtures("traps")
def test_setstate_of_a_real_class_is_never_called(tmp_path: Path) -> None:
    """BUILD on an object of an importable class: the stand-in keeps the state and has no __setstate__ to run."""
    state = dictionary({"__class__": text("x"), "__reduce__": text("y"), "__setstate__": text("z")})
    body = dictionary({"model": named("models.yolo.Model") + b")\x81" + state + b"b"})
    with pytest.raises(CheckpointError, match="no weights were found"):
        read_torch_file(write_zip(tmp_path / "a.pt", body))


class WithReduce:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/executed",)


# Made before the traps are set, for each protocol.
PICKLES = [pickle.dumps({"w": WithReduce()}, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


@pytest.mark.usefixtures("traps")
def test_the_traps_catch_what_python_would_execute() -> None:
    with pytest.raises(Executed):
        pickle.loads(b"\x80\x02" + ATTACKS["REDUCE"][0] + b".")


@pytest.mark.usefixtures("traps")
@pytest.mark.parametrize("content", PICKLES)
def test_pickles_of_python_itself(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", content)
    with pytest.raises(CheckpointError, match="refused: it names"):
        read_torch_file(tmp_path / "a.pt")


# ---- bombs: an error or a result, quickly and in little memory

MEMO = 2**32 - 1
BOMBS = {
    "memo index": b"Nr" + MEMO.to_bytes(4, "little"),
    "declared text": b"\x8d" + (2**62).to_bytes(8, "little") + b"x",
    "declared text of 4 GB": b"X\xff\xff\xff\xff" + b"x",
    "declared bytes": b"\x8e" + (2**40).to_bytes(8, "little") + b"x",
    "declared frame": b"\x95" + (2**62).to_bytes(8, "little"),
    "declared integer": b"\x8b\xff\xff\xff\x7f",
    "decimal integer": b"L" + b"9" * 100_000 + b"L\n",
    "laughs": b"]q\x00" + b"".join(b"]q%c(" % i + b"h%c" % (i - 1) * 10 + b"e" for i in range(1, 200)),
    "list in itself": b"]q\x00h\x00a",
    "deep tuples": b")" + b"\x85" * 300_000,
    "deep lists": b"(" * 300_000 + b"l" * 300_000,
    "stack underflow": b"0000R",
    "mark as a value": b"(q\x00",
    "memo miss": b"h\x07",
    "protocol": b"\x80\x09",
    "no end": b"N" * 1000,
}


@pytest.mark.usefixtures("traps")
@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_bounded(body: bytes, tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(CheckpointError):
        read_torch_file(write_zip(tmp_path / "a.pt", body))
    assert time.perf_counter() - start < 5


def test_module_that_contains_itself(tmp_path: Path) -> None:
    body = module("models.yolo.Model")[:-1] + b"q\x05"  # not built yet; the memo may be used inside
    inner = named("models.yolo.Model") + b")\x81q\x05"
    body = inner + dictionary({"_modules": dictionary({"a": b"h\x05", "b": b"h\x05"})}) + b"b"
    with pytest.raises(CheckpointError, match="nested without end"):
        read_torch_file(write_zip(tmp_path / "a.pt", dictionary({"model": body})))


def test_shared_modules_doubling_at_each_level(tmp_path: Path) -> None:
    body = module("models.yolo.Model") + b"q\x00"
    for level in range(1, 60):
        pair = dictionary({"a": b"h" + bytes([level - 1]), "b": b"h" + bytes([level - 1])})
        body += b"0" + instance("models.yolo.Model", {"_modules": pair}) + b"q" + bytes([level])
    with pytest.raises(CheckpointError, match="nested without end"):
        read_torch_file(write_zip(tmp_path / "a.pt", body))


def test_large_module_in_many_places(tmp_path: Path) -> None:
    large = module("models.yolo.Model", {f"p{i}": b"N" for i in range(5000)}) + b"q\x00"
    places = dictionary({f"m{i}": b"h\x00" for i in range(5000)})
    body = large + b"0" + instance("models.yolo.Model", {"_modules": places})
    with pytest.raises(CheckpointError, match="nested without end"):
        read_torch_file(write_zip(tmp_path / "a.pt", body))


def test_long_names_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.pt", state_dict(**{"w" * 2000: tensor("0", 6)}), {"0": NUMBERS.tobytes()})
    with pytest.raises(CheckpointError, match="reasonable length"):
        read_torch_file(path)
