from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
from odd_images import HTML, encoded

from msrun_cli.data.decode_check import decode_images, decoders_heard
from msrun_cli.data.doctor.checked import paths_view
from msrun_cli.data.scan import scan_images


def test_what_libjpeg_only_warns_about_is_found(tmp_path: Path) -> None:
    good = encoded(".jpg", width=160, height=120)
    contents = {
        "a.jpg": good,
        "half.jpg": good[: len(good) // 2] + b"\xff\xd9",
        "b.png": encoded(".png"),
        "broken.png": _with_a_wrong_byte(encoded(".png", width=100, height=100)),
        "page.jpg": HTML,
        "损坏 c.jpg": good[: len(good) // 3] + b"\xff\xd9",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    records = paths_view("files", [str(tmp_path / name) for name in contents] + [str(tmp_path / "gone.jpg")]).records
    assert [fault.kind for fault in scan_images(records)] == ["not_an_image", "missing"]  # the ends are there
    steps: list[int] = []
    found = decode_images(records, range(len(records)), workers=2, progress=steps.append)
    assert [(fault.index, fault.kind) for fault in found] == [(i, "damaged") for i in (1, 3, 4, 5, 6)]
    assert "premature end" in found[0].reason and "premature end" in found[3].reason
    assert sum(steps) == len(records)
    assert decode_images(records, [0, 2]) == [] == decode_images(records, [])


def test_decoders_are_heard_in_this_process_and_stderr_comes_back(tmp_path: Path) -> None:
    good = encoded(".jpg", width=160, height=120)
    before = os.fstat(2)
    with decoders_heard() as complaints:
        cv2.imdecode(np.frombuffer(good, np.uint8), cv2.IMREAD_COLOR)
    assert complaints == []
    with decoders_heard() as complaints:
        cv2.imdecode(np.frombuffer(good[: len(good) // 2] + b"\xff\xd9", np.uint8), cv2.IMREAD_COLOR)
    assert len(complaints) == 1 and "premature end" in complaints[0]
    assert os.path.samestat(before, os.fstat(2))


def _with_a_wrong_byte(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
