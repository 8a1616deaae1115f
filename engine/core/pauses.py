"""Pausing and sleeping: calls that hold requests back, and that are answered when the engine has become quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from engine.core.utilities import UtilityError
from engine.executor.plan import Executor
from engine.scheduler.scheduler import Admission, Scheduler

Mode = Literal["abort", "wait", "keep"]
PARTS = ("weights", "kv_cache", "scheduling")
"""What `wake_up` can be told to bring back."""


class Deferred:
    """The answer to a call comes later: `finish` makes it, once `ready` says so."""

    def __init__(self, ready: Callable[[], bool], finish: Callable[[], Any]) -> None:
        self.ready = ready
        self.finish = finish


class Pauses:
    """Whether requests run, and what the workers have put away. Owned by the busy loop's thread.

    Paused: no step is planned, requests that come are queued. `mode` says what becomes of those that run: "abort" ends
    them, "wait" lets them end, "keep" has them go on afterwards. Asleep is paused, and from level 1 on without the memory of
    the KV cache (level 2: and of the weights).
    """

    def __init__(
        self, scheduler: Scheduler, executor: Executor, abort_all: Callable[[], None], reset: Callable[[], bool]
    ) -> None:
        """`abort_all` ends all requests; `reset` preempts what runs and empties the prefix cache."""
        self._scheduler = scheduler
        self._executor = executor
        self._abort_all = abort_all
        self._reset = reset
        self._changes = 0
        self.asleep = False
        self.away = False

    @property
    def paused(self) -> bool:
        """True if requests that come have to wait."""
        return self._scheduler.admission is not Admission.ALL

    def pause(self, mode: Mode = "abort", clear_cache: bool = True) -> Deferred:
        """Stop; the answer comes when nothing is computed any more and, if so asked, the prefix cache is empty."""

        def finish() -> None:
            if clear_cache:
                self._reset()

        return self._begin(mode, finish)

    def resume(self) -> None:
        """Go on; UtilityError while memory is put away."""
        if self.away:
            raise UtilityError("the engine is asleep: wake it up")
        self._admit(Admission.ALL)
        self.asleep = False

    def sleep(self, level: int = 1, mode: Mode = "abort") -> Deferred:
        """Pause; from level 1 on have the workers put memory away, which empties the prefix cache."""
        if level not in (0, 1, 2):
            raise UtilityError(f"level must be 0, 1 or 2, got {level!r}")

        def finish() -> None:
            self.asleep = True
            if level and not self.away:
                self._reset()
                self._executor.call("sleep", level)
                self.away = True

        return self._begin(mode, finish)

    def wake_up(self, tags: Any = None) -> bool:
        """Bring back everything or the PARTS named; True when requests run again, which they do with all memory back."""
        wanted = list(PARTS) if tags is None else tags
        if not isinstance(wanted, list) or not all(tag in PARTS for tag in wanted):
            raise UtilityError(f"tags must be some of {', '.join(PARTS)}, got {tags!r}")
        if self.away:
            parts = [part for part in PARTS[:2] if part in wanted]
            if parts:
                self.away = not self._executor.call("wake_up", parts)
        if not self.away:
            self.resume()
        return not self.away

    def _begin(self, mode: Mode, finish: Callable[[], None]) -> Deferred:
        if mode not in ("abort", "wait", "keep"):
            raise UtilityError(f"mode must be abort, wait or keep, got {mode!r}")
        if self.away:
            mode = "keep"
        if mode == "abort":
            self._abort_all()
        self._admit(Admission.STARTED if mode == "wait" else Admission.NOBODY)
        change = self._changes

        def ready() -> bool:
            if self._changes != change:
                # Paused or resumed otherwise: what this call waits for may never come.
                return True
            scheduler = self._scheduler
            return not scheduler.steps_under_way and (mode != "wait" or not scheduler.started)

        def done() -> None:
            if self._changes != change:
                raise UtilityError("another call has paused or resumed the engine meanwhile")
            self._scheduler.admission = Admission.NOBODY
            finish()

        return Deferred(ready, done)

    def _admit(self, admission: Admission) -> None:
        self._changes += 1
        self._scheduler.admission = admission
