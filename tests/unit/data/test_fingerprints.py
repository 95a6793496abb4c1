from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from msrun_cli.data import fingerprints
from msrun_cli.data.fingerprints import digests, groups_of, hashes, identical_files, near_pairs, thumbnails


def photo(seed: int, width: int = 320, height: int = 240) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return cv2.resize(rng.integers(0, 256, (9, 12, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def test_copies_are_near_and_others_are_not(tmp_path: Path) -> None:
    picture = photo(1)
    files = {
        "original.png": picture,
        "poor.jpg": picture,
        "small.png": cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA),
        "brighter.png": cv2.convertScaleAbs(picture, alpha=0.9, beta=12),
        "grey.png": cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY),
        "mirrored.png": picture[:, ::-1],
        "other.png": photo(2),
        "flat.png": np.full_like(picture, 128),
        "flat too.png": np.full_like(picture, 129),
    }
    for name, image in files.items():
        cv2.imwrite(str(tmp_path / name), image, [cv2.IMWRITE_JPEG_QUALITY, 20])
    sizes = [(image.shape[1], image.shape[0]) for image in files.values()]
    steps: list[int] = []
    thumbs = thumbnails([str(tmp_path / name) for name in files], sizes, 2, steps.append)
    assert groups_of((int(a), int(b)) for a, b in near_pairs(thumbs)) == [[0, 1, 2, 3, 4]]
    assert sum(steps) == len(files)


@pytest.mark.parametrize("side", [60, 130, 300, 900])
def test_reduced_decoding_gives_the_same_hash(tmp_path: Path, side: int) -> None:
    picture = photo(3, side, side)
    path = str(tmp_path / "a.jpg")
    cv2.imwrite(path, picture)
    (small,) = thumbnails([path], [(side, side)], 1)
    whole = cv2.resize(cv2.imread(path, cv2.IMREAD_GRAYSCALE), (16, 16), interpolation=cv2.INTER_AREA)
    assert np.abs(small - whole).max() < 12
    assert (hashes(small[None]) != hashes(whole[None].astype(np.float32))).sum() <= 2


def test_every_pair_is_found_as_by_comparing_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 255, (60, 16, 16))
    thumbs = (np.repeat(base, 4, axis=0) + rng.normal(0, 8, (240, 16, 16))).astype(np.float32)
    bits, flat = hashes(thumbs), thumbs.reshape(240, -1)
    close = ((bits[:, None] != bits[None]).sum(axis=2) <= 5) & (np.corrcoef(flat) >= 0.98)
    expected = np.argwhere(np.triu(close, 1))
    assert len(expected) > 100
    np.testing.assert_array_equal(near_pairs(thumbs), expected)
    monkeypatch.setattr(fingerprints, "_BLOCK_PAIRS", 7)
    np.testing.assert_array_equal(near_pairs(thumbs), expected)


def test_many_alike_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_LARGEST_BUCKET", 50)
    monkeypatch.setattr(fingerprints, "_NEIGHBOURS", 3)
    thumbs = np.repeat(np.random.default_rng(0).uniform(0, 255, (1, 16, 16)).astype(np.float32), 400, axis=0)
    pairs = near_pairs(thumbs)
    assert len(pairs) < 400 * 4
    assert groups_of((int(a), int(b)) for a, b in pairs) == [list(range(400))]


def test_digests_and_what_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (("a", b"same"), ("b", b"same"), ("c", b"else")):
        (tmp_path / name).write_bytes(content)
    found = digests([str(tmp_path / name) for name in ("a", "b", "c", "gone")], 2)
    assert found[0] == found[1] != found[2] and found[3] is None
    assert np.isnan(thumbnails([str(tmp_path / "a"), str(tmp_path / "gone")], [(4, 4)] * 2, 1)).all()


def test_identical_files(tmp_path: Path) -> None:
    long = bytes(100_000)
    other_end = long[:-1] + b"x"  # same length, same middle
    contents = [long, b"a", other_end, b"a", b"b", long, b"", b""]
    paths = []
    for number, content in enumerate(contents):
        paths.append(str(tmp_path / str(number)))
        Path(paths[-1]).write_bytes(content)
    assert identical_files([*paths, str(tmp_path / "gone"), str(tmp_path)], 3) == [[0, 5], [1, 3], [6, 7]]
    assert identical_files([], 1) == []


def test_nothing_to_compare() -> None:
    assert near_pairs(np.zeros((0, 16, 16), np.float32)).shape == (0, 2)
    assert near_pairs(np.full((3, 16, 16), np.nan, np.float32)).shape == (0, 2)
    assert thumbnails([], [], 1).shape == (0, 16, 16)
    assert groups_of([]) == []
