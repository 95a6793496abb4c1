"""dataset.on_bad_sample before and while training."""

from __future__ import annotations

import csv
import gc
import logging
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from coco_folders import annotation, image, small_coco, write_image, write_split

from msrun_cli.common.errors import DataError
from msrun_cli.data import screening
from msrun_cli.data.bad_samples import BadSamples, GuardedReading
from msrun_cli.data.coco import read_coco
from msrun_cli.data.detection import eval_pipeline, train_pipeline
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.records import BadSample, DetectionData, Split
from msrun_cli.data.samples import epoch_order
from msrun_cli.data.scan import scan_images
from msrun_cli.data.screening import scan_new_images, screen
from msrun_cli.data.yolo import read_yolo
from msrun_cli.transforms.chain import Chain
from msrun_cli.transforms.letterbox import Letterbox
from msrun_cli.transforms.mosaic import Mosaic

LETTERBOX = Chain({"letterbox": Letterbox()})
LOADERS = {
    "1": LoaderOptions(1),
    "2 threads": LoaderOptions(2),
    "2 processes": LoaderOptions(2, python_multiprocessing=True),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"


@pytest.fixture
def data(tmp_path: Path) -> DetectionData:
    return read_coco(str(small_coco(tmp_path / "数据", count=12)))


def spoil(split: Split, **kinds: str) -> None:
    """position=kind for each image to spoil."""
    for key, kind in kinds.items():
        path = Path(split.records[int(key[1:])].image_path)
        if kind == "missing":
            path.unlink()
        elif kind == "link":
            path.unlink()
            path.symlink_to("nowhere")
        elif kind == "size":
            write_image(path, 20, 10)
        else:
            path.write_bytes({"empty": b"", "cut": path.read_bytes()[:-40], "text": b"no image"}[kind])


KINDS = {"_1": "missing", "_3": "cut", "_4": "empty", "_6": "text", "_8": "size", "_9": "link"}


def listed(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_skip_leaves_out_counts_and_lists(tmp_path: Path, data: DetectionData) -> None:
    spoil(data.train, **KINDS)
    good = screen(data, BadSamples("skip", tmp_path / "bad.csv"), check_images=True)
    assert [record.image_id for record in good.train.records] == [0, 2, 5, 7, 10, 11]
    assert good.val.records is good.train.records
    (note,) = good.notes[len(data.notes) :]
    assert note.startswith("train: 6 of 12 images are bad and left out: ") and note.endswith("; and 1 more")
    assert note.count(".png") == 5 and "\n" not in note
    header, *rows = listed(tmp_path / "bad.csv")
    assert header == ["path", "reason"] and [Path(path).name for path, _ in rows] == [
        f"{n:03d}.png" for n in (1, 3, 4, 6, 8, 9)
    ]
    for reason, said in zip(
        (row[1] for row in rows), ("No such", "truncated", "empty", "not an image", "20x10", "No such"), strict=True
    ):
        assert said in reason


def test_error_stops_with_the_first_five_and_the_total(data: DetectionData, tmp_path: Path) -> None:
    spoil(data.train, **KINDS)
    with pytest.raises(DataError) as caught:
        screen(data, BadSamples("error", tmp_path / "bad.csv"), check_images=True)
    text = str(caught.value)
    assert text.startswith("6 of the 12 images are bad (dataset.on_bad_sample=error)")
    assert text.count(".png") == 5 and "and 1 more" in text and caught.value.exit_code == 3
    assert not (tmp_path / "bad.csv").exists()


def test_names_that_are_no_text_can_be_said(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    write_image(folder / "a.png")
    odd = os.path.join(os.fsencode(folder), b"\xff\xfe.png")
    Path(os.fsdecode(odd)).write_bytes((folder / "a.png").read_bytes()[:-20])
    for name in (b"a.txt", b"\xff\xfe.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_text("0 .5 .5 .5 .5")
    folder.rename(tmp_path / "pictures")
    for _ in range(2):
        data = read_yolo(str(tmp_path / "pictures"), names=["cat"])
        good = screen(data, BadSamples("skip", tmp_path / "bad.csv"), check_images=True)
        assert len(good.train.records) == 1
        assert good.notes[-1].encode().count(b"\\udcff\\udcfe.png") == 1
    assert b"\xff\xfe.png" in (tmp_path / "bad.csv").read_bytes()


@pytest.mark.parametrize("policy", ["skip", "error"])
def test_when_all_are_bad_the_reason_is_shown(data: DetectionData, policy: str) -> None:
    for record in data.train.records:
        Path(record.image_path).unlink()
    with pytest.raises(
        DataError, match=r"all 12 train images are bad or missing:\n.*000.png cannot be read: No such file"
    ):
        screen(data, BadSamples(policy), check_images=True)


def test_clean_data_stay_as_they_are(data: DetectionData, tmp_path: Path) -> None:
    good = screen(data, BadSamples("skip", tmp_path / "bad.csv"), check_images=True)
    assert good.train.records is data.train.records and good.notes == data.notes
    assert not (tmp_path / "bad.csv").exists()


def test_without_the_check_only_label_faults_count(tmp_path: Path) -> None:
    for name, text in (("a", "0 .5 .5 .5 .5"), ("b", "oops"), ("c", "0 .5 .5 .5 .5")):
        write_image(tmp_path / "images" / f"{name}.png")
        (tmp_path / "labels").mkdir(exist_ok=True)
        (tmp_path / "labels" / f"{name}.txt").write_text(text)
    data = read_yolo(str(tmp_path / "images"), names=["cat"])
    Path(data.train.records[1].image_path).write_bytes(b"no image")
    assert len(screen(data, BadSamples("skip"), check_images=False).train.records) == 2
    assert len(screen(data, BadSamples("skip"), check_images=True).train.records) == 1
    for check, number in ((False, 1), (True, 2)):
        with pytest.raises(DataError, match=f"{number} of the 3 images are bad"):
            screen(data, BadSamples("error"), check_images=check)


def test_only_the_wanted_split_is_judged(tmp_path: Path) -> None:
    small_coco(tmp_path)
    write_split(
        tmp_path,
        [image(1, "v.png")],
        [annotation(1, 1, [1, 1, 5, 5])],
        file="annotations/instances_val.json",
        folder="val",
    )
    data = read_coco(str(tmp_path))
    spoil(data.train, _0="missing")
    assert screen(data, BadSamples("error"), check_images=True, splits=("val",)).train is data.train
    with pytest.raises(DataError, match="1 of the 13 images"):
        screen(data, BadSamples("error"), check_images=True)


def test_images_that_passed_are_not_opened_again(
    data: DetectionData, monkeypatch: pytest.MonkeyPatch, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = data.train.records
    opened: list[str] = []

    def counting(chosen):
        opened.extend(Path(record.image_path).name for record in chosen)
        return scan_images(chosen)

    monkeypatch.setattr(screening, "scan_images", counting)
    spoil(data.train, _3="cut")
    assert [fault.index for fault in scan_new_images(records)] == [3] and len(opened) == 12
    opened.clear()
    assert [fault.index for fault in scan_new_images(records)] == [3] and opened == ["003.png"]
    opened.clear()
    spoil(data.train, _5="text")
    write_image(Path(records[3].image_path))
    os.utime(records[7].image_path, ns=(1, 1))
    assert [fault.index for fault in scan_new_images(records)] == [5] and opened == ["003.png", "005.png", "007.png"]
    opened.clear()
    (file,) = cache.iterdir()
    file.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "msrun"):
        assert [fault.index for fault in scan_new_images(records)] == [5] and len(opened) == 12
    assert [line.getMessage().endswith("made anew") for line in caplog.records] == [True]


def test_an_unwritable_cache_is_said(data: DetectionData, tmp_path: Path, monkeypatch, caplog) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "msrun"):
        assert scan_new_images(data.train.records) == []
    assert ["MSRUN_CACHE_DIR" in line.getMessage() for line in caplog.records] == [True]


# -- while training


def train(split: Split, bad: BadSamples | None, loader: LoaderOptions, chain: Chain = LETTERBOX) -> Batches:
    options = {"image_size": 32, "batch_size": 4, "max_boxes": 16, "seed": 3}
    return train_pipeline(split, chain, loader=loader, bad=bad, **options)


def epoch_of(dataset: Batches, number: int = 1) -> list[tuple[np.ndarray, ...]]:
    iterator = dataset.create_tuple_iterator(num_epochs=number, output_numpy=True)
    found = []
    for _ in range(number):
        found += [tuple(column.copy() for column in batch) for batch in iterator]
        dataset.reset()
    return found


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "chain", [LETTERBOX, Chain({"mosaic": Mosaic(), "letterbox": Letterbox()})], ids=["plain", "mosaic"]
)
def test_the_next_readable_image_stands_in(
    data: DetectionData, tmp_path: Path, name: str, chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    before = epoch_of(train(data.train, None, LOADERS["1"]))
    spoil(data.train, _3="missing", _7="text")
    bad = BadSamples("skip", tmp_path / "bad.csv")
    after = epoch_of(train(data.train, bad, LOADERS[name], chain), 2)
    again = epoch_of(train(data.train, BadSamples("skip"), LOADERS["1"], chain), 2)
    for one, other in zip(after, again, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
    with caplog.at_level(logging.WARNING, "msrun"):
        bad.say()
        bad.say()
    (line,) = [line.getMessage() for line in caplog.records]
    assert line.startswith("2 more images turned bad") and "003.png" in line and "007.png" in line
    assert sorted({Path(path).name for path, _ in listed(tmp_path / "bad.csv")[1:]}) == ["003.png", "007.png"]
    if chain is LETTERBOX:
        order = epoch_order(3, 0, 12).tolist()
        readable = [index for index in order if index not in (3, 7)]
        images = np.concatenate([batch[0] for batch in before])
        shown = np.concatenate([batch[0] for batch in after[:3]])
        for position, index in enumerate(order):
            while index not in readable:
                index = order[(order.index(index) + 1) % 12]
            np.testing.assert_array_equal(shown[position], images[order.index(index)])


@pytest.mark.parametrize("name", LOADERS)
def test_under_error_the_file_is_named(data: DetectionData, name: str) -> None:
    spoil(data.train, _3="missing")
    with pytest.raises(DataError, match=r"^[^\n]*003.png cannot be read: No such file or directory\.$"):
        epoch_of(train(data.train, BadSamples("error"), LOADERS[name]))


def test_when_nothing_is_left_training_ends(data: DetectionData) -> None:
    for record in data.train.records:
        Path(record.image_path).unlink()
    with pytest.raises(DataError, match="none of the images can be read any more, for instance: .*png"):
        epoch_of(train(data.train, BadSamples("skip"), LOADERS["2 threads"]))


@pytest.mark.parametrize("name", LOADERS)
def test_evaluation_leaves_bad_images_out(data: DetectionData, name: str, tmp_path: Path) -> None:
    spoil(data.val, _3="missing", _11="cut")
    bad = BadSamples("skip", tmp_path / "bad.csv")
    options = {"image_size": 32, "batch_size": 5, "loader": LOADERS[name]}
    batches = list(
        eval_pipeline(data.val, LETTERBOX, bad=bad, **options).create_dict_iterator(num_epochs=1, output_numpy=True)
    )
    index = np.concatenate([batch["index"] for batch in batches])
    assert index.tolist() == [0, 1, 2, -1, 4, 5, 6, 7, 8, 9, 10, -1]
    list(eval_pipeline(data.val, LETTERBOX, bad=bad, **options).create_dict_iterator(num_epochs=1, output_numpy=True))
    assert len(listed(tmp_path / "bad.csv")) == 3  # the second evaluation found nothing new
    with pytest.raises(DataError, match="003.png"):
        list(eval_pipeline(data.val, LETTERBOX, **options).create_dict_iterator(num_epochs=1, output_numpy=True))


def test_processes_tell_each_file_once(tmp_path: Path) -> None:
    bad = BadSamples("skip", tmp_path / "bad.csv")
    guard = GuardedReading([_Named(f'{n}, "quoted"\nline.png') for n in range(8)], _fail, bad)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_try_all, args=(guard,)) for _ in range(3)]
    gc.collect()  # or the children collect iterators of other tests, which MindSpore does not survive
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rows = listed(tmp_path / "bad.csv")
    assert {tuple(row) for row in rows[1:]} == {(f'{n}, "quoted"\nline.png', "bad") for n in range(8)}


class _Named:
    def __init__(self, path: str) -> None:
        self.image_path = path


def _fail(_: object) -> None:
    raise DataError("bad")


def _try_all(guard: GuardedReading) -> None:
    for _ in range(3):
        for index in range(8):
            try:
                guard.first_readable([index])
            except DataError:
                pass


def test_a_list_that_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "msrun"):
        BadSamples("skip", tmp_path / "no" / "bad.csv").turned_bad(BadSample("a.png", "gone"))
    assert "cannot be written" in caplog.text and "a.png: gone" in caplog.text
