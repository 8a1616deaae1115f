"""Answers made in Python from the pump's pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront._speedups.output import ErrorCode
from tests.native.conftest import Model
from tests.native.pumping import JSON, Client, Rig

STOP, LENGTH, ERROR = 0, 1, 3


class Recorder:
    """A sink that writes down what it gets; fails at a given text."""

    def __init__(self, fails_at: str = "never") -> None:
        self.pieces: list[tuple[Any, ...]] = []
        self._fails_at = fails_at

    def add(self, *piece: Any) -> bytes:
        self.pieces.append(piece)
        if self._fails_at in piece[1]:
            raise RuntimeError("this sink is broken")
        return piece[1].encode()

    def end(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        return f"|{prompt_tokens}+{completion_tokens}".encode()

    def failure_event(self, code: int, message: str) -> bytes:
        return f"!{code} {message}".encode()

    def failure_answer(self, code: int, message: str) -> tuple[int, list[tuple[str, str]], bytes]:
        return 599, JSON, f"!{code} {message}".encode()

    @property
    def text(self) -> str:
        return "".join(piece[1] for piece in self.pieces)


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


@pytest.fixture
def ids(qwen3: Model) -> Any:
    return lambda text: qwen3.tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("stream", [True, False])
def test_pieces_and_the_end(rig: Rig, ids: Any, stream: bool) -> None:
    client, sink = Client(), Recorder()
    _, (request,) = rig.start(client, sink=sink, stream=stream, return_token_ids=True, stop=["END"])
    first, second = ids("Hello E"), ids("ND more")
    rig.step([request, first])
    assert sink.text == "Hello ", "the tail that may become a stop string is held back"
    rig.step([request, second])
    assert sink.pieces[-1][4:6] == ("stop", "END")
    assert json.loads(b"[" + sink.pieces[0][2] + b"]") == first
    answer = b"".join(client.pieces) if stream else client.body
    assert answer is not None
    assert answer.startswith(b"Hello |3+") if stream else answer.startswith(b"|3+")
    assert rig.aborted() == [request]
    assert len(rig.ended) == 1


def test_choices_keep_apart(rig: Rig, ids: Any) -> None:
    sink = Recorder()
    _, (a, b) = rig.start(Client(), sink=sink, n=2)
    rig.step([a, ids("one")], [b, ids("two"), LENGTH])
    rig.step([a, [9], STOP])
    assert [(p[0], p[1], p[4]) for p in sink.pieces] == [(0, "one", None), (1, "two", "length"), (0, "", "stop")]


@pytest.mark.parametrize("stream", [True, False])
def test_a_broken_sink_ends_its_call_only(rig: Rig, ids: Any, stream: bool) -> None:
    bad, good = Client(), Client()
    _, (one, two) = rig.start(bad, sink=Recorder("boom"), stream=stream, n=2)
    _, (other,) = rig.start(good, stream=True)
    rig.step([one, ids("fine")])
    rig.step([one, ids("boom")], [two, ids("x")], [other, ids("ok"), LENGTH])
    assert good.text() == "ok"
    assert [str(e) for e in rig.pump.errors] == ["this sink is broken"]
    assert sorted(rig.aborted()) == sorted([one, two])
    assert rig.pump.live == 0
    failure = f"!{ErrorCode.ERROR_INTERNAL.value} ".encode()
    assert bad.pieces[-1] == failure if stream else (bad.status, bad.body) == (599, failure)
    assert len(rig.ended) == 2


def test_an_engine_error_uses_the_sinks_words(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, sink=Recorder())
    rig.step([request, [], ERROR])
    assert (client.status, client.body) == (599, b"!0 ")


def test_a_client_that_has_gone(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, sink=Recorder(), stream=True)
    rig.step([request, ids("a")])
    client.gone = True
    rig.step([request, ids("b")])
    assert rig.aborted() == [request]
    assert len(rig.ended) == 1
