"""Progress for people: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import time

from rich.progress import BarColumn, Progress, TextColumn

from msrun_cli.engine.callbacks.state import Row, TrainState
from msrun_cli.runtime.log import console

log = logging.getLogger("msrun")


class ProgressDisplay:
    """Shows epoch, step, remaining time, losses, learning rate, loss scale, skipped steps, images/s, wait for data.

    mode: "rich" (live bar), "plain" (one log line per row) or "auto" (rich on a terminal).
    """

    def __init__(self, state: TrainState, term_names: tuple[str, ...], mode: str) -> None:
        self.state = state
        self.term_names = term_names
        self.started = time.perf_counter()
        self._speed = 0.0
        self._live: Progress | None = None
        if mode == "rich" or (mode == "auto" and console.is_terminal):
            self._live = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=20), console=console, transient=True
            )
            self._task = self._live.add_task("", total=state.total_steps)

    def write(self, row: Row) -> None:
        if row["kind"] != "step":
            return
        text = self._text(row)
        if self._live is None:
            log.info("%s", text)
            return
        # The file keeps every line; the terminal shows the last one beside the bar.
        self._live.start()
        self._live.update(self._task, completed=self.state.step, description=text)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _text(self, row: Row) -> str:
        state = self.state
        in_epoch = (state.step - 1) % state.steps_per_epoch + 1
        parts = [
            f"epoch {state.epoch}/{state.epochs}",
            f"step {in_epoch}/{state.steps_per_epoch}",
            f"ETA {self._eta(row)}",
            f"loss {row['loss']:.4f}",
        ]
        if len(self.term_names) > 1:
            parts[-1] += " (" + " ".join(f"{name} {row[name]:.4f}" for name in self.term_names) + ")"
        parts += [f"lr {row['lr']:.5f}", f"scale {row['loss_scale']:g}", f"skipped {row['overflows']}"]
        if row["images_per_s"] is not None:
            parts += [f"{row['images_per_s']:.1f} img/s"]
        if row["data_wait"] is not None:  # the device waits by itself when data is sunk
            parts += [f"data wait {100 * float(row['data_wait']):.0f}%"]
        return "  ".join(parts)

    def _eta(self, row: Row) -> str:
        """Remaining time at the speed of the steps, smoothed over the rows; evaluation is not counted."""
        speed = row["images_per_s"]
        if not speed:
            return "-"
        self._speed = float(speed) if self._speed == 0 else 0.7 * self._speed + 0.3 * float(speed)
        seconds = int((self.state.total_steps - self.state.step) * self.state.images_per_step / self._speed)
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
