from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from coco_folders import annotation, image, small_coco, write_split

from msrun_cli.common.errors import DataError
from msrun_cli.data import pictures, workers
from msrun_cli.data.coco import read_coco
from msrun_cli.data.detection import eval_pipeline, max_boxes_of, partner_window_of, train_pipeline
from msrun_cli.data.pictures import Pictures, Reading
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.pixel_cache import GIB
from msrun_cli.data.records import Record, Split
from msrun_cli.data.samples import TrainSamples, epoch_order
from msrun_cli.transforms.affine import RandomAffine
from msrun_cli.transforms.chain import Chain, Stage
from msrun_cli.transforms.color import RandomHSV
from msrun_cli.transforms.flip import RandomHorizontalFlip
from msrun_cli.transforms.letterbox import Letterbox
from msrun_cli.transforms.mosaic import Mosaic

AUGMENT = Chain({"mosaic": Mosaic(), "affine": RandomAffine(), "hsv": RandomHSV(), "flip": RandomHorizontalFlip()})
LETTERBOX = Chain({"letterbox": Letterbox()})
ONE = LoaderOptions(workers=1)
LOADERS = {"1": ONE, "2 threads": LoaderOptions(2), "2 processes": LoaderOptions(2, python_multiprocessing=True)}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return read_coco(str(small_coco(tmp_path_factory.mktemp("coco"), count=13))).train


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """More records than a window, larger than the network's input."""
    return read_coco(str(small_coco(tmp_path_factory.mktemp("coco"), count=40))).train


def train(split: Split, transforms: Chain = AUGMENT, loader: LoaderOptions = ONE, **changes: object) -> Batches:
    options = {"image_size": 32, "batch_size": 4, "max_boxes": 8, "seed": 3, **changes}
    return train_pipeline(split, transforms, loader=loader, **options)  # type: ignore[arg-type]


def epochs_of(dataset: Batches, number: int) -> list[list[tuple[np.ndarray, ...]]]:
    """As mindspore.train.Model reads: one iterator over all epochs."""
    iterator = dataset.create_tuple_iterator(num_epochs=number, output_numpy=True)
    epochs = []
    for _ in range(number):
        epochs.append([tuple(column.copy() for column in batch) for batch in iterator])
        dataset.reset()
    return epochs


def assert_same(first: list[tuple[np.ndarray, ...]], second: list[tuple[np.ndarray, ...]]) -> None:
    assert len(first) == len(second)
    for left, right in zip(first, second, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)


def test_train_batches_keep_the_contract(split: Split) -> None:
    dataset = train(split)
    assert dataset.get_dataset_size() == 3 and dataset.get_batch_size() == 4
    assert dataset.get_col_names() == ["images", "targets"]
    (batches,) = epochs_of(dataset, 1)
    assert len(batches) == 3
    for images, targets in batches:
        assert images.shape == (4, 32, 32, 3) and images.dtype == np.uint8
        assert targets.shape == (4, 8, 5) and targets.dtype == np.float32
        used = targets[..., 0] >= 0
        assert set(np.unique(targets[..., 0])) <= {-1, 0, 1}
        assert (targets[used][:, 1:] > 0).all() and (targets[..., 1:] <= 1).all()
        assert (targets[~used][:, 1:] == 0).all()


def test_targets_lie_on_their_objects(tmp_path: Path) -> None:
    write_split(tmp_path, [image(1, "a.png")], [annotation(1, 1, [16, 12, 32, 12], 7)])
    dataset = train(read_coco(str(tmp_path)).train, LETTERBOX, batch_size=1)
    ((_, targets),) = epochs_of(dataset, 1)[0]
    # 64x48 -> 32x24, four rows of fill above
    np.testing.assert_allclose(targets[0, 0], [1, 0.5, (4 + 9) / 32, 0.5, 6 / 32])


@pytest.mark.parametrize("name", LOADERS)
def test_any_workers_give_the_same_batches(split: Split, name: str) -> None:
    wanted = epochs_of(train(split), 2)
    found = epochs_of(train(split, loader=LOADERS[name]), 2)
    for first, second in zip(wanted, found, strict=True):
        assert_same(first, second)
    assert not np.array_equal(wanted[0][0][0], wanted[1][0][0])


NEAR = Reading(partner_window=8)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("kind", ["none", "ram", "disk"])
def test_what_is_kept_changes_no_batch(wide: Split, name: str, kind: str, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as forgetful:
        forgetful.setattr("msrun_cli.data.detection._MOST_RECENT_BYTES", 0)
        wanted = epochs_of(train(wide, reading=NEAR), 3)
    reading = replace(NEAR, cache=kind, cache_limit_gib=20 * 32 * 32 * 3 / GIB)  # not for all of them
    for _ in range(2):  # the second time a disk cache is filled already
        found = epochs_of(train(wide, loader=LOADERS[name], reading=reading), 3)
        for first, second in zip(wanted, found, strict=True):
            assert_same(first, second)


def test_without_a_window_any_record_is_a_partner(split: Split) -> None:
    for first, second in zip(epochs_of(train(split), 2), epochs_of(train(split, reading=Reading(13)), 2), strict=True):
        assert_same(first, second)


def test_each_file_is_decoded_once_an_epoch(wide: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = pictures.read_rgb
    monkeypatch.setattr(pictures, "read_rgb", lambda path, *rest: (asked.append(path), read(path, *rest))[1])
    epochs_of(train(wide, loader=LOADERS["2 threads"], reading=NEAR), 1)
    assert len(set(asked)) == 40 and len(asked) <= 44
    asked.clear()
    epochs_of(train(wide, reading=replace(NEAR, cache="ram", cache_limit_gib=1.0)), 4)
    assert len(asked) == len(set(asked)) <= 40


def test_partners_of_a_window_are_near_others_and_all_alike() -> None:
    """Over epochs each record is a partner as often as in a draw over all records, and any two meet."""
    count, epochs = 60, 200
    records = tuple(
        Record("a", 1, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool), 9, 9)
        for _ in range(count)
    )
    samples = TrainSamples(Pictures(records), AUGMENT, image_size=32, max_boxes=8, seed=0, partner_window=16)
    together = np.zeros((count, count), int)
    for epoch in range(epochs):
        order = epoch_order(0, epoch, count)
        place = np.argsort(order)
        for position in range(count):
            choose = samples._partners_of(order, position)
            assert choose is not None
            chosen = choose(np.random.default_rng([0, epoch, position]), 3)
            assert len(set(chosen.tolist()) | {int(order[position])}) == 4
            assert np.abs(place[chosen] - position).max() <= 8
            together[order[position], chosen] += 1
    drawn = together.sum(axis=0)  # the uniform draw: 3 * epochs on average, standard deviation about its root
    assert drawn.sum() == 3 * epochs * count
    assert np.abs(drawn - 3 * epochs).max() < 5 * np.sqrt(3 * epochs)
    assert (together + np.eye(count, dtype=int) > 0).all()


def test_a_window_shows_the_same_distribution_of_boxes(tmp_path: Path) -> None:
    boxes = [[5, 5, 20, 20], [30, 10, 25, 30], [8, 28, 16, 16]]
    annotations = [
        annotation(10 * number + at, number, boxes[at], 1 if number % 3 else 7)
        for number in range(1, 49)
        for at in range(number % 4)
    ]
    write_split(tmp_path, [image(number, f"{number}.png") for number in range(1, 49)], annotations)
    records = read_coco(str(tmp_path)).train
    per_picture, classes = [], []
    for reading in (Reading(), Reading(partner_window=8)):
        dataset = train(records, batch_size=16, max_boxes=16, reading=reading)
        labels = np.concatenate([targets[..., 0] for epoch in epochs_of(dataset, 25) for _, targets in epoch])
        per_picture.append((labels >= 0).sum() / len(labels))
        classes.append((labels == 0).sum() / (labels >= 0).sum())
    assert per_picture[1] == pytest.approx(per_picture[0], rel=0.05)
    assert classes[1] == pytest.approx(classes[0], rel=0.05)


def test_each_iterator_goes_on_with_the_next_epochs(split: Split) -> None:
    wanted = epochs_of(train(split), 4)
    dataset = train(split)
    dataset.output_shapes()  # reads a first row on a copy
    assert_same(epochs_of(dataset, 1)[0], wanted[0])
    half = dataset.create_dict_iterator(num_epochs=1, output_numpy=True)
    np.testing.assert_array_equal(next(half)["images"], wanted[1][0][0])  # dropped after a step
    assert_same(epochs_of(dataset, 2)[0], wanted[2])
    assert_same(epochs_of(train(split, first_epoch=3), 1)[0], wanted[3])


@pytest.mark.parametrize("name", LOADERS)
def test_a_run_goes_on_from_the_middle_of_an_epoch(split: Split, name: str) -> None:
    wanted = epochs_of(train(split), 3)
    dataset = train(split, loader=LOADERS[name], first_epoch=1, first_step=2)
    assert dataset.get_dataset_size() == 3
    first, second = epochs_of(dataset, 2)
    assert_same(first, wanted[1][2:])
    assert_same(second, wanted[2])


@pytest.mark.parametrize("name", LOADERS)
def test_a_step_that_ends_in_an_epoch_does_so_for_any_reader(split: Split, name: str) -> None:
    staged = Chain(AUGMENT.steps, {"mosaic": Stage(end=2), "flip": Stage(first=1)})
    wanted = epochs_of(train(split, staged), 3)
    assert_same(epochs_of(train(split, staged, LOADERS[name], first_epoch=1, first_step=1), 1)[0], wanted[1][1:])
    assert_same(epochs_of(train(split, staged, LOADERS[name], first_epoch=2), 1)[0], wanted[2])
    without = Chain({name: step for name, step in AUGMENT.steps.items() if name != "mosaic"})
    assert_same(epochs_of(train(split, without, first_epoch=2), 1)[0], wanted[2])
    assert not np.array_equal(epochs_of(train(split, without, first_epoch=1), 1)[0][0][0], wanted[1][0][0])


def test_skipped_batches_are_not_read(split: Split) -> None:
    dataset = train(split, first_step=2)
    asked: list[int] = []
    rows_of = dataset.rows.indices_of
    dataset.rows.indices_of = lambda row: (asked.append(row), rows_of(row))[1]
    epochs_of(dataset, 1)
    assert asked == [2]


def test_each_epoch_shows_every_picture_once(split: Split) -> None:
    dataset = train(split, LETTERBOX, batch_size=13)
    orders = []
    for ((images, _),) in epochs_of(dataset, 2):
        assert len(np.unique(images.reshape(13, -1), axis=0)) == 13
        orders.append(images)
    assert not np.array_equal(*orders)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("reading", [Reading(), Reading(partner_window=8)])
def test_ranks_share_the_batches_of_one(split: Split, ranks: int, reading: Reading) -> None:
    (whole,) = epochs_of(train(split, batch_size=2 * ranks, reading=reading), 1)
    parts = [epochs_of(train(split, batch_size=2, shard=(r, ranks), reading=reading), 1)[0] for r in range(ranks)]
    for step, batch in enumerate(whole):
        for rank in range(ranks):
            assert_same([tuple(column[rank::ranks] for column in batch)], [parts[rank][step]])
    assert {len(part) for part in parts} == {13 // (2 * ranks)}


def test_too_few_images_say_what_to_set(split: Split) -> None:
    with pytest.raises(DataError, match="13 images, fewer than one batch .*at most 13"):
        train(split, batch_size=14)
    with pytest.raises(DataError, match="on 2 ranks.*at most 6"):
        train(split, batch_size=7, shard=(0, 2))
    with pytest.raises(DataError, match="no images"):
        train(Split("train", ()))
    with pytest.raises(ValueError, match="first_step=3"):
        train(split, first_step=3)


@pytest.mark.parametrize("name", LOADERS)
def test_evaluation_reads_each_record_once_in_order(split: Split, name: str) -> None:
    dataset = eval_pipeline(split, LETTERBOX, image_size=32, batch_size=4, loader=LOADERS[name])
    assert dataset.get_dataset_size() == 4
    for _ in range(2):
        batches = list(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))
        assert [len(batch["images"]) for batch in batches] == [4, 4, 4, 1]
        index = np.concatenate([batch["index"] for batch in batches])
        assert index.tolist() == list(range(13)) and index.dtype == np.int32
        geometry = np.concatenate([batch["geometry"] for batch in batches])
        assert geometry.dtype == np.float32
        np.testing.assert_array_equal(geometry, np.tile([0.5, 0, 4, 64, 48], (13, 1)))


def test_evaluation_shards_cover_all_records(split: Split) -> None:
    parts = [
        eval_pipeline(split, LETTERBOX, image_size=32, batch_size=4, loader=ONE, shard=(rank, 2)) for rank in range(2)
    ]
    found = [b["index"].tolist() for part in parts for b in part.create_dict_iterator(num_epochs=1, output_numpy=True)]
    assert found == [[0, 2, 4, 6], [8, 10, 12], [1, 3, 5, 7], [9, 11]]
    with pytest.raises(DataError, match="nothing to evaluate"):
        eval_pipeline(Split("val", ()), LETTERBOX, image_size=32, batch_size=4, loader=ONE)


def test_evaluation_refuses_chains_without_geometry(split: Split) -> None:
    dataset = eval_pipeline(split, AUGMENT, image_size=32, batch_size=4, loader=ONE)
    with pytest.raises(DataError, match="eval_transforms"):
        next(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))


@pytest.mark.parametrize("name", LOADERS)
def test_a_bad_file_is_named(tmp_path: Path, name: str) -> None:
    split = read_coco(str(small_coco(tmp_path))).train
    bad = Path(split.records[5].image_path)
    bad.write_bytes(bad.read_bytes()[:-40])
    with pytest.raises(DataError) as caught:
        epochs_of(train(split, LETTERBOX, loader=LOADERS[name]), 1)
    assert str(caught.value).startswith(f"{bad} is truncated") and "Error" not in str(caught.value)


def test_other_failures_name_the_file_too(split: Split) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    with pytest.raises(RuntimeError, match=r"transforms failed on .*\.png: KeyError: 'oops'"):
        epochs_of(train(split, Chain({"broken": broken})), 1)  # type: ignore[dict-item]


@pytest.mark.parametrize("name", LOADERS)
def test_cut_boxes_are_said_once(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    split = read_coco(str(small_coco(tmp_path, boxes=9))).train
    with caplog.at_level(logging.WARNING, "msrun"):
        ((_, targets), *_), _ = epochs_of(train(split, LETTERBOX, LOADERS[name], max_boxes=8), 2)
    assert (targets[..., 0] >= 0).all()
    (message,) = [record.getMessage() for record in caplog.records if "max_boxes" in record.getMessage()]
    assert "max_boxes=8" in message and "dataset.max_boxes" in message


def test_more_workers_than_cores_are_clamped_and_said_once(split: Split, caplog: pytest.LogCaptureFixture) -> None:
    workers._said.clear()
    with caplog.at_level(logging.WARNING, "msrun"):
        for _ in range(2):
            epochs_of(train(split, loader=LoaderOptions(workers=500)), 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"dataset.workers=500 is more than the {os.cpu_count()} cores of this machine: using {os.cpu_count()}."
    ]


def test_a_measurement_of_readers_counts_no_cut_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "SECONDS", 0.02)
    monkeypatch.setattr(workers, "_found", {})
    split = read_coco(str(small_coco(tmp_path, boxes=9))).train
    with caplog.at_level(logging.INFO, "msrun"):
        dataset = train(split, LETTERBOX, LoaderOptions("auto"))
    assert "dataset.workers=auto: " in caplog.text
    assert dataset.readers in range(1, (os.cpu_count() or 1) + 1)
    assert dataset.rows.samples.cuts.count == 0
    assert len(epochs_of(dataset, 1)[0]) == 3


def split_with(counts: list[int]) -> Split:
    def record(count: int) -> Record:
        crowd = np.array([True] + [False] * count)  # never trained on, so never counted
        return Record("a", 1, np.zeros((count + 1, 4), np.float32), np.zeros(count + 1, np.int64), crowd, 9, 9)

    return Split("train", tuple(record(count) for count in counts))


def test_max_boxes_holds_every_merge_while_that_is_cheap() -> None:
    assert max_boxes_of(split_with([0]), LETTERBOX) == 8
    assert max_boxes_of(Split("train", ()), LETTERBOX) == 8
    assert max_boxes_of(split_with([1, 9]), LETTERBOX) == 16
    assert max_boxes_of(split_with([1, 9]), AUGMENT) == 40
    assert max_boxes_of(split_with([1, 50]), AUGMENT) == 200
    assert max_boxes_of(split_with([1, 300]), LETTERBOX) == 304


def test_max_boxes_of_rare_crowded_pictures_is_a_quantile() -> None:
    counts = [3] * 9990 + [90] * 10
    found = max_boxes_of(split_with(counts), AUGMENT)
    drawn = np.random.default_rng(0).choice(counts, (200_000, 4)).sum(axis=1)
    assert found % 8 == 0 and 90 + 9 <= found < 200
    assert np.mean(drawn > found) <= 1.5e-4
    assert max_boxes_of(split_with([60, 60]), AUGMENT) == 240
    # A picture that stands alone must fit.
    assert max_boxes_of(split_with([1] * 100_000 + [300]), AUGMENT) >= 300


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: workers stay in the main process")
@pytest.mark.parametrize("stop", ["close", "interrupt", "kill"])
def test_no_process_stays_behind(tmp_path: Path, stop: str) -> None:
    small_coco(tmp_path)
    command = [sys.executable, "-c", _READER, str(tmp_path), stop]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert process.stdout is not None
    line = process.stdout.readline()
    children = [psutil.Process(int(number)) for number in line.split()]
    assert len(children) >= 2
    if stop != "close":
        process.send_signal(signal.SIGINT if stop == "interrupt" else signal.SIGKILL)
    process.wait(timeout=20)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and any(_alive(child) for child in children):
        time.sleep(0.05)
    assert not any(_alive(child) for child in children)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_READER = """
import sys, time, psutil
from msrun_cli.data.coco import read_coco
from msrun_cli.data.detection import partner_window_of, train_pipeline
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.transforms.chain import Chain
split = read_coco(sys.argv[1]).train
loader = LoaderOptions(2, python_multiprocessing=True)
dataset = train_pipeline(split, Chain({}), image_size=32, batch_size=4, max_boxes=8, seed=0, loader=loader)
iterator = dataset.create_tuple_iterator(num_epochs=1000, output_numpy=True)
next(iterator)
print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
while sys.argv[2] != "close":
    next(iterator)
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("wanted", "count", "image_size", "batch_size", "window"),
    [
        ("auto", 436, 640, 16, None),  # 512 MiB hold 436 pictures of 640 px
        ("auto", 437, 640, 16, 404),  # two batches are in the making
        ("auto", 118000, 2048, 16, 64),
        (16, 100, 640, 16, 16),
        (None, 118000, 640, 16, None),
    ],
)
def test_the_partner_window_follows_from_the_size_of_the_pictures(
    wanted, count, image_size, batch_size, window
) -> None:
    assert partner_window_of(wanted, count, image_size, batch_size) == window
