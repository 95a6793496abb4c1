"""A COCO annotation file as evaluation needs it: which of its ids belong to our records and classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msrun_cli.common.errors import DataError

if TYPE_CHECKING:
    from msrun_cli.data.records import Record


@dataclass(frozen=True, slots=True)
class AnnotationFile:
    path: str
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]]

    @classmethod
    def read(cls, path: str) -> AnnotationFile:
        """Raises DataError when the file is missing, no JSON or no COCO detection file."""
        try:
            with Path(path).open(encoding="utf-8-sig") as file:
                content = json.load(file)
            images, categories = content["images"], content["categories"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} cannot be read as COCO annotations ({type(error).__name__}: {error}). "
                "It must be JSON with the lists images, categories and annotations."
            ) from error
        return cls(path, images, categories, content.get("annotations", []))

    def image_ids(self, records: Sequence[Record]) -> list[int | str]:
        """The file's image id of each record: the record's own id, else the id of the same file name.

        Raises DataError when the file does not know an image.
        """
        known = {image.get("id") for image in self.images}
        by_name = {Path(str(image.get("file_name", ""))).name: image.get("id") for image in self.images}
        ids: list[Any] = [
            record.image_id if record.image_id in known else by_name.get(Path(record.image_path).name)
            for record in records
        ]
        missing = [record.image_path for record, image_id in zip(records, ids, strict=True) if image_id is None]
        if missing:
            raise DataError(
                f"{len(missing)} of {len(records)} images are not in {self.path}, first: {', '.join(missing[:5])}. "
                "Evaluate with the annotation file that belongs to these images."
            )
        return ids

    def category_ids(self, class_names: Sequence[str], expected: Sequence[int]) -> list[int]:
        """The file's category id of each class: the expected one, unless the file uses another id for that name."""
        names: dict[Any, Any] = {category.get("id"): category.get("name") for category in self.categories}
        by_name: dict[Any, Any] = {name: category_id for category_id, name in names.items()}
        return [
            category_id if names.get(category_id) == name else by_name.get(name, category_id)
            for name, category_id in zip(class_names, expected, strict=True)
        ]
