"""Classification batches: shapes, determinism, shards, normalisation on either side, unreadable files."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest
from class_folders import write_class_folders
from mindspore import Tensor

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.classification import eval_pipeline, train_pipeline
from msrun_cli.data.imagefolder import read_imagefolder
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.models.normalize import MEAN, STD, NormalizeImage
from msrun_cli.transforms.chain import Chain, Stage
from msrun_cli.transforms.classification import (
    CenterCrop,
    ColorJitter,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
)
from msrun_cli.transforms.mixing import MixBatch
from msrun_cli.transforms.rand_augment import RandAugment

ALL_STEPS = {
    "crop": RandomResizedCrop(scale=(0.3, 1.0)),
    "flip": RandomFlip(),
    "jitter": ColorJitter(0.3, 0.3, 0.3, 0.1),
    "augment": RandAugment(2, 20),
    "erasing": RandomErasing(0.5),
    "off": None,
}
EVAL_STEPS = {"resize": Resize(), "crop": CenterCrop()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_class_folders(tmp_path_factory.mktemp("图像 data"), train=7, val=3)


@pytest.fixture
def data(root):
    return read_imagefolder(str(root), mean=MEAN, std=STD)


def epochs(data, steps, count=2, workers=1, processes=False, **settings):
    """Columns of `count` epochs, each stacked over the batches."""
    options = {"image_size": 32, "batch_size": 4, "seed": 3, "loader": LoaderOptions(workers, 2, processes)}
    chain = steps if isinstance(steps, Chain) else Chain(steps)
    batches = train_pipeline(data, chain, **(options | settings))
    rows = [list(batches.create_tuple_iterator(num_epochs=1, output_numpy=True)) for _ in range(count)]
    return [[np.stack(column) for column in zip(*epoch, strict=True)] for epoch in rows]


def test_batches_follow_the_contract(data):
    (images, labels), second = epochs(data, ALL_STEPS)
    assert images.shape == (5, 4, 32, 32, 3) and images.dtype == np.uint8  # 21 pictures, the last one is left out
    assert labels.shape == (5, 4) and labels.dtype == np.int32
    assert not np.array_equal(labels, second[1])
    assert set(labels.ravel().tolist()) == {0, 1, 2}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("workers", "processes"), [(2, False), (2, True)])
def test_same_batches_for_any_number_of_workers(data, fused, workers, processes):
    steps = ALL_STEPS | {"crop": RandomResizedCrop(scale=(0.3, 1.0), fused=fused), "mix": MixBatch(0.4, 1.0)}
    expected, found = epochs(data, steps), epochs(data, steps, workers=workers, processes=processes)
    for one, other in zip(expected, found, strict=True):
        for column, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(column, same)
    assert not np.array_equal(expected[0][0], epochs(data, steps, count=1, seed=4)[0][0])


def test_a_resumed_pipeline_goes_on_with_the_same_batches(data):
    steps = ALL_STEPS | {"mix": MixBatch(0.4)}
    _, second = epochs(data, steps)
    (resumed,) = epochs(data, steps, count=1, first_epoch=1, first_step=2)
    for column, same in zip(second, resumed, strict=True):
        np.testing.assert_array_equal(column[2:], same)


def test_shards_are_the_parts_of_the_large_batch(data):
    (large,) = epochs(data, ALL_STEPS, count=1)
    for rank in (0, 1):
        (part,) = epochs(data, ALL_STEPS, count=1, batch_size=2, shard=(rank, 2))
        np.testing.assert_array_equal(part[0], large[0][:, rank::2])
        np.testing.assert_array_equal(part[1], large[1][:, rank::2])


def test_picture_and_label_belong_together(data):
    steps = {"resize": Resize(32), "crop": CenterCrop()}
    ((images, labels),) = epochs(data, steps, count=1)
    batches = eval_pipeline(data, data.train, Chain(steps), image_size=32, batch_size=21, loader=LoaderOptions())
    (batch,) = batches.create_dict_iterator(num_epochs=1, output_numpy=True)
    label_of = {image.tobytes(): label for image, label in zip(batch["images"], batch["labels"], strict=True)}
    for image, label in zip(images.reshape(-1, 32, 32, 3), labels.ravel(), strict=True):
        assert label_of[image.tobytes()] == label


def test_evaluation_gives_every_picture_once_and_the_rest_as_a_smaller_batch(data):
    batches = eval_pipeline(data, data.val, Chain(EVAL_STEPS), image_size=32, batch_size=4, loader=LoaderOptions())
    rows = list(batches.create_dict_iterator(num_epochs=1, output_numpy=True))
    assert [len(row["images"]) for row in rows] == [4, 4, 1]
    assert np.concatenate([row["index"] for row in rows]).tolist() == list(range(9))
    np.testing.assert_array_equal(np.concatenate([row["labels"] for row in rows]), data.val.labels)


@pytest.mark.parametrize("mix", [None, MixBatch(cutmix=1.0)])
def test_normalisation_on_the_host_equals_the_device(data, mix):
    steps = ALL_STEPS | {"mix": mix}
    host = dataclasses.replace(data, normalize_on="host")
    ((bytes_, labels),) = epochs(data, steps, count=1)
    ((normal, same),) = epochs(host, steps, count=1)
    assert normal.dtype == np.float32 and normal.shape == (5, 4, 3, 32, 32)
    np.testing.assert_array_equal(labels, same)
    cell = NormalizeImage(MEAN, STD)
    for images, expected in zip(bytes_, normal, strict=True):
        np.testing.assert_allclose(cell(Tensor(images)).asnumpy(), expected, rtol=1e-4, atol=2e-5)


def test_mixed_labels_are_the_shares_of_the_pictures(data):
    """Red, green and blue pictures: what is left of each colour must be what the label says."""
    colours = np.zeros((6, 20, 20, 3), np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2])
    colours[np.arange(6), :, :, labels] = 250
    for seed in range(20):
        for mix in (MixBatch(mixup=0.5), MixBatch(cutmix=1.0), MixBatch(0.5, 1.0)):
            images, soft = mix(np.random.default_rng(seed), colours, labels, 3)
            assert images.dtype == np.uint8 and soft.dtype == np.float32
            np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-6)
            np.testing.assert_allclose(images.mean(axis=(1, 2)) / 250, soft, atol=3e-3)


def test_mixing_can_be_rare_but_labels_stay_probabilities(data):
    ((_, labels),) = epochs(data, {"crop": RandomResizedCrop(), "mix": MixBatch(1.0, probability=0.0001)}, count=1)
    assert labels.shape == (5, 4, 3) and set(labels.ravel().tolist()) == {0.0, 1.0}
    ((_, plain),) = epochs(data, {"crop": RandomResizedCrop(), "mix": MixBatch()}, count=1)
    assert plain.dtype == np.int32


@pytest.fixture
def damaged(tmp_path):
    root = write_class_folders(tmp_path / "damaged", train=7, val=3)
    path = root / "train" / "bees" / "bees3.jpg"
    path.write_bytes(path.read_bytes()[:150])
    (root / "val" / "ants" / "ants1.jpg").write_bytes(b"this is no picture")
    (root / "val" / "wasps" / "wasps0.jpg").write_bytes(b"")
    return root


@pytest.mark.parametrize("fused", [True, False])
def test_damaged_files_are_an_error_or_replaced_and_counted(damaged, fused, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = {"crop": RandomResizedCrop(fused=fused)}
    data = read_imagefolder(str(damaged))
    for bad in (None, BadSamples("error")):
        with pytest.raises(DataError, match=r"bees3\.jpg is damaged"):
            epochs(data, steps, count=1, bad=bad)
    bad = BadSamples("skip")
    (first, second) = epochs(data, steps, batch_size=3, bad=bad, workers=2)
    assert first[0].shape[:2] == second[0].shape[:2] == (7, 3)
    with caplog.at_level(logging.WARNING, "msrun"):
        bad.say()
    assert "1 more images turned bad" in caplog.text and "bees3.jpg" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]  # MindSpore leaves a copy behind otherwise


def test_damaged_files_are_left_out_of_the_evaluation(damaged, caplog):
    data = read_imagefolder(str(damaged))
    bad, chain = BadSamples("skip"), Chain(EVAL_STEPS)
    batches = eval_pipeline(data, data.val, chain, image_size=32, batch_size=4, loader=LoaderOptions(2), bad=bad)
    rows = list(batches.create_dict_iterator(num_epochs=1, output_numpy=True))
    with caplog.at_level(logging.WARNING, "msrun"):
        bad.say()
    labels = np.concatenate([row["labels"] for row in rows])
    assert labels.tolist() == [0, -1, 0, 1, 1, 1, -1, 2, 2]
    assert "2 more images turned bad" in caplog.text


def test_a_folder_of_damaged_files_ends_with_an_error(tmp_path):
    root = write_class_folders(tmp_path / "all", train=2, val=1)
    for path in (root / "train").rglob("*.jpg"):
        path.write_bytes(b"x")
    with pytest.raises(DataError, match="none of the images can be read any more"):
        epochs(read_imagefolder(str(root)), {"crop": RandomResizedCrop()}, count=1, bad=BadSamples("skip"))


def test_steps_are_on_in_their_epochs_alone(data):
    plain = {"crop": RandomResizedCrop()}
    with_all = plain | {"erasing": RandomErasing(1.0), "mix": MixBatch(0.4)}
    stages = {"erasing": Stage(1), "mix": Stage(1)}
    first, second = epochs(data, Chain(with_all, stages))
    (expected,) = epochs(data, plain, count=1)
    np.testing.assert_array_equal(first[0], expected[0])
    np.testing.assert_array_equal(first[1], np.eye(3, dtype=np.float32)[expected[1]])
    (mixed,) = epochs(data, with_all, count=1, first_epoch=1)
    np.testing.assert_array_equal(second[0], mixed[0])
    np.testing.assert_array_equal(second[1], mixed[1])


@pytest.mark.parametrize(("batch_size", "words"), [(22, "21 images.*at most 21"), (30, "fewer than one batch")])
def test_too_few_pictures(data, batch_size, words):
    with pytest.raises(DataError, match=words):
        epochs(data, ALL_STEPS, batch_size=batch_size)


def test_steps_must_end_at_the_size_of_the_network(data):
    with pytest.raises(DataError, match="image_size=32"):
        epochs(data, {"resize": Resize(40)}, count=1)
    with pytest.raises(DataError, match="smaller than image_size=64"):
        epochs(data, {"resize": Resize(40), "crop": CenterCrop()}, count=1, image_size=64)


def test_small_pictures_are_padded_and_cut(data):
    ((images, _),) = epochs(data, {"crop": RandomCrop(4), "flip": RandomFlip()}, count=1, image_size=64)
    assert images.shape[2:] == (64, 64, 3)


def test_reading_leaves_the_global_generators_alone(data):
    """The network takes its first weights from numpy's, while readers already work in other threads."""
    before = np.random.get_state()[1].tolist()
    epochs(data, {"crop": RandomResizedCrop(fused=True)}, count=1)
    assert np.random.get_state()[1].tolist() == before
