"""What mindspore.train.Model sees of a training pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
from coco_folders import small_coco
from mindspore import nn
from mindspore.train import Callback, Model

from msrun_cli.common.errors import DataError
from msrun_cli.data.coco import read_coco
from msrun_cli.data.detection import train_pipeline
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.records import Split
from msrun_cli.transforms.chain import Chain


class MeanOfImages(nn.Cell):
    def construct(self, images, targets):  # type: ignore[no-untyped-def]
        return images.astype(mindspore.float32).mean() + 0 * targets.sum()


class Seen(Callback):
    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[int, list[float]] = {}

    def on_train_step_end(self, run_context: Any) -> None:
        now = run_context.original_args()
        self.epochs.setdefault(now.cur_epoch_num, []).append(float(now.net_outputs.asnumpy()))


def dataset_of(split: Split, **changes: int) -> Batches:
    options = {"image_size": 32, "batch_size": 4, "max_boxes": 8, "seed": 0, **changes}
    return train_pipeline(split, Chain({}), loader=LoaderOptions(2), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sink", [False, True])
def test_epochs_follow_each_other(tmp_path: Path, sink: bool) -> None:
    split = read_coco(str(small_coco(tmp_path))).train
    seen = Seen()
    Model(MeanOfImages()).train(3, dataset_of(split, first_step=1), callbacks=[seen], dataset_sink_mode=sink)
    iterator = dataset_of(split).create_dict_iterator(num_epochs=3, output_numpy=True)
    wanted = [[float(batch["images"].mean()) for batch in iterator] for _ in range(3)]
    assert [len(means) for means in seen.epochs.values()] == [2, 3, 3]
    for found, means in zip(seen.epochs.values(), [wanted[0][1:], *wanted[1:]], strict=True):
        np.testing.assert_allclose(found, means, rtol=1e-4)


def test_a_bad_file_comes_out_of_train_as_data_error(tmp_path: Path) -> None:
    split = read_coco(str(small_coco(tmp_path))).train
    Path(split.records[3].image_path).write_bytes(b"no image")
    with pytest.raises(DataError, match=f"^{split.records[3].image_path} is not an image"):
        Model(MeanOfImages()).train(2, dataset_of(split), dataset_sink_mode=False)
