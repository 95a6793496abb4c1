from __future__ import annotations

import json
import logging
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest
from coco_folders import annotation, image, small_coco, write_image, write_split

from msrun_cli.data import coco, label_cache
from msrun_cli.data.coco import read_coco
from msrun_cli.data.label_cache import Index, cached_index, content_hash, state_hash
from msrun_cli.data.record_table import RecordTable
from msrun_cli.data.yolo import read_yolo


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "labels"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The annotation files that were really read."""
    files: list[str] = []
    plain = coco.index_coco
    monkeypatch.setattr(
        coco, "index_coco", lambda found, keep: (files.append(found.annotations.name), plain(found, keep))[1]
    )
    return files


def awkward(root: Path) -> Path:
    """A dataset about which there is much to say."""
    images = [image("a", "1.png"), image(7, "sub/2.png"), image("again", "1.png"), image(9, "3.png"), image(8, "x\0y")]
    boxes = [[1, 2, 3, 4], [1, 2, 3, 4], [60, 40, 20, 20], [1, 1, 0, 0], [5.25, 5, 4, 4.125]]
    annotations = [annotation(number, "a", box) for number, box in enumerate(boxes)]
    annotations += [annotation(10, 7, [3, 3, 9, 9], 7, 1), annotation(11, "nobody", [1, 1, 2, 2])]
    write_split(root, images, annotations, folder=None)
    for name in ("1.png", "sub/2.png", "3.png"):
        write_image(root / "images/train" / name)
    return root


def contents(data) -> list:
    def of_record(record) -> list:
        arrays = [record.boxes_xyxy.tolist(), record.labels.tolist(), record.iscrowd.tolist()]
        return [record.image_path, record.image_id, record.width, record.height, *arrays]

    def of_split(split) -> list:
        records = [of_record(record) for record in split.records]
        return [records, split.records.source_xywh.tolist(), split.faults, split.annotation_file]

    return [of_split(data.train), of_split(data.val), data.notes, data.class_names, data.category_ids]


def test_the_second_time_nothing_is_read_and_the_same_is_said(tmp_path: Path, cache: Path, built: list[str]) -> None:
    root = str(awkward(tmp_path / "data"))
    first, second = read_coco(root), read_coco(root)
    assert built == ["instances_train.json"] and len(list(cache.iterdir())) == 1
    assert contents(first) == contents(second) == contents(read_coco(root, label_cache=False))
    text = "\n".join(first.notes)
    for said in (
        "1 repeated image entries",
        "1 repeated annotations",
        "1 boxes cut",
        "1 boxes of zero",
        "1 crowd boxes",
    ):
        assert said in text
    assert [fault.path for fault in first.train.faults] == [f"{root}/images/train/x\0y"]


def test_changed_content_and_settings_are_read_anew(tmp_path: Path, cache: Path, built: list[str]) -> None:
    root = awkward(tmp_path / "data")
    file = root / "annotations/instances_train.json"
    times = os.stat(file).st_atime_ns, os.stat(file).st_mtime_ns
    assert len(read_coco(str(root)).train.records[0].labels) == 3
    file.write_text(file.read_text().replace("5.25", "6.25"))
    os.utime(file, ns=times)  # the same size and time
    assert read_coco(str(root)).train.records[0].boxes_xyxy[2, 0] == 6.25
    assert len(read_coco(str(root), keep_empty=False).train.records) == 1
    assert len(built) == 3 and len(list(cache.iterdir())) == 3


def test_small_files_of_the_same_size_and_time_are_not_mixed_up(tmp_path: Path) -> None:
    file = tmp_path / "1.txt"
    file.write_text("0 0.5 0.5 0.2 0.2\n")
    before, times = state_hash([str(file)]), (os.stat(file).st_atime_ns, os.stat(file).st_mtime_ns)
    assert state_hash([str(file)]) == before
    time.sleep(0.02)  # the clock of a file system is coarse
    file.write_text("1 0.5 0.5 0.2 0.2\n")
    os.utime(file, ns=times)
    assert state_hash([str(file)]) != before


def test_a_moved_dataset_is_found_by_its_content(tmp_path: Path, cache: Path, built: list[str]) -> None:
    root = awkward(tmp_path / "data")
    read_coco(str(root))
    root.rename(tmp_path / "moved")
    assert read_coco(str(tmp_path / "moved")).train.records[1].image_path == f"{tmp_path}/moved/images/train/sub/2.png"
    assert len(built) == 1


def test_sizes_from_the_images_are_not_kept(tmp_path: Path, cache: Path) -> None:
    path = write_split(tmp_path, [image(1, "a.png", 40, 30)], [])
    content = json.loads(path.read_text())
    content["images"][0] |= {"width": 0, "height": "unknown"}
    path.write_text(json.dumps(content))
    assert read_coco(str(tmp_path)).train.records[0].width == 40
    write_image(tmp_path / "images/train/a.png", 20, 10)
    assert read_coco(str(tmp_path)).train.records[0].width == 20
    assert not cache.exists()


def tiny_index() -> Index:
    return Index({"t": RecordTable.of(())}, {"classes": ["cat"]})


@pytest.mark.parametrize(
    "damage", ["empty", "text", "cut", "npy", "pickle", "other key", "other columns", "labels", "a folder"]
)
def test_a_damaged_cache_is_made_anew_with_a_line(
    tmp_path: Path, cache: Path, damage: str, caplog: pytest.LogCaptureFixture, built: list[str]
) -> None:
    root = str(small_coco(tmp_path / "data"))
    wanted = contents(read_coco(root))
    (path,) = cache.iterdir()
    good = path.read_bytes()
    arrays = dict(np.load(path))
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not an index")
    elif damage == "cut":
        path.write_bytes(good[: len(good) // 2])
    elif damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage in ("npy", "pickle"):
        with path.open("wb") as file:
            np.save(file, np.array([{}], object) if damage == "pickle" else np.zeros(3))
    else:
        if damage == "other key":
            arrays["head"] = np.frombuffer(arrays["head"].tobytes().replace(b'"key": "', b'"key": "0'), np.uint8)
        elif damage == "labels":
            arrays["records/labels"] = arrays["records/labels"] + 1
        else:
            del arrays["records/boxes_xyxy"]
        with path.open("wb") as file:
            np.savez(file, **arrays)
    with caplog.at_level(logging.WARNING, "msrun"):
        assert contents(read_coco(root)) == wanted
    assert caplog.records[0].getMessage().startswith("label cache: ")
    assert len(built) == 2
    if damage != "a folder":  # which nobody may remove
        caplog.clear()
        read_coco(root)
        assert len(built) == 2 and not caplog.records


def test_an_unwritable_cache_is_said_once_and_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "msrun"):
        assert len(read_coco(str(small_coco(tmp_path))).train.records) == 12
    assert ["MSRUN_CACHE_DIR" in line.getMessage() for line in caplog.records] == [True]


def test_runs_that_start_together_agree(tmp_path: Path, cache: Path) -> None:
    root = str(awkward(tmp_path / "data"))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_notes, [root] * 8)
    assert len({tuple(notes) for notes in found}) == 1
    assert [path.suffix for path in cache.iterdir()] == [".npz"]  # and no temporary file


def _notes(root: str) -> list[str]:
    return list(read_coco(root).notes)


def test_an_interrupted_write_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("msrun_cli.data.label_cache.np.savez", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cached_index("test", [], tiny_index)
    assert list(cache.iterdir()) == []


def test_old_indexes_are_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_cache, "_KEPT", 3)
    for number in range(5):
        cached_index("test", [str(number)], tiny_index)
    assert len(list(cache.iterdir())) == 3


def test_label_files_are_known_by_size_and_time(tmp_path: Path, cache: Path) -> None:
    write_image(tmp_path / "images/a.png", 100, 50)
    write_image(tmp_path / "images/b.png", 100, 50)
    label = tmp_path / "labels/a.txt"
    label.parent.mkdir()
    label.write_text("0 0.5 0.5 0.1 0.1\n")

    def boxes() -> int:
        records = read_yolo(str(tmp_path / "images"), names=["cat"]).train.records
        return sum(len(record.labels) for record in records)

    assert boxes() == 1 and boxes() == 1 and len(list(cache.iterdir())) == 1
    (tmp_path / "labels/b.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert boxes() == 2
    label.write_text("0 0.5 0.5 0.1 0.1\n0 0.2 0.5 0.1 0.1\n")
    assert boxes() == 3


def test_hashes(tmp_path: Path) -> None:
    path = tmp_path / "文 件"
    absent = state_hash([str(path), "a\0b"])
    path.write_text("one")
    assert state_hash([str(path)]) != absent and content_hash(path)[:8] == "7692c3ad"
