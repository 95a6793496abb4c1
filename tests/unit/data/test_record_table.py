from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from msrun_cli.data.record_table import RecordTable, Strings, offsets_of, trained_counts
from msrun_cli.data.records import Record


def record(path: str, boxes: int, crowds: int = 0) -> Record:
    rng = np.random.default_rng(len(path))
    corners = np.sort(rng.uniform(0, 40, (boxes, 2, 2)), axis=1).reshape(-1, 4).astype(np.float32)
    return Record(path, path, corners, np.arange(boxes), np.arange(boxes) < crowds, 64, 48 + boxes)


RECORDS = [record("a.png", 2), record("图 片/ä b.png", 0), record("x/\udcff.png", 5, 2), record("z", 1, 1)]


def assert_same(found: Record, wanted: Record) -> None:
    assert (found.image_path, found.image_id) == (wanted.image_path, wanted.image_id)
    assert (found.width, found.height) == (wanted.width, wanted.height)
    for name in ("boxes_xyxy", "labels", "iscrowd"):
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_it_gives_the_records_back() -> None:
    table = RecordTable.of(RECORDS)
    assert len(table) == 4 and len(list(table)) == 4
    for found, wanted in zip(table, RECORDS, strict=True):
        assert_same(found, wanted)
    assert_same(table[-1], RECORDS[-1])
    for index in (4, -5):
        with pytest.raises(IndexError):
            table[index]


def test_parts_keep_their_boxes() -> None:
    table = RecordTable.of(RECORDS)
    for part, wanted in ((table[1:], [1, 2, 3]), (table[::-2], [3, 1]), (table.select(np.array([2, 2, 0])), [2, 2, 0])):
        assert len(part) == len(wanted)
        for found, index in zip(part, wanted, strict=True):
            assert_same(found, RECORDS[index])
    assert len(table.select(np.zeros(0, np.int64))) == 0


def test_counts_without_loops() -> None:
    table = RecordTable.of(RECORDS)
    assert table.trained_counts().tolist() == [2, 0, 3, 0] == trained_counts(RECORDS).tolist()
    assert table.record_of_box().tolist() == [0, 0, 2, 2, 2, 2, 2, 3]
    assert trained_counts(RecordTable.of(())).tolist() == []


def test_nobody_changes_it() -> None:
    table = RecordTable.of(RECORDS)
    with pytest.raises(ValueError, match="read-only"):
        table[0].boxes_xyxy[0, 0] = 1
    assert copy.deepcopy(table) is table
    assert np.shares_memory(table[2].boxes_xyxy, table.boxes_xyxy)


@pytest.mark.parametrize("ids", [None, np.array([3, 1, 2, -9]), Strings.of([b'"a"', b"7", b"1.5", b"null"])])
def test_columns_through_a_file(ids: np.ndarray | Strings | None) -> None:
    plain = RecordTable.of(RECORDS)
    table = RecordTable("folder", *(getattr(plain, name) for name in ("names",)), ids, *columns_of(plain))
    file = io.BytesIO()
    np.savez(file, **table.arrays())
    file.seek(0)
    again = RecordTable.from_arrays(dict(np.load(file, allow_pickle=False)), "folder")
    assert again[2].image_path == "folder/x/\udcff.png"
    for found, wanted in zip(again, table, strict=True):
        assert_same(found, wanted)
    if isinstance(ids, Strings):
        assert [entry.image_id for entry in again] == ["a", 7, 1.5, None]


def columns_of(table: RecordTable) -> list[np.ndarray]:
    return [getattr(table, n) for n in ("widths", "heights", "offsets", "boxes_xyxy", "labels", "iscrowd")]


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("offsets", np.array([0, 2, 1, 7, 8])),
        ("offsets", np.array([0, 2, 2, 7, 9])),
        ("offsets", np.array([0, 8])),
        ("boxes_xyxy", np.zeros((8, 4))),
        ("labels", np.zeros(7, np.int64)),
        ("name_offsets", np.array([0, 1, 2, 3, 10**9])),
        ("widths", np.zeros((4, 1), np.int32)),
        ("source_xywh", np.zeros((7, 4))),
    ],
)
def test_columns_that_do_not_fit_are_refused(name: str, wrong: np.ndarray) -> None:
    arrays = RecordTable.of(RECORDS).arrays() | {name: wrong}
    with pytest.raises(ValueError, match="columns of other|offsets that"):
        RecordTable.from_arrays(arrays)


def test_offsets() -> None:
    assert offsets_of([]).tolist() == [0] and offsets_of([2, 0, 3]).tolist() == [0, 2, 2, 5]


# In a process of its own: a fork of one that has loaded MindSpore would carry its threads' locks along.
FORKED_READER = """
import json, os
import numpy as np
from msrun_cli.data.record_table import RecordTable, Strings, offsets_of

def private_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_Dirty"))

def growth_in_a_child(records):
    reading, writing = os.pipe()
    if os.fork() == 0:
        before = private_bytes()
        boxes = sum(len(record.labels) + record.boxes_xyxy.shape[0] + bool(record.image_path) for record in records)
        assert boxes == COUNT * (2 * EACH + 1)
        os.write(writing, str(private_bytes() - before).encode())
        os._exit(0)
    os.close(writing)
    return int(os.read(reading, 99))

COUNT, EACH = 20_000, 9
names = Strings.of(f"images/train2017/{row:012d}.jpg".encode() for row in range(COUNT))
side, total = np.full(COUNT, 640, np.int32), COUNT * EACH
table = RecordTable("data", names, None, side, side, offsets_of([EACH] * COUNT), np.ones((total, 4), np.float32),
                    np.ones(total, np.int64), np.ones(total, bool), np.ones((total, 4)))
size = sum(array.nbytes for array in table.arrays().values())
print(json.dumps({"size": size, "table": growth_in_a_child(table), "list": growth_in_a_child(list(table))}))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's table of a process's memory")
def test_a_forked_reader_shares_it() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", FORKED_READER], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert grown["size"] > 10e6
    assert grown["table"] < grown["size"] / 3
    assert grown["list"] > grown["size"] / 3  # what is measured: objects are copied as they are read
