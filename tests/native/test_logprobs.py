"""Logprobs from the wire's arrays to JSON entries."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.msgpack import Ext, packb
from tests.native.conftest import Model, load
from tests.native.pumping import Client, Rig

LENGTH = 1
Row = list[tuple[int, float]]


def arrays(
    rows: list[Row], *, ids: str = "<i4", values: str = "<f4", ranks: str = "<i8", aux: list[bytes] | None = None
) -> list[Any]:
    """The wire's form of rows; with `aux` the bytes go there, as frames of their own."""
    codes = {"<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d", "int32": "i", "int64": "q", "float32": "f"}
    width = len(rows[0]) if rows else 1

    def array(name: str, shape: list[int], numbers: list[Any]) -> list[Any]:
        data = struct.pack(f"<{len(numbers)}{codes[name]}", *numbers)
        if aux is None:
            return [name, shape, Ext(3, data)]
        aux.append(data)
        return [name, shape, len(aux)]

    return [
        array(ids, [len(rows), width], [i for row in rows for i, _ in row]),
        array(values, [len(rows), width], [v for row in rows for _, v in row]),
        array(ranks, [len(rows)], [1] * len(rows)),
        None,
    ]


def output(request: str, tokens: list[int], logprobs: Any, finish: int | None = None, prompt: Any = None) -> list[Any]:
    return [request, tokens, logprobs, prompt, None, finish]


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


def one(model: Model, text: str) -> int:
    (token,) = model.tokenizer.encode(text, add_special_tokens=False).ids
    return int(token)


def byte(model: Model, *values: int) -> list[int]:
    """The ids of single-byte tokens."""
    return [next(i for i in range(300) if model.vocabulary.token_bytes(i) == bytes([v])) for v in values]


@pytest.mark.parametrize("in_frames", [False, True])
@pytest.mark.parametrize("kinds", [("<i4", "<f4", "<i8"), ("<i8", "<f8", "<i4"), ("int64", "float32", "int32")])
def test_chat_entries(rig: Rig, qwen3: Model, in_frames: bool, kinds: tuple[str, str, str]) -> None:
    a, b = one(qwen3, " quick"), one(qwen3, " slow")
    client, aux = Client(), [] if in_frames else None
    _, (request,) = rig.start(client, logprobs=2)
    lists = arrays([[(a, -0.25), (a, -0.25), (b, -1.5)]], ids=kinds[0], values=kinds[1], ranks=kinds[2], aux=aux)
    rig.pump.feed(packb([0, [output(request, [a], lists, LENGTH)]]), aux)
    (entry,) = json.loads(client.body or b"")["choices"][0]["logprobs"]["content"]
    assert entry == {
        "token": " quick",
        "logprob": -0.25,
        "bytes": list(b" quick"),
        "top_logprobs": [
            {"token": " quick", "logprob": -0.25, "bytes": list(b" quick")},
            {"token": " slow", "logprob": -1.5, "bytes": list(b" slow")},
        ],
    }


def test_completion_lists_and_offsets(rig: Rig, qwen3: Model) -> None:
    a, b = one(qwen3, "The"), one(qwen3, " quick")
    client = Client()
    _, (request,) = rig.start(client, logprobs=1, kind="completion", stream=True)
    for k, token in enumerate((a, b)):
        rig.pump.feed(packb([0, [output(request, [token], arrays([[(token, -0.5), (b, -1.0)]]), LENGTH if k else None)]]))
    shown = [e["choices"][0]["logprobs"] for e in client.events if isinstance(e, dict)]
    assert shown == [
        {"text_offset": [0], "token_logprobs": [-0.5], "tokens": ["The"], "top_logprobs": [{"The": -0.5, " quick": -1.0}]},
        {"text_offset": [3], "token_logprobs": [-0.5], "tokens": [" quick"], "top_logprobs": [{" quick": -0.5}]},
    ]


def test_c19_split_character(rig: Rig, qwen3: Model) -> None:
    """True bytes for every token; the character shows on the token that completes it."""
    parts = byte(qwen3, 0xE6, 0x98, 0xAF)
    client = Client()
    _, (request,) = rig.start(client, logprobs=0)
    rig.pump.feed(packb([0, [output(request, parts, arrays([[(p, -0.1)] for p in parts]), LENGTH)]]))
    entries = json.loads(client.body or b"")["choices"][0]["logprobs"]["content"]
    assert [e["bytes"] for e in entries] == [[0xE6], [0x98], [0xAF]]
    assert [e["token"] for e in entries] == ["", "", "是"]
    assert client.text() == "是"


def test_the_token_itself_leads_its_alternatives(rig: Rig, qwen3: Model) -> None:
    """As many as were asked for, none of them twice."""
    a = one(qwen3, "a")
    for others, shown in (([a + 1, a, a + 2], [a, a + 1, a + 2]), ([a + 1, a + 2, a + 3], [a, a + 1, a + 2])):
        client = Client()
        _, (request,) = rig.start(client, logprobs=3, tokens_as_ids=True)
        row = [(a, -0.5), *((other, -1.0) for other in others)]
        rig.pump.feed(packb([0, [output(request, [a], arrays([row]), LENGTH)]]))
        (entry,) = json.loads(client.body or b"")["choices"][0]["logprobs"]["content"]
        assert [t["token"] for t in entry["top_logprobs"]] == [f"token_id:{token}" for token in shown]


def test_c20_what_json_cannot_hold(rig: Rig, qwen3: Model) -> None:
    a = one(qwen3, "a")
    client = Client()
    _, (request,) = rig.start(client, logprobs=3)
    row = [(a, 12.5), (a + 1, -math.inf), (a + 2, math.nan), (a + 3, -1e30)]
    rig.pump.feed(packb([0, [output(request, [a], arrays([row]), LENGTH)]]))
    text = (client.body or b"").decode()
    body = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    (entry,) = body["choices"][0]["logprobs"]["content"]
    assert entry["logprob"] == pytest.approx(12.5)
    assert [t["logprob"] for t in entry["top_logprobs"]] == pytest.approx([12.5, -9999.0, -9999.0])


def test_entries_stop_where_the_text_stops(rig: Rig, qwen3: Model) -> None:
    tokens = [one(qwen3, text) for text in ("a", "b", "c")]
    client = Client()
    _, (request,) = rig.start(client, logprobs=0, stop=["b"])
    rig.pump.feed(packb([0, [output(request, tokens, arrays([[(t, -0.5)] for t in tokens]))]]))
    assert [e["token"] for e in json.loads(client.body or b"")["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_prompt_logprobs_come_once(rig: Rig, qwen3: Model) -> None:
    a, b = one(qwen3, "The"), one(qwen3, " quick")
    client = Client()
    _, (request,) = rig.start(client, prompts=[[a, b]], kind="completion", prompt_logprobs=1, logprobs=0, echo_logprobs=True)
    prompt = [*arrays([[(b, -0.5), (a, -0.25)]], ids="int32", values="float32", ranks="int32")[:3], None, None]
    rig.pump.feed(packb([0, [output(request, [a], arrays([[(a, -1.0)]]), LENGTH, prompt)]]))
    (choice,) = json.loads(client.body or b"")["choices"]
    assert choice["prompt_logprobs"] == [
        None,
        {
            str(b): {"logprob": -0.5, "rank": 1, "decoded_token": " quick"},
            str(a): {"logprob": -0.25, "rank": 1, "decoded_token": "The"},
        },
    ]
    assert choice["logprobs"]["tokens"] == ["The", " quick", "The"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -1.0]
    assert choice["logprobs"]["text_offset"] == [0, 3, 9]


@given(st.data())
def test_malformed_arrays_fail_their_request_only(data: st.DataObject) -> None:
    """Wrong types, shapes, sizes and frame numbers never read past a frame."""
    rig = Rig(load("qwen3").vocabulary)
    client, other = Client(), Client()
    _, (request,) = rig.start(client, logprobs=1)
    _, (neighbour,) = rig.start(other)
    aux: list[bytes] = []
    lists = arrays([[(5, -0.5), (6, -1.0)]], aux=aux if data.draw(st.booleans()) else None)
    spoil = data.draw(st.sampled_from(["dtype", "shape", "data", "drop"]))
    at = data.draw(st.integers(0, 2))
    if spoil == "drop":
        del lists[at:]
    else:
        lists[at][["dtype", "shape", "data"].index(spoil)] = data.draw(
            st.one_of(
                st.sampled_from(["<i4", "<f4", "<u2", ""]),
                st.lists(st.integers(-1, 2**40), max_size=3),
                st.integers(-1, 5),
                st.none(),
                st.binary(max_size=9).map(lambda b: Ext(3, b)),
            )
        )
    rig.pump.feed(packb([0, [output(request, [5], lists, LENGTH), output(neighbour, [5], None, LENGTH)]]), aux or None)
    assert client.status in (200, 500)
    assert other.status == 200
