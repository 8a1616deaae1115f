"""Text that goes past a sink: clients get the same bytes as when the sink is given every piece."""

from __future__ import annotations

import gc
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfront._speedups.msgpack import packb
from fastfront._speedups.passage import Passage
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.config import ParserOptions
from fastfront.openai.chat import prepare_chat
from fastfront.openai.messages.prepare import prepare_message
from fastfront.openai.reasoning.count import ReasoningCounter
from fastfront.openai.responses.prepare import prepare_response
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.tools.registry import REASONING_PARSERS
from fastfront.streams.prepared import PreparedCall
from tests.native.pumping import Client, Rig, python_functions
from tests.unit.support import JSON_TYPE, config_of

SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
FUNCTION = {"name": "f", "parameters": SCHEMA}
ARGUMENTS = '{"place": "the \\"old\\" town of Kraków, by the river", "n": [1, 2]}'
CALL = f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>'
PARTS = [
    CALL, "</think>", "\n\n", " some words", " and <b>more</b>", "<tool", "é", "“quoted” \"too\"\\", "<think>", "<|im_end|>",
    "\x01",
]  # fmt: skip
Prepare = Callable[[Mapping[str, Any]], PreparedCall]
STOP = 0


class Fed:
    """A sink that is given everything."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def passage(self, index: int) -> None:
        return None


@pytest.fixture(scope="module")
def reader(smollm2_folder: Path) -> Serving:
    template = "{{ tools }}{{ messages[-1]['content'] }}"
    return build_serving(config_of(smollm2_folder, chat_template=template, parsers=ParserOptions("hermes", "qwen3")))


@pytest.fixture(scope="module")
def vocabulary(reader: Serving) -> Vocabulary:
    return Vocabulary.from_tokenizer(reader.tokenizer.raw)


@pytest.fixture(autouse=True)
def known_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * size)
    monkeypatch.setattr("os.urandom", bytes)
    monkeypatch.setattr("time.time", lambda: 1e9)


def chat(serving: Serving, fields: Mapping[str, Any]) -> PreparedCall:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": FUNCTION}], **fields}
    return prepare_chat(json.dumps(body).encode(), JSON_TYPE.get, serving)


def message(serving: Serving, fields: Mapping[str, Any]) -> PreparedCall:
    body = {
        "model": serving.served_names[0], "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": SCHEMA}], **fields,
    }  # fmt: skip
    return prepare_message(json.dumps(body).encode(), JSON_TYPE.get, serving)


def response(serving: Serving, fields: Mapping[str, Any]) -> PreparedCall:
    body = {"input": "hi", "tools": [{"type": "function", **FUNCTION}], **fields}
    return prepare_response(json.dumps(body).encode(), JSON_TYPE.get, serving)


APIS = {"chat": chat, "message": message, "response": response}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {}, {"return_token_ids": True}, {"stream_options": {"include_usage": True}}, {"include_reasoning": False}, {"n": 2},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, {"tool_choice": "none"},
        {"include_reasoning": False, "return_token_ids": True}, {"stop": ["the river"]},
        {"chat_template_kwargs": {"enable_thinking": False}}, {"logprobs": True},
    ],
    "message": [{}, {"stop_sequences": ["the river"]}],
    "response": [{}, {"enable_response_messages": True}],
}  # fmt: skip


def sent(vocabulary: Vocabulary, prepared: PreparedCall, pieces: Sequence[Sequence[int]], fed: bool) -> bytes:
    """What a client gets of a call whose choices all get these tokens."""
    if fed:
        prepared = prepared.replace(sink=Fed(prepared.sink))
    client, rig = Client(), Rig(vocabulary)
    _, requests = rig.start_call(client, prepared)
    for ids in pieces:
        rig.step(*[[request, list(ids)] for request in requests])
    rig.step(*[[request, [], STOP] for request in requests])
    assert rig.pump.errors == []
    return re.sub(rb'"(chatcmpl-|resp_)[^"]*"', b'"id"', b"".join(client.pieces))


def cut(ids: list[int], sizes: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    at = 0
    while at < len(ids):
        size = sizes[len(found) % len(sizes)]
        found.append(ids[at : at + size])
        at += size
    return found


@pytest.mark.parametrize(("api", "options"), [(api, options) for api, many in OPTIONS.items() for options in many], ids=str)
def test_clients_get_the_same(reader: Serving, vocabulary: Vocabulary, api: str, options: dict[str, Any]) -> None:
    @settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.lists(st.integers(1, 4), min_size=1, max_size=4))
    def check(text: str, sizes: list[int]) -> None:
        pieces = cut(reader.tokenizer.raw.encode(text, add_special_tokens=False).ids, sizes)
        make = partial(APIS[api], reader, {"stream": True, **options})
        assert sent(vocabulary, make(), pieces, fed=False) == sent(vocabulary, make(), pieces, fed=True)

    check()


@pytest.mark.parametrize("api", sorted(APIS))
def test_passages_of_earlier_calls_are_not_kept(reader: Serving, api: str) -> None:
    sink = APIS[api](reader, {"stream": True}).sink
    assert sink is not None
    gc.collect()
    before = passages()
    for piece in ["</think>", *re.findall(r"\s?\S+", CALL * 50)]:
        sink.add(0, piece, b"", b"", None, None, 1)
        sink.passage(0)
    assert passages() - before < 10


def passages() -> int:
    return sum(type(item) is Passage for item in gc.get_objects())  # isinstance would ask proxies of what is dead


@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("name", sorted(REASONING_PARSERS))
def test_tokens_of_reasoning_are_counted_in_any_batches(name: str, size: int) -> None:
    parser = REASONING_PARSERS[name]
    marks = [*parser.opens, *parser.closes, *parser.implied, *parser.call_ends, *parser.uncounted]
    ids = [0, 55]                          # an opening marker, if there is one, and a token
    ids += [mark % len(marks) if marks and mark < 8 else mark for mark in random.Random(size).choices(range(60), k=400)]
    one, many = (ReasoningCounter(parser, dict(zip(marks, range(9), strict=False)).get, {50}) for _ in range(2))
    for token in ids:
        one.add([token])
    for at in range(0, len(ids), size):
        many.add(iter(ids[at : at + size]))
    assert many.count == one.count
    assert one.count or parser.counts == "none"


@pytest.mark.parametrize("lead", ["I think", "</think>So I say", "</think>" + CALL.partition("old")[0]])
@pytest.mark.parametrize("api", sorted(APIS))
def test_no_python_runs_per_token(reader: Serving, vocabulary: Vocabulary, api: str, lead: str) -> None:
    """Reasoning, content and arguments of calls in streams with tools, and any text of answers that do not stream."""

    class Wire:
        send_bytes = staticmethod(len)
        end = staticmethod(int)

    class Protocol:
        def response_stream(self, status: int, headers: list[tuple[str, str]]) -> type[Wire]:
            return Wire

    rig = Rig(vocabulary)
    calls = [APIS[api](reader, {"stream": stream}) for stream in (True, False)]
    requests = [rig.start_call(Protocol(), call)[1][0] for call in calls]
    for token in reader.tokenizer.raw.encode(lead, add_special_tokens=False).ids:
        rig.step(*[[request, [token]] for request in requests])
    (word,) = reader.tokenizer.raw.encode(" town", add_special_tokens=False).ids
    step = packb([0, [[request, [word]] for request in requests], None, 1.0])
    rig.pump.feed(step)
    assert python_functions(partial(rig.pump.feed, step)) == []
    assert rig.pump.errors == []
