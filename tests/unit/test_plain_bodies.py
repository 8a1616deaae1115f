"""JSON bodies of plain shapes, read natively: what pydantic makes of them, or nothing."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fastfront._speedups.plain_body import SHAPES, PlainBodies
from fastfront.openai.fields import ChatBody, CompletionBody
from fastfront.openai.plain_shapes import plain_bodies
from tests.unit.request_fields import fields_of

KINDS: dict[str, tuple[PlainBodies, TypeAdapter[Any]]] = {
    "chat": (plain_bodies(ChatBody), TypeAdapter(ChatBody)),
    "completion": (plain_bodies(CompletionBody), TypeAdapter(CompletionBody)),
}


def typed(value: Any) -> Any:
    """A value together with the types in it: 1, 1.0 and True are equal, -0.0 and 0.0 as well."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value).__name__, repr(value)


def check(kind: str, body: bytes) -> bool:
    """Whether the body is plain; its fields are what pydantic makes of it then, in the same order."""
    plain, adapter = KINDS[kind]
    fields = plain.read(body)
    if fields is None:
        return False
    expected = adapter.validate_json(body)  # raises for a body that should not have been read
    assert typed(fields) == typed(expected), body
    return True


texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", '"', "\\", "\\\\", '\\"', "\n\t\r\b\f", "\x7f", "é", "𝄞", "a" * 40, 'a"' * 9, "\u2028/"]),
)
part = st.dictionaries(st.sampled_from(["type", "text", "role", "name"]), texts, max_size=3)
message = st.dictionaries(
    st.sampled_from(["role", "content", "type", "name"]),
    st.one_of(texts, texts, st.lists(part, max_size=3), st.none(), st.integers(), part),
    max_size=3,
)
chats = fields_of(ChatBody, {"messages": st.lists(message, max_size=4)})
ids = st.lists(st.one_of(st.integers(-1, 10**6), st.sampled_from([10**17, 10**18, 2**63, 2**64])), max_size=5)
completions = fields_of(CompletionBody, {"prompt": st.one_of(texts, ids, st.lists(texts, max_size=3), st.lists(ids, max_size=2))})
STYLES: list[dict[str, Any]] = [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": 1}]


@pytest.mark.parametrize("kind", ["chat", "completion"])
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_bodies_are_read_as_pydantic_reads_them(kind: str, data: st.DataObject) -> None:
    fields = data.draw(chats if kind == "chat" else completions)
    style = data.draw(st.sampled_from(STYLES))
    check(kind, json.dumps(fields, **style).encode("utf-8", "surrogatepass"))


NOISE = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"0",
    b"-",
    b".",
    b"1e3",
    b"null",
    b"true",
    b"\\u",
    b"d83d",
    b"\\ud83d",
    b"\\udd1e",
    b"\x00",
    b"\x1f",
    b"\x80",
    b"\xed\xa0\x80",
    b"\xff",
    b"\n",
    b'"n":1,',
    b'"stop":"x",',
    b'"role":"user",',
]


@pytest.mark.parametrize("kind", ["chat", "completion"])
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bodies_are_left_alone_or_read_alike(kind: str, data: st.DataObject) -> None:
    fields = data.draw(chats if kind == "chat" else completions)
    body = json.dumps(fields, **data.draw(st.sampled_from(STYLES))).encode("utf-8", "surrogatepass")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.sampled_from([0, 0, 1, 2, 7]))
        body = body[:at] + data.draw(st.sampled_from(NOISE)) + body[at + cut :]
    check(kind, body)


def test_every_beginning_of_a_body_is_no_body() -> None:
    body = json.dumps(
        {"messages": [{"role": "user", "content": 'a\\"\né'}], "temperature": -0.75, "stop": ["x"], "stream": True}
    ).encode()
    assert check("chat", body)
    assert [n for n in range(len(body)) if check("chat", body[:n])] == []


NUMBERS = [
    "0",
    "-0",
    "00",
    "01",
    "-1",
    "1",
    "12",
    "1.0",
    "-0.0",
    "0.1",
    "1.",
    ".5",
    "-",
    "-.5",
    "1e2",
    "1E2",
    "1.5e3",
    "+1",
    "0x1",
    "1_0",
    "NaN",
    "Infinity",
    "-Infinity",
    "0.30000000000000004",
    "5e-324",
    "2.2250738585072014e-308",
    "123456789.123456789",
    "9007199254740993",
    "9007199254740991",
    "999999999999999999",
    "1000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "0.1234567890123456789012345678901234567",
    "0." + "1" * 60,
    "1" * 30,
    '"5"',
    "true",
    "null",
    "[]",
    "{}",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "name", ["temperature", "seed", "max_tokens", "n", "stream", "user", "stream_options", "stop", "length_penalty"]
)
def test_numbers(name: str, number: str) -> None:
    body = b'{"messages":[],"%s":%s}' % (name.encode(), number.encode())
    check("chat", body)
    check("chat", body.replace(b"}", b" } "))


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"Hi"}],"model":"m","max_tokens":1,"stream":true,"stream_options":{"include_usage":true}}',
        b' {\n "messages" : [ { "content" : [ {"type" : "text", "text": "\\u00e9\\ud834\\udd1e\\n" } ] , "role" : "user" } ] }\t',
        b'{"messages":[],"temperature":1,"top_p":0.95,"top_k":-1,"seed":null,"stop":["a","\\""],"stop_token_ids":[1, 2],"n":2}',
    ],
)
def test_usual_bodies_are_plain(body: bytes) -> None:
    assert check("chat", body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"model":"m"}',
        b'{"messages":[]}x',
        b'\xef\xbb\xbf{"messages":[]}',
        b'{"messages":[],"unknown":1}',
        b'{"messages":[],"n":1,"n":1}',
        b'{"messages":[{"role":"user","role":"user"}]}',
        b'{"messages":[{"role":1}]}',
        b'{"messages":[{"content":[{"text":[]}]}]}',
        b'{"messages":[],"user":"\\ud800"}',
        b'{"messages":[],"user":"\xff"}',
        b'{"messages":[],"user":"a\nb"}',
        b'{"messages":[],"temperature":"0.5"}',
        b'{"messages":[],"logit_bias":{}}',
        b'{"messages":[],"stream_options":{"other":true}}',
        b'{"messages":[],}',
        b'{,"messages":[]}',
        b'{"messages":[],"":1}',
        b'{"\\u006dessages":[]}',
    ],
)
def test_others_are_not(body: bytes) -> None:
    assert not check("chat", body)


def test_fields_that_have_to_be_there_and_shapes() -> None:
    bodies = PlainBodies({"a": SHAPES["int"], "b": SHAPES["text"] | SHAPES["null"]}, ("a",))
    assert bodies.read(b'{"b":null,"a":5}') == {"b": None, "a": 5}
    assert bodies.read(b'{"b":"x"}') is None
    assert bodies.read(b'{"a":1.0}') is None
    with pytest.raises(RuntimeError):
        bodies.__init__({}, ())  # type: ignore[misc]


@pytest.mark.parametrize("name", ["truncate_prompt_tokens", "thinking_token_budget", "stream_interval", "tools", "mm_payload"])
def test_fields_with_bounds_or_inner_shapes_are_left_to_pydantic(name: str) -> None:
    plain, adapter = KINDS["chat"]
    body = b'{"messages":[],"%s":-7}' % name.encode()
    assert plain.read(body) is None
    with pytest.raises(ValidationError):
        adapter.validate_json(body)


def test_threads_read_with_one_reader() -> None:
    plain, _ = KINDS["chat"]
    body = b'{"messages":[{"role":"user","content":"Hi\\n"}],"model":"m","stop":["a"],"temperature":0.5}'
    expected = plain.read(body)
    start = threading.Barrier(4)
    wrong: list[object] = []

    def work() -> None:
        start.wait()
        wrong.extend(found for found in (plain.read(body) for _ in range(2000)) if found != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
