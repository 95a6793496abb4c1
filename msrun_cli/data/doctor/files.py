"""Checks of the image files, from what the scan saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msrun_cli.common.status import FAIL, PASS, WARN
from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit
from msrun_cli.data.doctor.findings import Example, Finding, finding
from msrun_cli.data.file_kinds import is_mislabelled
from msrun_cli.data.scan import FAULT_KINDS, ImageFault, ImageLook

_ADVICE = {
    "missing": "put the files back, or remove their annotations",
    "broken_link": "mend or remove the links",
    "unreadable": "correct the permissions, or copy the files from a healthy disk",
    "empty": "copy the files again, or remove them",
    "not_an_image": "download them again, or remove them with their annotations",
    "unsupported": "convert them to JPEG or PNG",
    "truncated": "copy or download the files again, or remove them",
    "damaged": "copy or download the files again, or remove them",
    "huge": "shrink the images, or cut them into tiles",
    "size": "correct width and height in the annotations: the boxes lie elsewhere",
}


def file_checks(
    data: CheckedData, looks: Mapping[str, Sequence[ImageLook]], complaints: Sequence[str]
) -> list[Finding]:
    """One finding for each kind of fault, then the suffixes.

    looks: for each split, as long as its records; complaints: of decoders, not known about which files
    """
    faults = {split.name: [look.fault for look in looks[split.name] if look.fault] for split in data.splits}
    found = [_of_kind(kind, faults) for kind in FAULT_KINDS]
    return [*(_with_complaints(item, complaints) for item in found), _mislabelled(data, looks)]


def _with_complaints(item: Finding, complaints: Sequence[str]) -> Finding:
    """A warning in place of "none" where decoders spoke of damage."""
    if item.check != "damaged" or item.status != PASS or not complaints:
        return item
    return finding(
        "damaged",
        WARN,
        [Example(text) for text in complaints],
        "complaints of image decoders, which do not say about which files",
        "--deep names the files",
    )


def _of_kind(kind: str, faults: Mapping[str, Sequence[ImageFault]]) -> Finding:
    cases = [(name, fault) for name, of_split in faults.items() for fault in of_split if fault.kind == kind]
    examples = [Example(fault.reason, name, fault.index, fault.path) for name, fault in cases]
    return finding(kind, FAIL, examples, FAULT_KINDS[kind], _ADVICE[kind])


def _mislabelled(data: CheckedData, looks: Mapping[str, Sequence[ImageLook]]) -> Finding:
    cases = [
        (split, index, look.format)
        for split in data.splits
        for index, look in enumerate(looks[split.name])
        if look.fault is None and is_mislabelled(split.records[index].image_path, look.format)
    ]
    return finding(
        "mislabelled",
        WARN,
        [_example(split, index, f"is a {kind}") for split, index, kind in cases],
        "the suffix names another format than the content (read all the same)",
        "rename the files: other programs go by the suffix",
    )


def _example(split: CheckedSplit, index: int, words: str) -> Example:
    path = split.records[index].image_path
    return Example(f"{path} {words}", split.name, index, path)
