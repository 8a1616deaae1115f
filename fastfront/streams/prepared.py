"""What a validated, rendered and tokenized request is: the record handed from the OpenAI layer to a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fastfront._speedups.prepared import PreparedCall, PreparedPrompt

__all__ = ["PreparedCall", "PreparedPrompt", "Steps"]


class Steps(Protocol):
    """An answer that takes several calls, one after another. One thread at a time."""

    @property
    def stream(self) -> bool:
        """Whether the answer is a stream's events."""
        ...

    def next_call(self, done: Callable[[], None], failed: Callable[[int, bytes], None]) -> PreparedCall | None:
        """The call that is next, which has a sink; None: the answer is there.

        At its end either `done` is called, on a lane's thread, and then it is time for `next_call` again; or `failed`, with the
        status and body that the client gets; or neither, if it was given up.
        """
        ...

    def answer(self) -> bytes:
        """The whole body."""
        ...
