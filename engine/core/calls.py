"""Utility calls: answered at once, or when the engine has become quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core.messages import Call
from engine.core.outbox import Outbox
from engine.core.pauses import Deferred, Pauses
from engine.core.utilities import UtilityError, answer
from engine.protocol import utility_failure, utility_reply

LEAVING = "Server shutting down"


class Calls:
    """Owned by the busy loop's thread. Whatever is wrong with a call is told to its caller alone."""

    def __init__(
        self,
        outbox: Outbox,
        pauses: Pauses,
        reset: Callable[[bool], bool],
        clock: Callable[[], float],
        index: int,
        adapters: Callable[[str, list[Any]], Any],
    ) -> None:
        """`reset(preempt)` empties the prefix cache if that can be done; `adapters(method, args)` answers calls about them."""
        self._adapters = adapters
        self._outbox = outbox
        self._pauses = pauses
        self._reset = reset
        self._clock = clock
        self._index = index
        self._deferred: list[tuple[Call, Deferred]] = []

    def call(self, command: Call) -> None:
        """Answer a call, or note that the answer comes later."""
        self._attempt(command, lambda: self._result(command.call.method, command.call.args))

    def settle(self) -> None:
        """Answer the calls that have waited for what is the case now."""
        if not self._deferred:
            return
        waiting, self._deferred = self._deferred, []
        for command, deferred in waiting:
            if deferred.ready():
                self._attempt(command, deferred.finish)
            else:
                self._deferred.append((command, deferred))

    def refuse(self, command: Call) -> None:
        """Answer that this engine is leaving."""
        self._fail(command, LEAVING)

    def refuse_waiting(self) -> None:
        """The same for those that still wait."""
        for command, _ in self._deferred:
            self._fail(command, LEAVING)
        self._deferred = []

    def _attempt(self, command: Call, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except UtilityError as error:
            self._fail(command, str(error))
        except Exception as error:
            self._fail(command, f"{type(error).__name__}: {error}")
        else:
            if isinstance(result, Deferred):
                self._deferred.append((command, result))
            else:
                self._outbox.send(command.client, utility_reply(command.call, result, self._clock(), self._index))

    def _fail(self, command: Call, message: str) -> None:
        self._outbox.send(command.client, utility_failure(command.call, message, self._clock(), self._index))

    def _result(self, method: str, args: list[Any]) -> Any:
        pauses = self._pauses
        match method:
            case "reset_prefix_cache":
                return self._reset(bool(args and args[0]))
            case "pause_scheduler":
                return pauses.pause(*args)
            case "resume_scheduler":
                return pauses.resume(*args)
            case "is_scheduler_paused":
                return pauses.paused
            case "sleep":
                return pauses.sleep(*args)
            case "wake_up":
                return pauses.wake_up(*args)
            case "is_sleeping":
                return pauses.asleep
            case "add_lora" | "remove_lora" | "list_loras":
                return self._adapters(method, args)
            case "get_weight_version":
                return self._outbox.weight_version
            case "set_weight_version":
                return self._set_weight_version(*args)
        return answer(method, args)

    def _set_weight_version(self, version: Any) -> None:
        """Name the weights in what is sent from now on."""
        if not isinstance(version, str):
            raise UtilityError(f"a version must be a text, got {version!r}")
        self._outbox.weight_version = version
