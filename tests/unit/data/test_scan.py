from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import odd_images
import pytest
from odd_images import encoded

from msrun_cli.common.errors import DataError
from msrun_cli.data import scan
from msrun_cli.data.file_kinds import is_mislabelled, kind_of
from msrun_cli.data.images import read_rgb
from msrun_cli.data.records import Record
from msrun_cli.data.scan import FAULT_KINDS, ImageFault, look_at_images, scan_images


def record(path: Path | str, width: int = 32, height: int = 24) -> Record:
    return Record(str(path), 0, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool), width, height)


def fault_of(path: Path, content: bytes, width: int = 32, height: int = 24) -> ImageFault | None:
    path.write_bytes(content)
    found = scan_images([record(path, width, height)])
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tiff", ".ppm"])
def test_every_format_that_opencv_reads_is_fine_under_any_name(tmp_path: Path, suffix: str) -> None:
    for name in (f"a{suffix}", "b.jpg", "没有后缀 c"):
        assert fault_of(tmp_path / name, encoded(suffix)) is None
        assert read_rgb(str(tmp_path / name), 32, 24).shape == (24, 32, 3)
        (look,) = look_at_images([record(tmp_path / name, 0, 0)])
        assert (look.width, look.height, look.fault) == (32, 24, None)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tiff"])
def test_another_size_is_a_fault(tmp_path: Path, suffix: str) -> None:
    fault = fault_of(tmp_path / f"a{suffix}", encoded(suffix), 30, 24)
    assert fault is not None and fault.kind == "size"
    assert "has 32x24 pixels, but its annotations are for 30x24" in fault.reason
    assert fault_of(tmp_path / f"a{suffix}", encoded(suffix), 0, 0) is None  # unknown: no check


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp", ".tiff", ".jp2"])
@pytest.mark.parametrize("part", [0.02, 0.3, 0.75, 0.98])
def test_a_cut_file_is_a_fault(tmp_path: Path, suffix: str, part: float) -> None:
    content = encoded(suffix, width=160, height=120)
    cut = content[: int(len(content) * part)]
    fault = fault_of(tmp_path / f"a{suffix}", cut, 160, 120)
    assert fault is not None
    assert fault.kind in {"truncated", "damaged"}
    if suffix == ".jpg" and part > 0.2:
        assert fault.kind == "truncated"


def test_bytes_behind_the_image_are_fine(tmp_path: Path) -> None:
    for suffix in (".jpg", ".png", ".webp", ".bmp"):
        content = encoded(suffix)
        assert fault_of(tmp_path / "a", content + b"\0" * 10) is None
        assert fault_of(tmp_path / "a", content + b"x" * 50_000) is None  # beyond the part that is looked at first


def test_a_preview_does_not_hide_the_truncation(tmp_path: Path) -> None:
    content = odd_images.turned_jpeg(encoded(".jpg", width=160, height=120), 1)
    assert fault_of(tmp_path / "a.jpg", content, 160, 120) is None
    fault = fault_of(tmp_path / "a.jpg", content[:-400], 160, 120)
    assert fault is not None and fault.kind == "truncated"


def test_a_header_longer_than_the_first_read(tmp_path: Path) -> None:
    content = encoded(".jpg")
    for _ in range(3):
        content = content[:2] + b"\xff\xe2\xff\xff" + bytes(65533) + content[2:]
    assert fault_of(tmp_path / "a.jpg", content) is None
    fault = fault_of(tmp_path / "a.jpg", content, 24, 32)
    assert fault is not None and fault.kind == "size"


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_orientation_is_taken_as_read_rgb_takes_it(tmp_path: Path, kind: str, orientation: int) -> None:
    jpeg = odd_images.turned_jpeg(encoded(".jpg"), orientation)
    content = jpeg if kind == "jpg" else odd_images.turned_png(orientation)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    (look,) = look_at_images([record(path, 0, 0)])
    assert (look.width, look.height) == ((24, 32) if orientation >= 5 else (32, 24))
    for size in ((32, 24), (24, 32), (31, 24)):
        fine = fault_of(path, content, *size) is None
        try:
            read_rgb(str(path), *size)
        except DataError:
            assert not fine
        else:
            assert fine


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (odd_images.HTML, "not_an_image", "HTML page"),
        (b"hello world\n", "not_an_image", "text"),
        ("图片不存在\n".encode() * 60, "not_an_image", "text"),
        (odd_images.GIT_LFS, "not_an_image", "Git LFS"),
        (b'{"error": "not found"}', "not_an_image", "JSON"),
        (bytes(1000), "not_an_image", "zero bytes"),
        (b"PK\3\4" + bytes(40), "not_an_image", "ZIP"),
        (b"\0\0\0\x18ftypmp42" + bytes(40), "not_an_image", "video"),
        (bytes(range(1, 200)), "not_an_image", "unknown kind"),
        (b"", "empty", "empty file"),
        (odd_images.ANIMATED_GIF, "unsupported", "GIF"),
        (b"\0\0\0\x18ftypheic" + bytes(40), "unsupported", "HEIC"),
        (b"\0\0\0\x1cftypavif" + bytes(40), "unsupported", "AVIF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported", "SVG"),
        (odd_images.huge_png(), "huge", "1600000000"),
        (encoded(".jpg")[:12], "damaged", "damaged JPEG"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_readable_image_is_named(tmp_path: Path, content: bytes, kind: str, said: str) -> None:
    fault = fault_of(tmp_path / "a.jpg", content)
    assert fault is not None
    assert (fault.index, fault.path, fault.kind) == (0, str(tmp_path / "a.jpg"), kind)
    assert said in fault.reason and fault.reason.startswith(fault.path)
    assert kind in FAULT_KINDS
    with pytest.raises(DataError):
        read_rgb(str(tmp_path / "a.jpg"), 32, 24)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "link.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "good.jpg").write_bytes(encoded(".jpg"))
    (tmp_path / "good link.jpg").symlink_to(tmp_path / "good.jpg")
    names = ["link.jpg", "good.jpg", "loop.jpg", "folder.jpg", "pipe.jpg", "gone.jpg", "good link.jpg", "good.jpg/x"]
    found = scan_images([record(tmp_path / name) for name in names] + [record("a\0b")])
    assert [(fault.index, fault.kind) for fault in found] == [
        (0, "broken_link"),
        (2, "broken_link"),
        (3, "not_an_image"),
        (4, "not_an_image"),
        (5, "missing"),
        (7, "missing"),
        (8, "missing"),
    ]
    assert "nowhere.jpg" in found[0].reason


def test_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(scan.os, "open", refuse)
    (fault,) = scan_images([record(tmp_path / "a.jpg")])
    assert fault.kind == "unreadable" and "Permission denied" in fault.reason


def test_float_tiff_is_refused_and_16_bit_is_not(tmp_path: Path) -> None:
    fault = fault_of(tmp_path / "a.tiff", encoded(".tiff", np.full((24, 32, 3), 0.5, np.float32)))
    assert fault is not None and fault.kind == "unsupported" and "float32" in fault.reason
    for suffix in (".tiff", ".png"):
        assert fault_of(tmp_path / f"a{suffix}", encoded(suffix, np.full((24, 32, 3), 9000, np.uint16))) is None


def test_order_progress_and_any_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "good.jpg").write_bytes(encoded(".jpg"))
    records = [record(tmp_path / ("gone.jpg" if index % 50 == 7 else "good.jpg")) for index in range(700)]
    for workers in (None, 1, 3, 40):
        steps: list[int] = []
        found = scan_images(records, workers=workers, progress=steps.append)
        assert [fault.index for fault in found] == list(range(7, 700, 50))
        assert sum(steps) == 700 and len(steps) > 1
    assert scan_images([]) == []


def test_a_failing_display_ends_the_scan(tmp_path: Path) -> None:
    def fail(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_images([record(tmp_path / "gone.jpg")] * 1000, progress=fail)


def test_opencv_stays_silent_during_the_scan_only(tmp_path: Path) -> None:
    """Its complaints go to file descriptor 2, so look from outside."""
    (tmp_path / "a.bmp").write_bytes(encoded(".bmp")[:300])
    code = (
        "import sys, cv2, numpy as np\nfrom test_scan import record\nfrom msrun_cli.data.scan import scan_images\n"
        "before = cv2.getLogLevel()\nprint([f.kind for f in scan_images([record(sys.argv[1])])])\n"
        "assert cv2.getLogLevel() == before"
    )
    folder = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(folder.parents[1]), str(folder.parents[2])])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.bmp")], capture_output=True, text=True, env=env
    )
    assert "truncated" in done.stdout or "damaged" in done.stdout, done.stderr
    assert done.stderr == ""


def test_suffixes(tmp_path: Path) -> None:
    assert is_mislabelled("a.jpg", "PNG") and is_mislabelled("a.PNG", "JPEG")
    assert not is_mislabelled("a.JPEG", "JPEG") and not is_mislabelled("a.jp2", "JPEG 2000")
    assert kind_of(encoded(".tiff")) == "TIFF"


def test_colours_of_unusual_files(tmp_path: Path) -> None:
    (tmp_path / "cmyk.jpg").write_bytes(odd_images.CMYK_JPEG)
    assert fault_of(tmp_path / "cmyk.jpg", odd_images.CMYK_JPEG, 16, 8) is None
    image = read_rgb(str(tmp_path / "cmyk.jpg"), 16, 8).astype(int)
    assert np.abs(image[4, 2] - (200, 30, 40)).max() <= 4
    assert np.abs(image[4, 13] - (30, 180, 60)).max() <= 4
    (tmp_path / "palette.png").write_bytes(odd_images.palette_png())
    assert read_rgb(str(tmp_path / "palette.png"), 2, 1).tolist() == [[[10, 20, 30], [200, 100, 50]]]


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_is_scaled_to_8_bit(tmp_path: Path, suffix: str, channels: int) -> None:
    values = np.linspace(0, 65535, 32 * 24, dtype=np.uint16).reshape(24, 32)
    picture = np.repeat(values[..., None], channels, axis=2)
    (tmp_path / f"a{suffix}").write_bytes(encoded(suffix, picture))
    image = read_rgb(str(tmp_path / f"a{suffix}"), 32, 24).astype(float)
    assert np.abs(image - values[..., None] / 257).max() <= 1


def test_alpha_is_ignored(tmp_path: Path) -> None:
    for suffix in (".png", ".tiff"):
        content = encoded(suffix, np.full((24, 32, 4), (10, 20, 30, 128), np.uint8))
        path = tmp_path / f"a{suffix}"
        assert fault_of(path, content) is None
        assert read_rgb(str(path), 32, 24)[0, 0].tolist() == [30, 20, 10]
