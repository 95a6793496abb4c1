"""Boxes as files give them -> boxes that can be trained on; what had to be dropped or cut is counted for the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

# Rounding in annotation files puts borders a little outside; only more than this is worth a word.
_TOLERANCE_PX = 1.0


@dataclass
class Tally:
    """Counts what a reader dropped or changed, to be said once per split."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, number: int = 1) -> None:
        if number:
            self.counts[what] += int(number)

    def sentences(self, where: str) -> list[str]:
        return [f"{where}: {number} {what}" for what, number in self.counts.items()]


def clean_boxes(
    boxes_xyxy: Sequence[Sequence[float]] | np.ndarray,
    width: int | np.ndarray,
    height: int | np.ndarray,
    tally: Tally,
) -> tuple[np.ndarray, np.ndarray]:
    """float32 (N, 4) clipped to the image, and bool (N,) of those that may stay: finite, with an area, inside.

    width, height: pixels of the image, or of the image of each box (N,)
    """
    boxes = np.asarray(boxes_xyxy, np.float64).reshape(-1, 4)
    finite = np.isfinite(boxes).all(axis=1)
    # Reversed corners are not swapped: nobody knows which of the two numbers is wrong.
    flat = finite & ~((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
    limits = np.stack([width, height, width, height], axis=-1).astype(np.float64)
    clipped = np.clip(np.nan_to_num(boxes), 0, limits)
    outside = finite & ~flat & ~((clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1]))
    # float32 may round two close borders to the same number.
    small = clipped.astype(np.float32)
    vanished = finite & ~flat & ~outside & ~((small[:, 2] > small[:, 0]) & (small[:, 3] > small[:, 1]))
    keep = finite & ~flat & ~outside & ~vanished
    tally.add("boxes with a number that is not finite dropped", (~finite).sum())
    tally.add("boxes of zero or negative width or height dropped", flat.sum() + vanished.sum())
    tally.add("boxes outside their image dropped", outside.sum())
    cut = (np.abs(clipped - boxes)[keep] > _TOLERANCE_PX).any(axis=1)
    tally.add("boxes cut at the border of their image", cut.sum())
    return small, keep


def first_few(items: Iterable[str], limit: int = 5) -> str:
    """The first `limit` items, one a line, and how many more there are."""
    items = list(items)
    lines = [f"  {item}" for item in items[:limit]]
    if len(items) > limit:
        lines.append(f"  and {len(items) - limit} more")
    return "\n".join(lines)
