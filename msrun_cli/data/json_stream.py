"""Reads the lists of a large JSON object one element at a time, so that memory holds a piece of the file only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from msrun_cli.common.errors import DataError

_CHUNK = 1 << 20  # characters

# Near the end of what was read, a fault may only mean that a word or number is cut ("nul", "-", "1e", "\u00").
_CUT = 16

_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER_ELEMENT = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
_AFTER_MEMBER = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")


def read_lists(path: Path, takers: Mapping[str, Callable[[Any], None]]) -> set[str]:
    """Give each element of the top-level lists named in `takers` to their function, in the order of the file.

    Other members are skipped. Returns which of the names are lists in the file (none when it holds no object).
    Raises DataError naming the file and the place for what is no JSON or cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _Reader(file).run(takers)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON: {error.msg}.") from error
    except RecursionError as error:
        raise DataError(f"{path} is not valid JSON that this program reads: it is nested too deeply.") from error
    except ValueError as error:  # UTF-8, numbers of thousands of digits
        raise DataError(f"{path} is not valid JSON: {error}.") from error


class _Reader:
    """text[position:] is what comes next; the text grows at its end and is cut at its beginning."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.text = ""
        self.position = 0
        self.at_end = False
        self.gone = 0  # characters before the text
        self.gone_lines = 0
        self.line_start = 0  # character at which the last of those lines begins
        self.scan = json.JSONDecoder().scan_once

    def run(self, takers: Mapping[str, Callable[[Any], None]]) -> set[str]:
        lists: set[str] = set()
        self.skip_space()
        if self.peek() != "{":
            self.value()
            return lists
        self.position += 1
        self.skip_space()
        if self.peek() == "}":
            self.position += 1
        else:
            while self.member(takers, lists):
                pass
        self.skip_space()
        if self.peek():
            raise self.error("Extra data", self.position)
        return lists

    def member(self, takers: Mapping[str, Callable[[Any], None]], lists: set[str]) -> bool:
        """One `name: value` and what follows it; whether another one comes."""
        if self.peek() != '"':
            raise self.error("Expecting property name enclosed in double quotes", self.position)
        name = self.value()
        self.expect(_COLON, "Expecting ':' delimiter")
        if self.peek() == "[":
            if name in lists:
                raise self.error(f"Two lists named {name}", self.position)
            taker = takers.get(name)
            for element in self.elements():
                if taker is not None:
                    taker(element)
            if taker is not None:
                lists.add(name)
        else:
            self.value()
        return self.expect(_AFTER_MEMBER, "Expecting ',' delimiter") == ","

    def elements(self) -> Iterator[Any]:
        self.position += 1
        self.skip_space()
        if self.peek() == "]":
            self.position += 1
            return
        separator = ","
        while separator == ",":
            # The fast way, for elements that are all there with what follows them.
            text, position, scan, after = self.text, self.position, self.scan, _AFTER_ELEMENT.match
            try:
                while separator == ",":
                    element, end = scan(text, position)
                    match = after(text, end)
                    if match is None or (next_position := match.end()) == len(text):
                        break
                    position, separator = next_position, match[1]
                    self.position = position
                    yield element
            except (StopIteration, json.JSONDecodeError):
                pass  # cut, or a fault: `value` tells
            if separator == ",":
                yield self.value()
                separator = self.expect(_AFTER_ELEMENT, "Expecting ',' delimiter")

    def value(self) -> Any:
        """The JSON value that begins here; more is read until all of it is there."""
        while True:
            try:
                value, end = self.scan(self.text, self.position)
            except StopIteration as stop:
                fault, place = "Expecting value", int(stop.value)
            except json.JSONDecodeError as error:
                fault, place = error.msg, error.pos
            else:
                # A number may go on where the text ends: "12", "1.", "1e-".
                if self.at_end or end < len(self.text) - 2:
                    self.position = end
                    return value
                self.more()
                continue
            may_be_cut = place >= len(self.text) - _CUT or fault.startswith("Unterminated string")
            if self.at_end or not may_be_cut:
                raise self.error(fault, place)
            self.more()

    def expect(self, pattern: re.Pattern[str], fault: str) -> str:
        """Go past the delimiter; its first group, if it has one."""
        while True:
            match = pattern.match(self.text, self.position)
            if not self.at_end and (match is None or match.end() == len(self.text)):
                if match is None and self.skip_space_until():
                    raise self.error(fault, self.position)
                self.more()
                continue
            if match is None:
                self.skip_space()
                raise self.error(fault, self.position)
            self.position = match.end()
            return match[1] if match.lastindex else ""

    def skip_space_until(self) -> bool:
        """Go past white space in what was read; whether anything else is left of it."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None  # it matches nothing, too
        self.position = match.end()
        return self.position < len(self.text)

    def skip_space(self) -> None:
        while not self.skip_space_until() and not self.at_end:
            self.more()

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def more(self) -> None:
        """Drop what was used and read on: at least as much as is left, so that long values take few attempts."""
        used = self.text[: self.position]
        lines = used.count("\n")
        if lines:
            self.gone_lines += lines
            self.line_start = self.gone + used.rindex("\n") + 1
        self.gone += len(used)
        rest = self.text[self.position :]
        piece = self.file.read(max(_CHUNK, len(rest)))
        self.at_end = not piece
        self.text, self.position = rest + piece, 0

    def error(self, fault: str, place: int) -> json.JSONDecodeError:
        """The fault with its line and column in the file."""
        before = self.text[:place]
        line = 1 + self.gone_lines + before.count("\n")
        start = self.gone + before.rindex("\n") + 1 if "\n" in before else self.line_start
        character = self.gone + place
        text = f"{fault}: line {line} column {character - start + 1} (char {character})"
        return json.JSONDecodeError(text, "", 0)
