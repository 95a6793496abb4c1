"""Version numbers as Python packages, CANN and drivers write them: 2.7.1.post1, 8.0.RC3, 24.1.rc2.2, 7.6.0.1.220."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WORDS = {"dev": -5, "alpha": -4, "a": -4, "beta": -3, "b": -3, "rc": -2}
_LENGTH = 8  # parts that are compared
_TOKEN = re.compile(r"\d+|[a-z]+")
_CLAUSE = re.compile(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*([\w.*+!-]+)\s*")

Key = tuple[tuple[int, float], ...]


def version_key(version: str) -> Key:
    """For sorting: 8.0.RC3 < 8.0.0 < 8.0.1, 2.7.1 < 2.7.1.post1; zeros at the end do not count."""
    parts: list[tuple[int, float]] = []
    for token in _TOKEN.findall(version.split("+")[0].lower()):
        if token.isdigit():
            parts.append((1, float(token)))
        else:
            parts.append((0, float(_WORDS[token])) if token in _WORDS else (1, 0.5))
    return tuple((parts + [(1, 0.0)] * _LENGTH)[:_LENGTH])


def series(version: str) -> str:
    """First two numbers: "7.6" of 7.6.0.1.220."""
    return ".".join(re.findall(r"\d+", version)[:2])


def without_stage(version: str) -> str:
    """8.0.RC1.beta1 -> 8.0.RC1, 6.3.RC1.alpha003 -> 6.3.RC1, 2.7.1.post1 -> 2.7.1, in capitals as CANN writes RC."""
    bare = re.sub(r"\.?(alpha|beta|post)\d*$", "", version.strip(), flags=re.IGNORECASE)
    return re.sub(r"rc(?=\d)", "RC", bare, flags=re.IGNORECASE)


def satisfies(version: str, bounds: str) -> bool:
    """Whether the version is within bounds such as ">=1.25,<2"; "" has none. Unknown operators count as met."""
    return all(_holds(version, *clause) for clause in _CLAUSE.findall(bounds))


def _holds(version: str, operator: str, bound: str) -> bool:
    if bound.endswith(".*"):
        inside = f"{version}.".startswith(bound[:-1])
        return inside if operator == "==" else not inside
    mine, other = version_key(version), version_key(bound)
    if operator == "~=":
        return mine >= other and f"{version}.".startswith(bound.rpartition(".")[0] + ".")
    return {
        "==": mine == other,
        "===": version == bound,
        "!=": mine != other,
        "<": mine < other,
        "<=": mine <= other,
        ">": mine > other,
        ">=": mine >= other,
    }[operator]


def nearest(version: str, known: Iterable[str]) -> list[str]:
    """The known versions just below and just above, at most two."""
    ordered = sorted(known, key=version_key)
    below = [other for other in ordered if version_key(other) <= version_key(version)]
    above = [other for other in ordered if version_key(other) > version_key(version)]
    return [*below[-1:], *above[:1]]


Range = tuple[str, str]


def parse_ranges(text: str) -> list[Range]:
    """`[V1],[V2,V3]` of a compatible_version line -> [(V1, V1), (V2, V3)], both ends included."""
    found = []
    for inner in re.findall(r"\[([^\]]*)\]", text):
        ends = [end.strip() for end in inner.split(",") if end.strip()]
        if ends:
            found.append((ends[0], ends[-1]))
    return found


def in_ranges(version: str, ranges: Sequence[Range]) -> bool:
    return any(version_key(low) <= version_key(version) <= version_key(high) for low, high in ranges)


def line_of(inner_version: str) -> str | None:
    """V100R001C20SPC001B251 -> V100R001C20. The count after C started again with CANN 9: never compare by order."""
    match = re.match(r"(V\d+R\d+C\d+)", inner_version)
    return match.group(1) if match else None


def line_in_ranges(line: str, ranges: Sequence[Range]) -> bool:
    """Membership; [V100R001C13,V100R001C19] holds all lines from C13 to C19 of V100R001."""
    head, _, number = line.rpartition("C")
    for low, high in ranges:
        (low_head, _, low_number), (high_head, _, high_number) = (low.rpartition("C"), high.rpartition("C"))
        if low_head == high_head == head and low_number.isdigit() and high_number.isdigit():
            if int(low_number) <= int(number) <= int(high_number):
                return True
    return False
