"""The truth from a reader's table is that of the annotation file, to the last digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_splits import data_of, record

from msrun_cli.data.coco import read_coco
from msrun_cli.data.record_table import RecordTable
from msrun_cli.data.records import Split
from msrun_cli.evaluation.coco_map import ground_truth


def test_coco128_as_its_file_has_it(shared_data: Path) -> None:
    data = read_coco(str(shared_data / "coco128"))
    plain = Split("val", tuple(data.val.records), data.val.annotation_file)

    def key(annotation):
        return annotation["image_id"], annotation["category_id"], annotation["bbox"], annotation["iscrowd"]

    found = sorted(map(key, ground_truth(data.val, data).annotations))
    assert found == sorted(map(key, ground_truth(plain, data).annotations)) and len(found) > 900


def test_boxes_of_formats_without_own_numbers() -> None:
    table = RecordTable.of([record(0, path="a"), record(1, [[1, 2, 4.5, 6], [0, 0, 9, 9]], [2, 0], [False, True])])
    first, second = ground_truth(Split("val", table), data_of()).annotations
    assert first == {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3.5, 4], "area": 14, "iscrowd": 0, "id": 1}
    assert (second["iscrowd"], second["category_id"]) == (1, 0)
    assert ground_truth(Split("val", table.select(np.array([1]))), data_of()).annotations[0]["image_id"] == 0
