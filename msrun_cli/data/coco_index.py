"""One COCO annotation file -> a table of records, read as a stream.

Images and annotations go into columns as they come, in any order of the file's lists; what belongs together is joined
at the end.
"""

from __future__ import annotations

import json
import os
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, clean_boxes
from msrun_cli.data.coco_layout import SplitFiles
from msrun_cli.data.coco_segments import box_of_segmentation
from msrun_cli.data.images import image_size
from msrun_cli.data.json_stream import read_lists
from msrun_cli.data.label_cache import Index
from msrun_cli.data.record_table import RecordTable, Strings, offsets_of

_NO_CROWD = (0, None, "0", "")
_LARGEST_SIDE = 2**31 - 1  # what the table's column holds


def index_coco(files: SplitFiles, keep_empty: bool) -> Index:
    """Read `files.annotations`. Needs the images only for those whose width and height it does not give.

    facts: "classes": [[category id, name], ...] sorted by id; "said": sentences on what was dropped or changed;
        "faults": [[file name, reason], ...] of images that are left out
    Raises DataError for a damaged file, one without images, unknown categories, two images with one id.
    """
    images, annotations = _Images(files.annotations), _Annotations(files.annotations)
    categories: list[Any] = []
    takers = {"images": images.take, "annotations": annotations.take, "categories": categories.append}
    lists = read_lists(files.annotations, takers)
    missing = [name for name in takers if name not in lists]
    if missing:
        raise DataError(f"{files.annotations} is not a COCO instances file: no list named {', '.join(missing)}.")
    classes = _categories(categories, files.annotations)
    if not images.names:
        raise DataError(
            f"{files.annotations} lists no images. Set dataset.{files.name}.annotations to the file that lists the "
            f"images of {files.name}, or remove this one."
        )
    files.settle(images.names)
    tally = Tally()
    tally.add("repeated image entries dropped", images.repeated)
    sized = images.find_sizes(files)
    table = _join(images, annotations, classes, tally)
    bad = np.array(sorted(images.faults), np.int64)
    table = table.select(np.setdiff1d(np.arange(len(table)), bad))
    empty = table.trained_counts() == 0
    if not keep_empty:
        table = table.select(np.flatnonzero(~empty))
    tally.add(f"images without boxes {'kept as background' if keep_empty else 'left out'}", empty.sum())
    facts = {
        "classes": [[key, name] for key, name in classes.items()],
        "said": tally.sentences(files.name),
        "faults": [[_as_text(images.names[row]), images.faults[row]] for row in bad.tolist()],
    }
    return Index({"records": table}, facts, lasting=not sized)


class _Images:
    """The columns of the list `images`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[Any, int] = {}  # of each id
        self.names: list[str] = []
        self.ids: list[Any] = []
        self.widths, self.heights = array("q"), array("q")
        self.faults: dict[int, str] = {}
        self.repeated = 0
        self._row_of_name: dict[str, int] = {}

    def take(self, image: Any) -> None:
        if not isinstance(image, dict) or "id" not in image or "file_name" not in image:
            raise DataError(f"{self.path}: each of its images needs an id and a file_name, got {image!r:.80}.")
        key, name = image["id"], str(image["file_name"])
        if isinstance(key, (list, dict)) or (isinstance(key, str) and _as_text(key) != key):
            raise DataError(f"{self.path}: the id of an image must be a number or a text, got {key!r:.80}.")
        same_file = self._row_of_name.setdefault(os.path.normpath(name), len(self.names))
        if self.rows.setdefault(key, same_file) != same_file:
            raise DataError(f"{self.path} gives two images the id {key!r}.")
        if same_file < len(self.names):
            self.repeated += 1
            return
        if not _can_be_a_name(name):
            self.faults[len(self.names)] = "its file_name holds a character that no file name can have"
        self.names.append(name)
        self.ids.append(key)
        self.widths.append(_side(image.get("width")))
        self.heights.append(_side(image.get("height")))

    def find_sizes(self, files: SplitFiles) -> int:
        """Read the sizes that are missing from the image files; how many there were."""
        unknown = [row for row in range(len(self.names)) if not (self.widths[row] and self.heights[row])]
        for row in unknown:
            if row not in self.faults:
                try:
                    self.widths[row], self.heights[row] = image_size(files.path_of(self.names[row]))
                except DataError as error:
                    self.faults[row] = str(error)
        return len(unknown)

    def id_column(self) -> np.ndarray | Strings:
        if all(type(key) is int and -(2**63) <= key < 2**63 for key in self.ids):
            return np.array(self.ids, np.int64)
        return Strings.of(json.dumps(key).encode() for key in self.ids)

    def name_column(self) -> Strings:
        return Strings.of(b"" if row in self.faults else os.fsencode(name) for row, name in enumerate(self.names))


class _Annotations:
    """The columns of the list `annotations`; image and category ids are numbered as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.image_numbers: dict[Any, int] = {}
        self.category_numbers: dict[Any, int] = {}
        self.first_of_category: list[tuple[Any, Any]] = []  # category id, id of its first annotation
        self.images, self.categories = array("q"), array("q")
        self.boxes_xywh = array("d")
        self.crowds = bytearray()
        self.without_box: list[int] = []

    def take(self, annotation: Any) -> None:
        if type(annotation) is not dict:
            raise DataError(f"{self.path}: each of its annotations must be an object, got {annotation!r:.80}.")
        get = annotation.get
        image, category, box = get("image_id"), get("category_id"), get("bbox")
        try:
            image_number = self.image_numbers.setdefault(image, len(self.image_numbers))
            number = self.category_numbers.get(category)
        except TypeError:  # a list or an object as an id
            return self.take({**annotation, "image_id": _hashable(image), "category_id": _hashable(category)})
        if number is None:
            number = self.category_numbers[category] = len(self.first_of_category)
            self.first_of_category.append((category, get("id")))
        self.categories.append(number)
        self.images.append(image_number)
        self.crowds.append(1 if get("iscrowd") not in _NO_CROWD else 0)
        try:
            if type(box) is not list or len(box) != 4:
                raise TypeError
            self.boxes_xywh.fromlist(box)
        except (TypeError, OverflowError):
            self.boxes_xywh.fromlist(self._unusual_box(box, get("segmentation")))

    def _unusual_box(self, box: Any, segmentation: Any) -> list[float]:
        try:
            numbers: list[float] | None = [float(number) for number in box]
        except (TypeError, ValueError, OverflowError):
            numbers = None
        if numbers is None or len(numbers) != 4:
            numbers = box_of_segmentation(segmentation)
        if numbers is None:
            self.without_box.append(len(self.images) - 1)
        return numbers or [0.0] * 4

    def labels(self, classes: dict[int, str]) -> np.ndarray:
        """int64: the class index of each annotation. DataError when a category is not among the classes."""
        index_of: dict[Any, int] = {category: index for index, category in enumerate(classes)}
        index_of |= {str(category): index for category, index in index_of.items()}  # some tools write ids as text
        for category, annotation_id in self.first_of_category:
            if category not in index_of:
                raise DataError(
                    f"{self.path}: annotation {annotation_id!r} has category_id {category!r}, but the file lists "
                    f"{len(classes)} categories with ids {min(classes)}..{max(classes)}."
                )
        of_number = np.array([index_of[category] for category, _ in self.first_of_category], np.int64)
        return of_number[np.frombuffer(self.categories, np.int64)]

    def rows(self, row_of_image: dict[Any, int]) -> np.ndarray:
        """int64: the image of each annotation by its row, -1 = the file does not list it."""
        of_number = np.array([row_of_image.get(image, -1) for image in self.image_numbers], np.int64)
        return of_number[np.frombuffer(self.images, np.int64)]


def _join(images: _Images, annotations: _Annotations, classes: dict[int, str], tally: Tally) -> RecordTable:
    """The boxes of each image together, cleaned."""
    labels, rows = annotations.labels(classes), annotations.rows(images.rows)
    has_box = np.ones(len(rows), bool)
    has_box[annotations.without_box] = False
    tally.add("annotations of images that the file does not list dropped", (rows < 0).sum())
    tally.add("annotations without a bbox of four numbers dropped", (~has_box & (rows >= 0)).sum())
    kept = np.flatnonzero(has_box & (rows >= 0))
    # Boxes of images that are left out are dropped with them; their size may be unknown.
    kept = kept[~np.isin(rows[kept], list(images.faults))]
    order = kept[np.argsort(rows[kept], kind="stable")]
    rows, labels = rows[order], labels[order]
    source = np.frombuffer(annotations.boxes_xywh, np.float64).reshape(-1, 4)[order]
    crowds = np.frombuffer(annotations.crowds, np.uint8)[order].astype(bool)
    widths, heights = (np.frombuffer(column, np.int64) for column in (images.widths, images.heights))
    boxes_xyxy = np.concatenate([source[:, :2], source[:, :2] + source[:, 2:]], axis=1)
    boxes_xyxy, good = clean_boxes(boxes_xyxy, widths[rows], heights[rows], tally)
    repeated = _repeated(rows, labels, crowds, source) & good
    tally.add("repeated annotations dropped", repeated.sum())
    good &= ~repeated
    tally.add("crowd boxes, not trained on", (crowds & good).sum())
    return RecordTable(
        "",
        images.name_column(),
        images.id_column(),
        widths.astype(np.int32),
        heights.astype(np.int32),
        offsets_of(np.bincount(rows[good], minlength=len(widths))),
        boxes_xyxy[good],
        labels[good],
        crowds[good],
        source[good],
    )


def _repeated(rows: np.ndarray, labels: np.ndarray, crowds: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool (N,): the annotation says the same of the same image as an earlier one."""
    columns = [rows, labels, crowds.astype(np.int64), *np.ascontiguousarray(boxes.T).view(np.int64)]
    # Sorting by one mixed number is ten times faster than by all columns; who shares it is compared in full.
    mixed = np.zeros(len(rows), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    order = np.argsort(mixed, kind="stable")
    alike = mixed[order][1:] == mixed[order][:-1]
    before, after = order[:-1][alike], order[1:][alike]
    same = np.all([column[before] == column[after] for column in columns], axis=0)
    found = np.zeros(len(rows), bool)
    found[after[same]] = True
    return found


def _categories(categories: list[Any], path: Path) -> dict[int, str]:
    """{category id: name}, sorted by id."""
    try:
        pairs = [(int(category["id"]), _as_text(str(category["name"]))) for category in categories]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: each of its categories needs a whole-number id and a name.") from error
    if not pairs:
        raise DataError(f"{path} lists no categories.")
    if len(dict(pairs)) != len(pairs):
        raise DataError(f"{path} gives two categories the same id.")
    return dict(sorted(pairs))


def _can_be_a_name(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _as_text(text: str) -> str:
    """Half surrogate pairs, which JSON can hold and no file, as \\udXXX."""
    return text.encode(errors="backslashreplace").decode()


def _hashable(key: Any) -> Any:
    return repr(key) if isinstance(key, (list, dict)) else key


def _side(number: Any) -> int:
    """Pixels; 0 when the file does not say."""
    try:
        side = int(number)
    except (TypeError, ValueError, OverflowError):
        return 0
    return side if 0 < side <= _LARGEST_SIDE else 0
