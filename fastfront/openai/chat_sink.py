"""Chat answers with tool calls and reasoning, in the same shapes as the native ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfront._speedups.passage import Field, Passage
from fastfront.openai.answers import answer_of
from fastfront.openai.chat_deltas import message_object, shown_deltas
from fastfront.openai.events import compact
from fastfront.openai.failures import engine_failure, failure_event
from fastfront.openai.reading import Reading
from fastfront.openai.reasoning.count import read_ids
from fastfront.openai.tools.stretch import Stretch
from fastfront.streams.prepared import PreparedCall
from fastfront.streams.sink import Headers

_JSON_HEADERS: Headers = [("content-type", "application/json")]
_DONE = b"data: [DONE]\n\n"
Object = dict[str, Any]


class _Choice:
    """One choice: what its text means, and what goes with it."""

    __slots__ = ("answer", "counter", "forced", "ids", "logprobs", "passage", "passages", "plain", "stop_reason")

    def __init__(self, reading: Reading | None) -> None:
        self.answer = answer_of(reading)
        self.counter = None if reading is None else reading.counter()
        self.forced = reading is None or reading.plan.choice in ("required", "named")
        self.plain = reading is None
        self.ids: list[bytes] = []                 # of whole answers, as are these
        self.logprobs: list[bytes] = []
        self.stop_reason: int | str | None = None
        self.passage: Passage | None = None        # the latest
        self.passages: dict[Stretch, Passage] = {}     # of the latest call's arguments, and of other text

    def settle(self) -> None:
        """Takes in what has passed since the last piece."""
        if self.counter is not None and self.passage is not None:
            self.count(self.passage.take()[1])

    def count(self, token_ids: bytes) -> None:
        if self.counter is not None and token_ids:
            self.counter.add(read_ids(token_ids))


class ChatSink:
    """One answer to a chat request: its body, or its chunks, in which a choice's text comes as its parser settles it.

    `readings` has one for each prompt, None where the text is the answer. `shows_ids` says whether the client asked for token
    ids: the pump must give them in any case where reasoning is counted. `shows_prompt_ids`: the prompt's too; None: as the
    answer's. `hides_details`: neither ids of the answer nor logprobs are shown. `in_batch`: neither the prompt's text nor
    tokens of reasoning are shown. `echoes`: content that is not there is "". `echo_texts`: what answers repeat, by prompt.
    """

    def __init__(
        self,
        prepared: PreparedCall,
        readings: Sequence[Reading | None],
        fingerprint: str,
        *,
        shows_ids: bool = False,
        shows_prompt_ids: bool | None = None,
        hides_details: bool = False,
        in_batch: bool = False,
        echoes: bool = False,
        echo_texts: Sequence[str] | None = None,
    ) -> None:
        self._stream = prepared.stream
        self._choices = [_Choice(reading) for reading in readings for _ in range(prepared.n)]
        self._counted = not in_batch and any(choice.counter is not None for choice in self._choices)
        self._echoes = echoes
        shows_prompt = shows_ids if shows_prompt_ids is None else shows_prompt_ids
        self._prompt_ids = [prompt.token_ids for prompt in prepared.prompts] if shows_prompt else None
        self._prompt_text = None if in_batch else prepared.prompts[0].text
        self._prompt_logprobs = b"null"
        self._prompt_tokens = [prompt.length for prompt in prepared.prompts]
        self._n = prepared.n
        self._shows_ids = shows_ids and not hides_details
        self._shows_logprobs = not hides_details
        self._gives_logprobs = prepared.logprobs is not None and not hides_details
        self._no_logprobs = b'{"content":[]}' if self._gives_logprobs else b"null"
        self._include_usage = prepared.include_usage
        self._shows_prompt_details = prepared.prompt_details
        self._continuous = prepared.continuous_usage
        self._role = prepared.role
        self._echo_texts = echo_texts or [prepared.echo_content] * len(prepared.prompts)
        self._fingerprint = fingerprint
        kind = "chat.completion.chunk" if prepared.stream else "chat.completion"
        head = {"id": prepared.external_id, "object": kind, "created": prepared.created, "model": prepared.model}
        begin = b"data: " if prepared.stream else b""
        self._head = b'%b%b,"choices":[' % (begin, compact(head)[:-1])
        self._started = False
        self._prompt_details: Object | None = None
        self._metrics = b""

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
        choice = self._choices[index]
        out = self._opening() if self._stream and not self._started else []
        choice.settle()
        choice.count(token_ids)
        if not self._shows_logprobs:
            logprobs = b""
        if not self._stream:
            choice.answer.keep(text, finish)
            if logprobs:
                choice.logprobs.append(logprobs)
            if self._shows_ids and token_ids:
                choice.ids.append(token_ids)
            choice.stop_reason = stop_reason
            return b""
        shown = shown_deltas(choice.answer.feed(text, finish))
        if not shown and (finish is not None or logprobs or (self._shows_ids and token_ids)):
            shown = [b'{"content":""}' if choice.plain else b"{}"]
        for position, delta in enumerate(shown):
            if position < len(shown) - 1:
                out.append(self._chunk(index, delta, b"", b"", None, None, completion_tokens))
            else:
                reason = None if finish is None else choice.answer.finish
                out.append(self._chunk(index, delta, token_ids, logprobs, reason, stop_reason, completion_tokens))
        return b"".join(out)

    def passage(self, index: int) -> Passage | None:
        choice = self._choices[index]
        stretch = choice.answer.stretch()
        if stretch is None or (self._continuous and self._counted):
            passage = None
        elif stretch in choice.passages:
            passage = choice.passages[stretch]
        elif stretch.kind == "nothing" and (self._shows_ids or self._gives_logprobs):
            passage = None                         # its tokens are shown without text
        else:
            layout = None if stretch.kind == "nothing" else self._layout(index, stretch)
            passage = Passage(layout, stretch.triggers, keeps_ids=choice.counter is not None)
            if stretch.call >= 0:
                choice.passages = {other: kept for other, kept in choice.passages.items() if other.call in (-1, stretch.call)}
            choice.passages[stretch] = passage
        choice.passage = passage
        return passage

    def prompt_logprobs(self, index: int, logprobs: bytes) -> None:
        self._prompt_logprobs = logprobs

    def measured(self, cached_tokens: int, created_tokens: int, metrics: bytes) -> None:
        if self._shows_prompt_details:
            self._prompt_details = {"cached_tokens": cached_tokens, "created_cache_tokens": created_tokens}
        self._metrics = metrics

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        if not self._stream:
            return self._body(prompt_tokens, completion_tokens)
        if not self._include_usage:
            return _DONE
        usage = compact(self._usage(prompt_tokens, completion_tokens, self._choices, self._prompt_details))
        name = b',"system_fingerprint":%b' % compact(self._fingerprint) if self._fingerprint else b""
        metrics = b',"metrics":%b' % self._metrics if self._metrics else b""
        return b'%b],"usage":%b%b%b}\n\n%b' % (self._head, usage, name, metrics, _DONE)

    def failure_event(self, code: int, message: str) -> bytes:
        return failure_event(code, message)

    def failure_answer(self, code: int, message: str) -> tuple[int, Headers, bytes]:
        error = engine_failure(code, message)
        return error.status, _JSON_HEADERS, error.body()

    # ---- streams

    def _opening(self) -> list[bytes]:
        """The role of every choice, and the text that they repeat."""
        self._started = True
        out = []
        for index in range(len(self._choices)):
            usage = self._choice_usage(index, 0)
            ids = b"null" if self._prompt_ids is None else compact(self._prompt_ids[index // self._n])
            out.append(
                b'%b{"index":%d,"delta":%b,"logprobs":null,"finish_reason":null}],"prompt_token_ids":%b,"prompt_text":%b%b}\n\n'
                % (self._head, index, compact({"role": self._role, "content": ""}), ids, compact(self._prompt_text), usage)
            )
            if echo := self._echo_texts[index // self._n]:
                out.append(
                    b'%b{"index":%d,"delta":%b,"logprobs":null,"finish_reason":null}]%b}\n\n'
                    % (self._head, index, compact({"content": echo}), usage)
                )
        return out

    def _layout(self, index: int, stretch: Stretch) -> list[bytes | int]:
        """Of a chunk with one piece of text."""
        if stretch.kind == "arguments":
            call = {"index": stretch.call, "function": {"arguments": ""}}
            begin = compact({"content": None, "tool_calls": [call]}).removesuffix(b'"}}]}')
            end = b'"}}]}'
        else:
            begin, end = b'{"%b":"' % stretch.kind.encode(), b'"}'
        begin = b'%b{"index":%d,"delta":%b' % (self._head, index, begin)
        layout: list[bytes | int] = [begin, Field.FIELD_TEXT, end + b',"logprobs":']
        layout += [Field.FIELD_LOGPROBS if self._gives_logprobs else b"null", b',"finish_reason":null,"token_ids":']
        layout += (b"[", Field.FIELD_IDS, b"]") if self._shows_ids else (b"null",)
        if self._continuous:
            layout += b"}]", b',"usage":', Field.FIELD_USAGE, b"}\n\n"
        else:
            layout.append(b"}]}\n\n")
        return layout

    def _chunk(
        self,
        index: int,
        delta: bytes,
        token_ids: bytes,
        logprobs: bytes,
        finish: str | None,
        stop_reason: int | str | None,
        completion_tokens: int,
    ) -> bytes:
        last = fingerprint = b""
        if finish is not None:
            last = b',"stop_reason":%b' % compact(stop_reason)
            if not self._include_usage and self._fingerprint:
                fingerprint = b',"system_fingerprint":%b' % compact(self._fingerprint)
        return b'%b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b%b,"token_ids":%b}]%b%b}\n\n' % (
            self._head,
            index,
            delta,
            _logprobs_object(logprobs),
            b"null" if finish is None else compact(finish),
            last,
            b"[%b]" % token_ids if self._shows_ids else b"null",
            fingerprint,
            self._choice_usage(index, completion_tokens),
        )

    def _choice_usage(self, index: int, completion_tokens: int) -> bytes:
        if not self._continuous:
            return b""
        prompt = self._prompt_tokens[index // self._n]
        return b',"usage":%b' % compact(self._usage(prompt, completion_tokens, self._choices[index : index + 1]))

    # ---- whole answers

    def _body(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        details = self._prompt_details
        usage = {
            **self._usage(prompt_tokens, completion_tokens),
            "prompt_tokens_details": details and {**details, "multimodal_tokens": None},
            "completion_tokens_details": self._details(self._choices),
        }
        after = {
            "service_tier": None,
            "system_fingerprint": self._fingerprint or None,
            "usage": usage,
            "prompt_logprobs": None,
            "prompt_token_ids": None if self._prompt_ids is None else self._prompt_ids[0],
            "prompt_text": self._prompt_text,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
        choices = b",".join(self._whole(index, choice) for index, choice in enumerate(self._choices))
        name = b'"prompt_logprobs":'
        end = compact(after)[1:].replace(name + b"null", name + self._prompt_logprobs, 1)
        if self._metrics:
            end = b"%b%b}" % (end.removesuffix(b"null}"), self._metrics)
        return b"%b%b],%b" % (self._head, choices, end)

    def _whole(self, index: int, choice: _Choice) -> bytes:
        echo = self._echo_texts[index // self._n]
        message = message_object(self._role, echo, choice.answer.message(), choice.forced or self._echoes)
        return (
            b'{"index":%d,"message":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"token_ids":%b,"routed_experts":null}'
            % (
                index,
                compact(message),
                _logprobs_object(b",".join(choice.logprobs), self._no_logprobs),
                compact(choice.answer.finish),
                compact(choice.stop_reason),
                b"[%b]" % b",".join(choice.ids) if self._shows_ids else b"null",
            )
        )

    # ---- usage

    def _usage(
        self, prompt_tokens: int, completion_tokens: int, choices: Sequence[_Choice] = (), prompt_details: Object | None = None
    ) -> Object:
        """With details of these choices and of the prompt if there are any."""
        usage: Object = {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }
        if prompt_details is not None:
            usage["prompt_tokens_details"] = prompt_details
        if choices and (details := self._details(choices)) is not None:
            usage["completion_tokens_details"] = details
        return usage

    def _details(self, choices: Sequence[_Choice]) -> Object | None:
        if not self._counted:
            return None
        return {"reasoning_tokens": sum(choice.counter.count for choice in choices if choice.counter is not None)}


def _logprobs_object(logprobs: bytes, without: bytes = b"null") -> bytes:
    return b'{"content":[%b]}' % logprobs if logprobs else without
