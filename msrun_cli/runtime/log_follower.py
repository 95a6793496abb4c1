"""Shows on this terminal what another process writes into its log file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from msrun_cli.runtime.rank_processes import is_chatter


class LogFollower:
    """Prints whole new lines of a file that may not be there yet; MindSpore's own chatter stays in the file.

    hidden: beginning of lines that are not shown either; out: standard output, unless given
    """

    def __init__(self, path: Path, hidden: str | None = None, out: TextIO | None = None) -> None:
        self.path, self.hidden, self.out = path, hidden, out
        self._read = 0
        self._rest = b""

    def show(self) -> None:
        """Print what came since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except OSError:
            return
        self._read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        out = self.out or sys.stdout
        for line in lines:
            text = line.decode(errors="replace")
            if not is_chatter(text) and not (self.hidden and text.startswith(self.hidden)):
                out.write(f"{text}\n")
        if lines:
            out.flush()
