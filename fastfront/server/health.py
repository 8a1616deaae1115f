"""Whether the server can serve, and what ended it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fastfront._speedups.intake import Gate
from fastfront.errors import EngineDeadError


class Health(Gate):
    """Written by lanes, the engine watcher and whoever lets engines in again, read by every request.

    `changed` is called when the main thread should look.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._reason: str | None = None
        self._final = False
        self._draining = False
        self._changed = changed
        self._guard: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self.is_open = True

    @property
    def ok(self) -> bool:
        return self._reason is None and not self._draining

    @property
    def dead_reason(self) -> str | None:
        """Why no engine is left, or None. An engine that is being started again is not counted as lost here."""
        return self._reason if self._final else None

    def _settle(self) -> None:
        """Whether the gate is open follows from everything else; with the lock, so that the last one to say so sees it all."""
        with self._lock:
            self.is_open = self._reason is None and not self._draining and self._guard is None

    def check(self) -> None:
        """Raises EngineDeadError (answered 503) when requests cannot be served, or what the guard raises."""
        reason = self._reason
        if reason is not None:
            raise EngineDeadError(reason)
        if self._draining:
            raise EngineDeadError("the server is shutting down")
        if self._guard is not None:
            self._guard()

    def guard(self, check: Callable[[], None]) -> None:
        """From here on `check()`, too, is asked whether a request can be served; it raises if not."""
        self._guard = check
        self._settle()

    def dead(self, reason: str) -> None:
        """No engine is left, and none will come. The first reason stays."""
        if self._reason is None:
            self._reason = reason
        self._final = True
        self._settle()
        self._changed()

    def waiting(self, reason: str) -> None:
        """No engine is left, but one is being started again. The first reason stays."""
        if self._reason is None:
            self._reason = reason
        self._settle()

    def back(self) -> None:
        """An engine takes requests again."""
        self._reason, self._final = None, False
        self._settle()
        self._changed()

    def drain(self) -> None:
        self._draining = True
        self._settle()
