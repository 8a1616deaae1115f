"""One step of a search: a call for one token after each beam, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastfront.openai.beams.search import NextTokens
from fastfront.openai.failures import engine_failure
from fastfront.streams.sink import Headers

_ID = "token_id:"


class StepSink:
    """Gathers the logprobs of a step's calls. Exactly one of the two functions is called, on the lane's thread.

    `done` gets what may follow each beam, None if a beam's call was aborted; `failed` gets status and body.
    """

    def __init__(
        self, beams: int, done: Callable[[list[NextTokens] | None], None], failed: Callable[[int, bytes], None]
    ) -> None:
        self._found: list[NextTokens] = [{} for _ in range(beams)]
        self._aborted = False
        self._done = done
        self._failed = failed

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
        if logprobs and not self._found[index]:
            self._found[index] = next_tokens(logprobs)
        self._aborted |= finish == "abort"
        return b""

    def passage(self, index: int) -> None:
        """Steps do not stream."""

    def prompt_logprobs(self, index: int, logprobs: bytes) -> None:
        """Nobody asks for them."""

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        """Nobody asks for it."""

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        self._done(None if self._aborted else self._found)
        return b""

    def failure_event(self, code: int, message: str) -> bytes:
        raise AssertionError("steps do not stream")

    def failure_answer(self, code: int, message: str) -> tuple[int, Headers, bytes]:
        error = engine_failure(code, message)
        self._failed(error.status, error.body())
        return error.status, [], b""


def next_tokens(logprobs: bytes) -> NextTokens:
    """What the first of some chat logprob entries says, whose tokens are shown as `token_id:N`."""
    entry: dict[str, Any] = json.loads(b"[%b]" % logprobs)[0]
    return {int(item["token"].removeprefix(_ID)): item["logprob"] for item in (entry, *entry["top_logprobs"])}
