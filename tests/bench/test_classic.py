"""The classic layout as control: what one process does per token, and the whole over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from bench.classic.choice import Choice, Delta, read_logprobs
from bench.peers.base import Running, Setting
from bench.peers.classic import CLASSIC_2
from engine.protocol import EngineCoreOutput, FinishReason, array
from tests.bench.test_peers import HELLO, PATHS, ask, events
from tests.support.waiting import wait_for

MODEL = PATHS.models / "smollm2"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


def fed(tokenizer: Tokenizer, text: str, stops: list[str]) -> tuple[list[Delta], list[bool]]:
    """The deltas of a text whose tokens come one by one, the last of them with a finish."""
    choice = Choice("r", 0, tokenizer, stops, asyncio.Event())
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    deltas, stopped = [], []
    for position, token in enumerate(ids, 1):
        finish = FinishReason.LENGTH if position == len(ids) else None
        stopped.append(choice.push(EngineCoreOutput("r", [token], finish_reason=finish)))
        delta = choice.take()
        assert delta is not None
        deltas.append(delta)
        if delta.finish is not None:
            break
    assert choice.take() is None
    return deltas, stopped


@pytest.mark.parametrize("text", ["The capital of France is Paris.", "Größe 日本語 👋🏽 done"])
@pytest.mark.parametrize("stops", [[], ["###", "<|never|>"]])
def test_text_comes_whole(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
    deltas, stopped = fed(tokenizer, text, stops)
    assert "".join(delta.text for delta in deltas) == text
    assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish == "length"
    assert not any(stopped)


def test_stop_string_ends_a_choice_across_tokens(tokenizer: Tokenizer) -> None:
    deltas, stopped = fed(tokenizer, "one two three four", ["two th", "our"])
    assert "".join(delta.text for delta in deltas) == "one "
    assert deltas[-1].finish == "stop"
    assert stopped[-1]


def test_logprob_arrays() -> None:
    ids = array("<i4", [2, 2], struct.pack("<4i", 7, 8, 9, 10))
    values = array("<f4", [2, 2], struct.pack("<4f", -0.25, -0.5, -1.0, -2.0))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode([ids, values]))
    assert read_logprobs(decoded) == [(7, -0.25, [(8, -0.5)]), (9, -1.0, [(10, -2.0)])]


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    setting = Setting(PATHS, MODEL, tmp_path_factory.mktemp("classic"), step_ms=1.0, ready_timeout_s=120.0)
    with CLASSIC_2.start(setting) as running:
        yield running


def test_stream_has_role_text_finish_and_usage(classic: Running) -> None:
    chunks = events(ask(classic.port, stream=True, max_tokens=5, n=2, ignore_eos=True, stream_options={"include_usage": True})[1])
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 10


def test_logprobs_of_the_mock(classic: Running) -> None:
    body = json.loads(ask(classic.port, max_tokens=4, logprobs=True, top_logprobs=2, ignore_eos=True)[1])
    content = body["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == [-0.25] * 4
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * 4


@pytest.mark.parametrize("fields", [{"max_tokens": "many"}, {"messages": 5}])
def test_bad_requests_are_refused_and_the_connection_lives(classic: Running, fields: dict[str, Any]) -> None:
    status, body = ask(classic.port, **fields)
    assert status == 400
    assert json.loads(body)["error"]["code"] == 400
    assert ask(classic.port, max_tokens=1)[0] == 200


def test_connections_are_spread_over_both_processes(classic: Running) -> None:
    """Each process is a client of its own at the engine; the fewest connections take the next one."""

    def shares() -> list[int]:
        held = []
        for _ in range(8):
            connection = http.client.HTTPConnection("127.0.0.1", classic.port, timeout=60)
            connection.request("GET", "/health")
            connection.getresponse().read()
            held.append(connection)
        owners = []
        for connection in held:
            assert connection.sock is not None
            mine = connection.sock.getsockname()[1]
            owners.append(owner_of(mine, classic.port))
            connection.close()
        return sorted(owners.count(pid) for pid in set(owners))

    # Connections that others have closed count until their process has noticed.
    wait_for(lambda: shares() == [4, 4], "connections that are spread evenly")


def owner_of(client_port: int, server_port: int) -> int:
    """The process that holds the server's end of a connection."""
    ends = (f"0100007F:{server_port:04X}", f"0100007F:{client_port:04X}")
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inode = next(row[9] for row in rows if (row[1], row[2]) == ends)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if f"socket:[{inode}]" in files:
            return int(pid)
    raise AssertionError("nobody has that connection")


def test_client_that_leaves_takes_its_request_along(classic: Running) -> None:
    assert classic.engine is not None
    before = classic.engine.counts()["aborts"]
    connection = http.client.HTTPConnection("127.0.0.1", classic.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": HELLO, "stream": True, "ignore_eos": True}))
    connection.getresponse().read(10)
    connection.close()
    engine = classic.engine
    wait_for(lambda: not engine.counts()["running"], "an engine with nothing to do")
    assert classic.engine.counts()["aborts"] == before + 1
