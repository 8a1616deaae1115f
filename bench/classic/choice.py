"""What is done per token of one choice: decode, look for stop strings, collect until the request's coroutine comes."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

import msgspec
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from engine.protocol import EngineCoreOutput, FinishReason

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "abort"}


@dataclass
class Delta:
    """News of one choice since its coroutine last looked. `logprobs`: (id, value, [(id, value), ...]) for each token."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[tuple[int, float, list[tuple[int, float]]]] = field(default_factory=list)
    finish: str | None = None


class Choice:
    """One running sequence; `push` by the output task, `take` by the request's coroutine, both on the loop."""

    def __init__(self, request_id: str, index: int, tokenizer: Tokenizer, stops: list[str], news: asyncio.Event) -> None:
        self.request_id = request_id
        self.index = index
        self.count = 0
        self._tokenizer = tokenizer
        self._decode = DecodeStream(skip_special_tokens=True)
        self._stops = stops
        self._kept = max(map(len, stops)) - 1 if stops else 0
        self._held = ""
        self._news = news
        self._delta = Delta()

    def push(self, output: EngineCoreOutput) -> bool:
        """Take what a step brought; True when a stop string has ended the choice before the engine did."""
        delta = self._delta
        stopped = False
        for token in output.new_token_ids:
            self.count += 1
            delta.token_ids.append(token)
            text = self._decode.step(self._tokenizer, token)
            if not text:
                continue
            if not self._stops:
                delta.text += text
                continue
            self._held += text
            found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
            if found:
                delta.text += self._held[: min(found)]
                self._held = ""
                delta.finish = "stop"
                stopped = True
                break
            cut = max(0, len(self._held) - self._kept)
            delta.text += self._held[:cut]
            self._held = self._held[cut:]
        if output.new_logprobs is not None:
            delta.logprobs += read_logprobs(output.new_logprobs)
        if output.finish_reason is not None and not stopped:
            delta.text += self._held
            delta.finish = _FINISH.get(FinishReason(output.finish_reason), "error")
        self._news.set()
        return stopped and output.finish_reason is None

    def take(self) -> Delta | None:
        """What has come since the last time; None: nothing."""
        delta = self._delta
        if not delta.token_ids and delta.finish is None:
            return None
        self._delta = Delta()
        return delta


def read_logprobs(arrays: list[list[object]]) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Rows of the arrays ids (i4 or i8) and values (f4), both inline, sampled token first."""
    (id_type, shape, ids), (_, _, floats) = arrays[0], arrays[1]
    assert isinstance(ids, msgspec.msgpack.Ext), "arrays come inline"
    assert isinstance(floats, msgspec.msgpack.Ext)
    assert isinstance(shape, list)
    rows, width = shape
    size = rows * width
    tokens = struct.unpack(f"<{size}{'i' if id_type == '<i4' else 'q'}", ids.data)
    values = struct.unpack(f"<{size}f", floats.data)
    found = []
    for start in range(0, size, width):
        pairs = list(zip(tokens[start : start + width], values[start : start + width], strict=True))
        found.append((*pairs[0], pairs[1:]))
    return found
