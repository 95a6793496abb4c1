"""What was read a moment ago, shared by threads: a bounded memory that saves work and never changes a result."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np


class RecentlyRead:
    """`read(index)` -> uint8 array, kept up to `limit_bytes`; the least recently wanted arrays go first.

    Two threads that want the same index at once share one call. Arrays are read-only, since several users hold them. An
    error is raised to those who wait for it and not kept. A forked process starts with an empty memory of its own.
    """

    def __init__(self, read: Callable[[int], np.ndarray], limit_bytes: int) -> None:
        self._read = read
        self._limit = limit_bytes
        self._forget()

    def __getitem__(self, index: int) -> np.ndarray:
        if self._limit <= 0:
            return self._read(index)
        if self._process != os.getpid():
            self._forget()
        with self._lock:
            future = self._arrays.get(index)
            if future is not None:
                self._arrays.move_to_end(index)
            else:
                mine = self._arrays[index] = Future()
        return future.result() if future is not None else self._keep(index, mine)

    def _keep(self, index: int, future: Future[np.ndarray]) -> np.ndarray:
        try:
            array = self._read(index)
        except BaseException as error:
            with self._lock:
                self._arrays.pop(index, None)
            future.set_exception(error)
            raise
        array.flags.writeable = False
        future.set_result(array)
        with self._lock:
            self._used += array.nbytes
            while self._used > self._limit:
                oldest = next((i for i, kept in self._arrays.items() if kept.done()), None)
                if oldest is None:
                    break
                self._used -= self._arrays.pop(oldest).result().nbytes
        return array

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._used = 0
        self._arrays: OrderedDict[int, Future[np.ndarray]] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> RecentlyRead:
        return self
