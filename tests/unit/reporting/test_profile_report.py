"""Tables, pictures, page and comparison of profiles, from documents as profile.json holds them."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from profile_documents import document
from rich.console import Console

from msrun_cli.common.errors import ConfigError
from msrun_cli.profiling.document import read_document, write_document
from msrun_cli.reporting import profile_pictures
from msrun_cli.reporting.profile_compare import compare_tables
from msrun_cli.reporting.profile_page import write_page
from msrun_cli.reporting.profile_pictures import COLOURS, draw_pictures
from msrun_cli.reporting.profile_tables import profile_tables, shortened


def shown(renderable) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(renderable)
    return out.getvalue()


def row_of(text: str, words: str) -> list[str]:
    line = next(line for line in text.splitlines() if words in line)
    return [cell.strip() for cell in re.split("[│┃]", line) if cell.strip()]


def test_numbers_of_a_step() -> None:
    found = document()
    # 66 ms of call and device, of which operators take 56 / 70
    assert found["step"]["breakdown_ms"] == pytest.approx(
        {"wait": 30, "host": 13.2, "forward": 18.857, "backward": 28.286, "update": 5.657, "logging": 4}, abs=0.001
    )
    assert sum(found["step"]["breakdown_ms"].values()) == pytest.approx(found["step"]["mean_ms"], abs=0.01)
    assert found["device_idle"] == pytest.approx(1 - 52.8 / 100)
    assert found["images_per_s"] == pytest.approx(80)
    assert found["planned_s"] == pytest.approx(100)
    assert found["verdict"]["main"] == "input"
    assert json.loads(json.dumps(found)) == found


def test_tables(tmp_path: Path) -> None:
    text = shown(profile_tables(document(raw=tmp_path), top=15))
    assert row_of(text, "wait for data") == ["wait for data", "30.0", "30%"]
    assert row_of(text, "backward  ")[0:2] == ["backward", "28.3"]
    assert row_of(text, "images/s  ")[1] == "80.0"
    assert row_of(text, "device idles")[1] == "47%"
    assert row_of(text, "decode (slowest)")[1:] == ["9.000", "60%", "111"]
    assert "[mosaic]" in text  # no markup
    assert row_of(text, "ConvGrad")[1:] == ["backward", "1", "30.00", "53.6%"]
    assert "network/0/Conv2D-op0" in text
    assert "Input-bound: a step waits 30 of its 100 ms" in text
    assert "dataset.prefetch=4" in text and "profile.try=true" in text and "To paste" not in text
    assert str(tmp_path) in text and "there is no timeline" in text


def test_tables_of_trials_and_levels() -> None:
    text = shown(profile_tables(document(tried=True), top=15))
    assert "dataset.workers=2: why -> faster: x1.21 (1.15 .. 1.27), 96.0 images/s" in text
    assert "batch_size=16: why (caveat) -> slower: x0.80" in text
    assert "failed: exit code 1: no [kernel]" in text
    assert "differ by 2.0%" in text
    assert "To paste: msrun train model=yolov5n dataset.workers=2" in text
    assert row_of(text, "│ speed") == ["speed", "-", "faster: x1.30 (1.00 .. 1.00)", "-"]
    assert row_of(text, "│ difference ") == ["difference", "0 %", "+0.12 %", "-"]
    assert row_of(text, "│ failed") == ["failed", "-", "-", "exit code 1: no [kernel]"]
    nothing = {**document(tried=True), "paste": None}
    assert "Nothing that was tried is surely faster" in shown(profile_tables(nothing, top=15))


@pytest.mark.parametrize("what", ["data", "step"])
def test_halves(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_pictures, "_save", saved_empty)
    found = document(what=what)
    text = shown(profile_tables(found, top=3))
    assert ("A training step" in text) == (what == "step") and ("input pipeline alone" in text) == (what == "data")
    pictures = draw_pictures(found, tmp_path)
    assert set(pictures) == ({"stages"} if what == "data" else {"steps", "operators"})
    assert write_page(found, pictures, tmp_path / "profile.html").is_file()


def saved_empty(draw, found, height: float, path: Path) -> Path:
    """In place of drawing, which takes a second."""
    path.touch()
    return path


def colours_in(path: Path) -> set[str]:
    red, green, blue = np.asarray(Image.open(path).convert("RGB"), np.int32).reshape(-1, 3).T
    counts = np.bincount(red << 16 | green << 8 | blue)
    return {f"#{colour:06x}" for colour in np.flatnonzero(counts > 50)}


def test_pictures_and_page(tmp_path: Path) -> None:
    found = document(tried=True)
    pictures = draw_pictures(found, tmp_path / "图 plots")
    assert set(pictures) == {"steps", "data_wait", "operators", "stages"}
    for part in ("wait", "host", "forward", "backward", "update", "logging"):
        assert COLOURS[part] in colours_in(pictures["steps"]), part
    assert {COLOURS[part] for part in ("forward", "backward", "update")} <= colours_in(pictures["operators"])
    assert COLOURS["wait"] in colours_in(pictures["stages"])  # the slowest stage
    page = write_page(found, pictures, tmp_path / "profile.html").read_text(encoding="utf-8")
    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert [base64.b64decode(text) for text in embedded] == [path.read_bytes() for path in pictures.values()]
    # nothing from outside, and nothing that the browser takes for markup
    assert not re.search(r'(src|href)="(?!data:)', page) and "url(" not in page and "<script" not in page
    assert "/中 &lt;b&gt;" in page and "<disk>" not in page
    assert "x1.21 (1.15 .. 1.27)" in page and "msrun train model=yolov5n dataset.workers=2" in page
    Balanced().check(page)


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def check(self, page: str) -> None:
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_two_profiles(tmp_path: Path) -> None:
    first, second = document(), document(tried=True, msrun="0.2.0", overrides=["amp=[O2]"])
    second["images_per_s"], second["settings"] = 120.0, {**second["settings"], "amp": "O2"}
    second["operators"]["by_type"][0]["ms"] = 10.0
    text = shown(compare_tables(first, second, "run a", "run b"))
    assert row_of(text, "│ amp") == ["amp", "O0", "O2"] and row_of(text, "│ msrun") == ["msrun", "0.1.0", "0.2.0"]
    assert "│ batch_size" not in text  # it is the same
    assert row_of(text, "│ images/s") == ["images/s", "80.0", "120.0", "x1.50"]
    assert row_of(text, "ConvGrad") == ["ConvGrad", "30.00", "10.00", "-20.00"]
    assert "A: run a" in text and "[O2]" in text and "B: Input-bound" in text
    assert "The settings are the same." in shown(compare_tables(first, first, "a", "a"))
    half = shown(compare_tables(document(what="data"), document(what="step"), "a", "b"))
    assert row_of(half, "│ images/s") == ["images/s", "-", "80.0", "-"]


def test_documents_are_written_and_read(tmp_path: Path) -> None:
    written = write_document(tmp_path / "外 run", document())
    assert read_document(tmp_path / "外 run") == read_document(written)
    assert read_document(written)["schema_version"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no profile.json there"),
        ("{", "cannot be read"),
        ("[]", "was not written by"),
        ('{"kind": "msrun-profile", "schema_version": 99}', "reads up to 1"),
        ("\udcff", "cannot be read"),
    ],
)
def test_no_document(tmp_path: Path, content: str | None, said: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    if content is not None:
        (folder / "profile.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=said):
        read_document(folder)


def test_profiles_nearby_are_named(tmp_path: Path) -> None:
    written = write_document(tmp_path / "yolov5n" / "2026", document())
    with pytest.raises(ConfigError, match=f"such as {written.parent}"):
        read_document(tmp_path / "nowhere")


def test_names_without_what_is_the_same() -> None:
    full = (
        "Gradients/Default/forward-ScaledLoss/network-YOLOv5/model-CellList/0-Conv/Grad_Conv2D/Conv2DBackpropInput-op0"
    )
    assert shortened(full) == "network/model/0/Grad_Conv2D/Conv2DBackpropInput-op0"
    assert shortened("MatMul") == "MatMul"
