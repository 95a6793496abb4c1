"""From what a reader found to the two splits that every job has."""

from __future__ import annotations

from collections.abc import Mapping

from msrun_cli.data.record_table import RecordTable
from msrun_cli.data.records import Split


def both_splits(found: Mapping[str, Split], where: str) -> tuple[Split, Split, list[str]]:
    """(train, val, sentences for the log). Without val, val is the train split; without train, train is empty.

    found: at least one of "train", "val"; where: "in FILE" or "under FOLDER"
    """
    notes = []
    if "val" not in found:
        notes.append(f"no val split {where}: evaluating on train")
    if "train" not in found:
        notes.append(f"no train split {where}: only evaluation is possible")
    train = found.get("train", Split("train", RecordTable.of(())))
    val = found.get("val", Split("val", train.records, train.annotation_file))
    return train, val, notes
