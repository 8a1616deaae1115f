"""How long garbage collection stops the world."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Mapping


class GcWatch:
    """Counts collections and their pauses. One per process, started once; collections run one at a time, on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = 0.0
        self._count = 0
        self._total_s = 0.0
        self._longest_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)

    def _on_gc(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        pause = time.perf_counter() - self._began
        with self._lock:
            self._count += 1
            self._total_s += pause
            self._longest_s = max(self._longest_s, pause)

    @property
    def pauses(self) -> tuple[int, float, float]:
        """(how many, seconds in all, seconds of the longest)."""
        with self._lock:
            return self._count, self._total_s, self._longest_s
