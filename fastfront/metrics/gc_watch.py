"""How long garbage collection stops the world."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping


class GcWatch:
    """Counts collections and their pauses. One per process, started once; collections run one at a time, on any thread.

    Without a lock: a collection can begin while its thread holds one.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._pauses = (0, 0.0, 0.0)

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)

    def _on_gc(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        pause = time.perf_counter() - self._began
        count, total_s, longest_s = self._pauses
        self._pauses = count + 1, total_s + pause, max(longest_s, pause)

    @property
    def pauses(self) -> tuple[int, float, float]:
        """(how many, seconds in all, seconds of the longest)."""
        return self._pauses
