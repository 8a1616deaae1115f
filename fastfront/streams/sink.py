"""Answers made in Python: for shapes the native path does not know (tool calls, reasoning, other APIs)."""

from __future__ import annotations

from typing import Protocol

from fastfront._speedups.passage import Passage

Headers = list[tuple[str, str]]


class Sink(Protocol):
    """Turns the pieces of a call's choices into bytes. One call each; all its methods run on the lane's thread.

    Keep them short: they hold up the lane's other streams. A method that raises fails the call.
    """

    def add(
        self,
        index: int,
        text: str,
        token_ids: bytes,
        logprobs: bytes,
        finish: str | None,
        stop_reason: int | str | None,
        completion_tokens: int,
    ) -> bytes:
        """New text of choice `index`, whole characters, possibly "". Returns what to send now (streams only).

        An answer that does not stream comes in one piece for each choice.

        `token_ids` are this piece's as JSON digits ("1,2"; "" unless return_token_ids), `logprobs` its chat entries as JSON
        without brackets. `finish` is set with the last piece of a choice; `completion_tokens` counts all of it so far.
        """
        ...

    def passage(self, index: int) -> Passage | None:
        """Asked after `add`, of streams: how the next text of the choice goes to the client without `add`. None: it does not.

        It holds until the next `add` for the choice, which also takes what the passage kept.
        """
        ...

    def prompt_logprobs(self, index: int, logprobs: bytes) -> None:
        """The prompt's logprobs as a JSON array, before the first piece of choice `index`. Of requests that want them."""
        ...

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        """How many of the prompt's tokens were in the cache, and written to it; times of the request as a JSON object.

        Before `end`, of calls that ask for one of them (`PreparedCall.prompt_details`, `metrics`); metrics are empty if they
        were not asked for, or the call has several choices.
        """
        ...

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """All choices have finished: the last bytes of a stream, or the whole body."""
        ...

    def failure_event(self, code: int, message: str) -> bytes:
        """The last bytes of a stream that fails after its head was sent; `code` is a pump ErrorCode."""
        ...

    def failure_answer(self, code: int, message: str) -> tuple[int, Headers, bytes]:
        """Status, headers and body when it fails before anything was sent."""
        ...
