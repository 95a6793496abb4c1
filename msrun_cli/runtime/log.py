"""One console for log lines, progress and tables, and a log file beside it."""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console

console = Console(soft_wrap=True)


class _ConsoleHandler(logging.Handler):
    """Prints through the console, so that a live progress display is not torn."""

    def emit(self, record: logging.LogRecord) -> None:
        style = {logging.WARNING: "yellow", logging.ERROR: "red"}.get(record.levelno)
        console.print(self.format(record), style=style, markup=False, highlight=False)


def start_log(path: Path | None) -> None:
    """Send the logger "msrun" to the console and to the file `path` (appended), if there is one."""
    logger = logging.getLogger("msrun")
    stop_log()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    shown = _ConsoleHandler()
    shown.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(shown)
    if path is not None:
        kept = logging.FileHandler(path, encoding="utf-8")
        kept.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(kept)


def stop_log() -> None:
    logger = logging.getLogger("msrun")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
