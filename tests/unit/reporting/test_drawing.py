"""Labels: fonts for Chinese names and places that leave each other legible."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image

from msrun_cli.reporting import drawing


@pytest.fixture
def fresh_fonts():
    drawing.font_for.cache_clear()
    drawing.cjk_font_path.cache_clear()
    yield
    drawing.font_for.cache_clear()
    drawing.cjk_font_path.cache_clear()


def test_chinese_text_takes_an_installed_cjk_font(monkeypatch, fresh_fonts):
    mono = font_manager.findfont("DejaVu Sans Mono")  # stands in for a font that tests cannot count on
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [font_manager.FontEntry(fname=mono, name="SimHei")])
    assert drawing.font_for("汽车 0.9", 13).getname()[0] == "DejaVu Sans Mono"
    assert drawing.font_for("car ≥ 0.9", 13).getname()[0] == "DejaVu Sans"


def test_chinese_text_without_such_a_font_does_not_fail(monkeypatch, fresh_fonts):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    assert drawing.cjk_font_path() is None
    picture = Image.new("RGB", (100, 100))
    drawing.draw_boxes(picture, np.array([[10, 40, 60, 90]]), np.array([0]), ["汽车"])
    assert picture.getbbox() is not None


def test_labels_of_boxes_at_one_place_do_not_cover_each_other():
    size, canvas = (40.0, 17.0), (320, 320)
    box = np.array([100, 100, 200, 200])
    taken: list = []
    for _ in range(6):
        taken.append(drawing._free_place(box, size, canvas, taken))
    common = [drawing._common_area(a, b) for i, a in enumerate(taken) for b in taken[:i]]
    assert max(common) == 0


@pytest.mark.parametrize("box", [[-50, -50, 10, 5], [310, 310, 400, 400], [0, 0, 320, 320], [5, 5, 2, 2]])
def test_labels_stay_inside_the_picture(box):
    x1, y1, x2, y2 = drawing._free_place(np.array(box), (60.0, 17.0), (320, 320), [])
    assert 0 <= x1 < x2 <= 320
    assert 0 <= y1 < y2 <= 320
    drawing.draw_boxes(Image.new("RGB", (320, 320)), np.array([box]), np.array([0]), ["name"])
