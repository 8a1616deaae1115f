"""Answers made in Python from the pump's pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront._speedups.output import ErrorCode
from fastfront._speedups.passage import Field, Passage, Triggers
from tests.native.conftest import Model
from tests.native.pumping import JSON, Client, Rig

STOP, LENGTH, ERROR = 0, 1, 3


class Recorder:
    """A sink that writes down what it gets; fails at a given text."""

    def __init__(self, fails_at: str = "never", passage: Passage | None = None) -> None:
        self.pieces: list[tuple[Any, ...]] = []
        self._passage = passage
        self._fails_at = fails_at

    def add(self, *piece: Any) -> bytes:
        self.pieces.append(piece)
        if self._fails_at in piece[1]:
            raise RuntimeError("this sink is broken")
        text: str = piece[1]
        return text.encode()

    def passage(self, index: int) -> Passage | None:
        return self._passage

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
    assert sink.text == ("Hello " if stream else ""), "the tail that may become a stop string is held back"
    rig.step([request, second])
    assert sink.pieces[-1][4:6] == ("stop", "END")
    given = json.loads(b"[" + b",".join(piece[2] for piece in sink.pieces if piece[2]) + b"]")
    assert given[: len(first)] == first
    assert stream or len(sink.pieces) == 1
    answer = b"".join(client.pieces) if stream else client.body
    assert answer is not None
    assert answer.startswith(b"Hello |3+")
    assert rig.aborted() == [request]
    assert len(rig.ended) == 1


def test_choices_keep_apart(rig: Rig, ids: Any) -> None:
    sink = Recorder()
    _, (a, b) = rig.start(Client(), sink=sink, n=2, stream=True)
    rig.step([a, ids("one")], [b, ids("two"), LENGTH])
    rig.step([a, [9], STOP])
    assert [(p[0], p[1], p[4]) for p in sink.pieces] == [(0, "one", None), (1, "two", "length"), (0, "", "stop")]


@pytest.mark.parametrize("stream", [True, False])
def test_a_broken_sink_ends_its_call_only(rig: Rig, ids: Any, stream: bool) -> None:
    bad, good = Client(), Client()
    _, (one, two) = rig.start(bad, sink=Recorder("boom"), stream=stream, n=2)
    _, (other,) = rig.start(good, stream=True)
    rig.step([one, ids("fine")])
    rig.step([one, ids("boom"), *([] if stream else [LENGTH])], [two, ids("x")], [other, ids("ok"), LENGTH])
    assert good.text() == "ok"
    assert [str(e) for e in rig.pump.errors] == ["this sink is broken"]
    assert sorted(rig.aborted()) == sorted([one, two] if stream else [two])
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


LAYOUT: list[bytes | int] = [
    b"(", Field.FIELD_TEXT, b"|", Field.FIELD_IDS, b"|", Field.FIELD_LOGPROBS, b"|", Field.FIELD_USAGE, b"|",
    Field.FIELD_NUMBER, b")",
]  # fmt: skip


def test_what_passes_and_what_does_not(rig: Rig, ids: Any) -> None:
    passage = Passage(LAYOUT, (Triggers("<end>"),), keeps_text=True, keeps_ids=True)
    passage.number = 7
    client, sink = Client(), Recorder(passage=passage)
    _, (request,) = rig.start(client, sink=sink, stream=True, return_token_ids=True)
    tokens = [ids(piece) for piece in ("one", ' "two"\n', " <", "end", " x")]
    for piece in tokens:
        rig.step([request, piece])
    assert [piece[1] for piece in sink.pieces] == ["one", " <"]
    usage = '{"prompt_tokens":3,"total_tokens":%d,"completion_tokens":%d}'
    written, count = [], len(tokens[0])
    for text, piece, number in ((' \\"two\\"\\n', tokens[1], 7), ("end", tokens[3], 8), (" x", tokens[4], 9)):
        count += len(piece) + (len(tokens[2]) if number == 8 else 0)
        written.append(f"({text}|{','.join(map(str, piece))}|null|{usage % (3 + count, count)}|{number})")
    assert b"".join(client.pieces).decode() == f"one{written[0]} <{written[1]}{written[2]}"
    passed = [*tokens[1], *tokens[3], *tokens[4]]
    assert passage.take() == (' "two"\nend x', ",".join(map(str, passed)).encode())
    assert passage.take() == ("", b"")
    rig.step([request, ids("last"), LENGTH])
    assert sink.pieces[-1][1] == "last", "the last piece is the sink's"


def test_a_second_piece_of_a_message_waits_for_the_sink(rig: Rig, ids: Any) -> None:
    client, sink = Client(), Recorder(passage=Passage([b"(", Field.FIELD_TEXT, b")"], (Triggers("<"),)))
    _, (request,) = rig.start(client, sink=sink, stream=True)
    rig.step([request, ids("a")], [request, ids("b")])
    rig.step([request, ids("c")], [request, ids("<")], [request, ids("d")])
    rig.step([request, ids("e")])
    assert b"".join(client.pieces) == b"ab(c)<d(e)"


def test_text_that_is_dropped(rig: Rig, ids: Any) -> None:
    client, sink = Client(), Recorder(passage=Passage(None, (), keeps_text=True))
    _, (request,) = rig.start(client, sink=sink, stream=True)
    for piece in ("a", "b", "c"):
        rig.step([request, ids(piece)])
    assert b"".join(client.pieces) == b"a"
    rig.step([request, ids("d"), LENGTH])
    assert b"".join(client.pieces).startswith(b"ad|")


def test_a_client_that_leaves_while_text_passes(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, sink=Recorder(passage=Passage([Field.FIELD_TEXT], ())), stream=True)
    rig.step([request, ids("a")])
    client.gone = True
    rig.step([request, ids("b")])
    assert rig.aborted() == [request]
    assert len(rig.ended) == 1


def test_what_is_no_passage(rig: Rig, ids: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        Triggers("")
    with pytest.raises(ValueError, match="at most"):
        Passage(None, (Triggers("<"),) * 7)
    with pytest.raises(TypeError, match="None"):
        Passage(None, (None,))  # type: ignore[arg-type]
    wrong: Any = "no passage"
    _, (request,) = rig.start(Client(), sink=Recorder(passage=wrong), stream=True)
    rig.step([request, ids("a")])
    assert [type(error) for error in rig.pump.errors] == [TypeError]
