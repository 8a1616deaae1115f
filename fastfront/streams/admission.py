"""Refusing requests when there is too much to do, before they cost much."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fastfront.errors import ApiError

RETRY_AFTER_S = 1  # told to those who are refused

class Admission:
    """Bounds what runs and waits. Any thread; the lock makes sure that two requests do not take the same place."""

    def __init__(
        self,
        max_requests: int | None,
        max_tokens: int | None,
        in_flight: Callable[[], int],
        prefill_tokens: Callable[[], int],
        on_rejection: Callable[[str], None],
    ) -> None:
        """`in_flight()`: choices in engines; `prefill_tokens()`: prompt tokens of those that have no token yet.

        `on_rejection(flag)` is told of every refusal, by the flag's name with underscores.
        """
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._in_flight = in_flight
        self._prefill_tokens = prefill_tokens
        self._on_rejection = on_rejection
        self._lock = threading.Lock()

    def check(self, choices: int = 1, tokens: int = 0) -> None:
        """Whether a request of so many choices and prompt tokens has room; without numbers: whether any request can have.

        A prompt longer than the bound on tokens has room when no other waits. Raises ApiError (429).
        """
        if self._max_requests is not None:
            there = self._in_flight()
            if there + choices > self._max_requests:
                self._refuse("max_num_queued_reqs", f"{there} choices are running or waiting", self._max_requests)
        if self._max_tokens is not None:
            waiting = self._prefill_tokens()
            if waiting and waiting + tokens > self._max_tokens:
                self._refuse("max_num_queued_tokens", f"{waiting} prompt tokens are waiting", self._max_tokens)

    def admit(self, choices: int, tokens: int, take: Callable[[], list[int]]) -> list[int]:
        """What `take()` gives, which makes the request count among those in flight. Raises ApiError (429) without room."""
        with self._lock:
            self.check(choices, tokens)
            return take()

    def _refuse(self, flag: str, what: str, bound: int) -> None:
        self._on_rejection(flag)
        name = flag.replace("_", "-")
        raise ApiError(
            f"The server has too much to do: {what} (--{name} {bound}). Try again later.",
            status=429,
            kind="RateLimitError",
            headers=[("retry-after", str(RETRY_AFTER_S))],
        )
