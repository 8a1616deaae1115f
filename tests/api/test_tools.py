"""Tool calls and reasoning over HTTP, from an engine whose tokens the test chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from tests.api.conftest import serve
from tests.golden.compare import HERE
from tests.support.metrics import metric
from tests.support.mock import rule, scripted
from tests.support.server import Server, read_stream
from tests.support.tokens import Pieces

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {key: {"type": "integer"}}}}}
    for name, key in (("f", "a"), ("g", "b"))
]
CALL_F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {"b": 2}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "f"}}
FLAGS = ("--chat-template", str(HERE / "echo.jinja"), "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
MODES = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that reads tool calls and knows of no reasoning."""
    yield from serve(tmp_path_factory, "caller", *FLAGS)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that reads tool calls and reasoning. Prompts are the last message as it is."""
    yield from serve(tmp_path_factory, "thinker", *FLAGS, "--reasoning-parser", "qwen3")


class Got(NamedTuple):
    """A choice as a client puts it together."""

    reasoning: str | None
    content: str | None
    calls: list[dict[str, Any]]
    finish: str
    pieces: list[dict[str, Any]]  # entries of tool_calls as they came


def threes(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def written(pieces: Pieces, *texts: str) -> dict[str, Any]:
    """The field that makes the engine write these texts, a step each, and the token that ends an answer."""
    return scripted(*map(pieces.encode, texts), pieces.named("<|im_end|>"), finish="stop")


def ask(
    server: Server, pieces: Pieces, texts: list[str], stream: bool, finish: str = "stop", prompt: str = "x", **fields: Any
) -> Got:
    """The first choice of an answer of these texts, a step each."""
    script = written(pieces, *texts) if finish == "stop" else scripted(*map(pieces.encode, texts), finish=finish)
    sent = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 400, **script, **fields}
    if stream:
        return folded(server.chat_stream(sent))
    answer = server.chat(sent)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    message = choice["message"]
    assert message.get("tool_calls", [1]), "an empty list of calls"
    calls = message.get("tool_calls", [])
    return Got(message["reasoning"], message["content"], calls, choice["finish_reason"], calls)


def folded(chunks: list[dict[str, Any]], index: int = 0) -> Got:
    texts: dict[str, list[str]] = {"reasoning": [], "content": []}
    calls: dict[int, dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    finishes = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            for key, into in texts.items():
                into += [delta[key]] if delta.get(key) else []
            for piece in delta.get("tool_calls", ()):
                found.append(piece)
                call = calls.setdefault(piece["index"], {"function": {"name": "", "arguments": ""}})
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
                for key, value in piece["function"].items():
                    call["function"][key] += value
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert len(finishes) == 1
    ordered = [calls[key] for key in sorted(calls)]
    return Got("".join(texts["reasoning"]) or None, "".join(texts["content"]) or None, ordered, finishes[0], found)


def called(got: Got) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in got.calls]


def test_c31_parallel_calls_in_a_stream(caller: Server, pieces: Pieces) -> None:
    got = ask(caller, pieces, threes(CALL_F + "\n" + CALL_G), True, tools=TOOLS)
    assert called(got) == [("f", {"a": 1}), ("g", {"b": 2})]
    assert got.finish == "tool_calls"
    assert [piece["index"] for piece in got.pieces] == sorted(piece["index"] for piece in got.pieces)
    for index in (0, 1):
        first, *later = [piece for piece in got.pieces if piece["index"] == index]
        assert first["id"].startswith("chatcmpl-tool-")
        assert (first["type"], first["function"]["name"]) == ("function", "fg"[index])
        assert later
        assert all(set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"} for piece in later)
    assert len({call["id"] for call in got.calls}) == 2


def test_c31_each_chunk_has_one_call_and_the_id_of_the_stream(caller: Server, pieces: Pieces) -> None:
    script = written(pieces, CALL_F + CALL_G)
    chunks = caller.chat_stream(script, tools=TOOLS, max_tokens=400)
    assert len({chunk["id"] for chunk in chunks}) == 1
    lists = [choice["delta"].get("tool_calls", []) for chunk in chunks for choice in chunk["choices"]]
    assert max(len(calls) for calls in lists) == 1
    assert called(folded(chunks)) == [("f", {"a": 1}), ("g", {"b": 2})]


@MODES
def test_c32_a_call_that_a_limit_cuts(caller: Server, pieces: Pieces, stream: bool) -> None:
    texts = ["<tool_call>", '{"name":"f","arguments":{"x":']
    got = ask(caller, pieces, texts, stream, finish="length", tools=TOOLS)
    assert got.finish == "length"
    for call in got.calls:
        assert '{"x":'.startswith(call["function"]["arguments"])
    if not got.calls:
        assert got.content == "".join(texts)


@MODES
@pytest.mark.parametrize(("choice", "finish"), [("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop")])
def test_c33_the_reason_to_stop(caller: Server, pieces: Pieces, stream: bool, choice: Any, finish: str) -> None:
    assert caller.mock is not None
    since = caller.mock.mark()
    got = ask(caller, pieces, threes(CALL_F), stream, tools=TOOLS, tool_choice=choice)
    assert called(got) == [("f", {"a": 1})]
    assert got.finish == finish
    (add,) = caller.mock.adds(since)
    constraint = add["params"].get("structured_outputs")
    if choice == "auto":
        assert constraint is None
    else:
        names = [name for name in ("f", "g") if f'\\"name\\": \\"{name}\\"' in constraint["structural_tag"]]
        assert names == (["f", "g"] if choice == "required" else ["f"])


@MODES
def test_c33_a_forced_call_that_does_not_come(caller: Server, pieces: Pieces, stream: bool) -> None:
    got = ask(caller, pieces, ["Hello"], stream, tools=TOOLS, tool_choice="required")
    assert (got.content, got.calls, got.finish) == ("Hello", [], "stop")


@MODES
def test_c36_an_end_marker_in_pieces(thinker: Server, pieces: Pieces, stream: bool) -> None:
    got = ask(thinker, pieces, ["weigh", "ing it</thi", "nk>Ans", "wer."], stream, prompt="<think>\n")
    assert (got.reasoning, got.content, got.finish) == ("weighing it", "Answer.", "stop")


@MODES
@pytest.mark.parametrize(
    ("text", "content", "calls", "finish"),
    [("Hi", "Hi", [], "stop"), (CALL_F + "\n" + CALL_G, None, [("f", {"a": 1}), ("g", {"b": 2})], "tool_calls")],
)
def test_c37_thinking_is_over_in_the_prompt(
    thinker: Server, pieces: Pieces, stream: bool, text: str, content: str | None, calls: list[Any], finish: str
) -> None:
    got = ask(thinker, pieces, threes(text), stream, prompt="Say.<think>\n\n</think>\n\n", tools=TOOLS)
    assert (got.reasoning, got.content, called(got), got.finish) == (None, content, calls, finish)


@MODES
def test_choices_are_read_apart(caller: Server, pieces: Pieces, stream: bool) -> None:
    first, second = pieces.encode(CALL_F), pieces.encode("Only text.")
    caller_mock = caller.mock
    assert caller_mock is not None
    end = pieces.named("<|im_end|>")
    caller_mock.use(*[rule(ids, end, finish="stop", when={"child": child}) for child, ids in enumerate((first, second))])
    try:
        answer = caller.chat(tools=TOOLS, n=2, max_tokens=200, stream=stream, temperature=0.5)
    finally:
        caller_mock.use()
    assert answer.status_code == 200, answer.text
    if stream:
        chunks = read_stream(answer)
        assert [choice["delta"].get("role") for chunk in chunks[:2] for choice in chunk["choices"]] == ["assistant"] * 2
        one, two = folded(chunks, 0), folded(chunks, 1)
        assert (called(one), one.finish) == ([("f", {"a": 1})], "tool_calls")
        assert (two.content, two.calls, two.finish) == ("Only text.", [], "stop")
        return
    one, two = answer.json()["choices"]
    assert (one["finish_reason"], one["message"]["tool_calls"][0]["function"]["name"]) == ("tool_calls", "f")
    assert (two["finish_reason"], two["message"]["content"]) == ("stop", "Only text.")
    assert "tool_calls" not in two["message"]


def test_usage_counts_reasoning(thinker: Server, pieces: Pieces) -> None:
    thought, said = "One two three.", "</think>Four."
    sent = {"messages": [{"role": "user", "content": "<think>"}], **written(pieces, thought, said), "max_tokens": 90}
    body = thinker.chat(sent).json()
    usage = body["usage"]
    chunks = thinker.chat_stream(sent, stream_options={"include_usage": True, "continuous_usage_stats": True})
    last = chunks[-1]
    assert last["choices"] == []
    assert last["usage"] == {key: value for key, value in usage.items() if value is not None}
    assert usage["completion_tokens"] == len(pieces.encode(thought)) + len(pieces.encode(said)) + 1
    counts = [chunk["usage"]["completion_tokens_details"]["reasoning_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 0


def test_hidden_reasoning(thinker: Server, pieces: Pieces) -> None:
    script = written(pieces, "secret", "</think>Said.")
    for stream in (True, False):
        answer = thinker.chat(
            script, messages=[{"role": "user", "content": "<think>"}], include_reasoning=False, stream=stream, max_tokens=90,
            logprobs=True, return_token_ids=True,
        )  # fmt: skip
        assert "secret" not in answer.text
        assert "Said." in answer.text
        assert 'logprob"' not in answer.text


@MODES
def test_logprobs_and_ids_of_all_tokens(caller: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.encode(CALL_F)
    sent = {"tools": TOOLS, "logprobs": True, "return_token_ids": True, "max_tokens": 200, **scripted(*ids, finish="length")}
    answer = caller.chat(sent, stream=stream)
    assert answer.status_code == 200
    if stream:
        choices = [choice for chunk in caller.chat_stream(sent) for choice in chunk["choices"]]
    else:
        choices = answer.json()["choices"]
    tokens = [entry["token"] for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    assert "".join(tokens) == CALL_F
    assert [token for choice in choices for token in choice.get("token_ids") or ()] == ids


def test_readings_are_counted(caller: Server, pieces: Pieces) -> None:
    kinds = list(product(("streaming", "non_streaming"), ("tool_call", "no_tool_call")))

    def counts() -> list[float]:
        name = "vllm:tool_call_parser_invocations_total"
        return [
            metric(caller, name, request_type="chat_completions", mode=mode, outcome=outcome) for mode, outcome in kinds
        ]

    assert metric(caller, "vllm:tool_call_parser_invocations_created", mode="streaming") > 1e9
    before = counts()
    ask(caller, pieces, [CALL_F], True, tools=TOOLS)
    ask(caller, pieces, ["Hi"], True, tools=TOOLS)
    ask(caller, pieces, ["Hi"], False, tools=TOOLS)
    ask(caller, pieces, ["Hi"], False)
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1, 0, 1]


def test_a_single_call(caller: Server, pieces: Pieces) -> None:
    for stream in (True, False):
        got = ask(caller, pieces, [CALL_F + CALL_G], stream, tools=TOOLS, parallel_tool_calls=False)
        assert called(got) == [("f", {"a": 1})]


def test_an_engine_error_in_a_stream(caller: Server, pieces: Pieces) -> None:
    script = scripted(pieces.encode("Some"), pieces.encode("more"), finish="error")
    answer = caller.chat(script, tools=TOOLS, stream=True, max_tokens=9)
    *_, error, done = [line for line in answer.text.split("\n\n") if line]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 500
    assert done == "data: [DONE]"
    assert caller.chat(script, tools=TOOLS, max_tokens=9).status_code == 500


def test_plain_requests_take_the_usual_way(caller: Server, server: Server) -> None:
    """A server that could read calls answers a request without tools as any server does."""
    fields = {"max_tokens": 3, "logprobs": True, "messages": [{"role": "user", "content": "one two three four"}]}
    plain, reading = server.chat(fields).json(), caller.chat(fields).json()
    assert plain.keys() == reading.keys()
    assert plain["choices"][0].keys() == reading["choices"][0].keys()
    assert plain["choices"][0]["message"].keys() == reading["choices"][0]["message"].keys()
    streams = [one.chat_stream(fields, stream_options={"include_usage": True}) for one in (server, caller)]
    assert [list(chunk) for chunk in streams[0]] == [list(chunk) for chunk in streams[1]]
