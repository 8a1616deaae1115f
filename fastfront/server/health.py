"""Whether the server can serve, and what ended it."""

from __future__ import annotations

from collections.abc import Callable

from fastfront.errors import EngineDeadError


class Health:
    """Written by lanes and the engine watcher, read by every request. `changed` is called when the main thread should look."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._reason: str | None = None
        self._draining = False
        self._changed = changed

    @property
    def ok(self) -> bool:
        return self._reason is None and not self._draining

    @property
    def dead_reason(self) -> str | None:
        """Why no engine is left, or None."""
        return self._reason

    def check(self) -> None:
        """Raises EngineDeadError (answered 503) when requests cannot be served."""
        if self._reason is not None:
            raise EngineDeadError(self._reason)
        if self._draining:
            raise EngineDeadError("the server is shutting down")

    def dead(self, reason: str) -> None:
        """No engine is left. The first reason stays."""
        if self._reason is None:
            self._reason = reason
        self._changed()

    def drain(self) -> None:
        self._draining = True
