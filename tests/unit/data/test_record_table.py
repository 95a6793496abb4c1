from __future__ import annotations

import copy
import io

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
