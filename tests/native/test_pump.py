"""The pump: from engine messages to what the client receives."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from fastfront._speedups.call import Call
from fastfront._speedups.msgpack import packb, unpackb
from fastfront._speedups.output import ErrorCode
from fastfront._speedups.pump import EngineMessageError
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.streams.prepared import PreparedCall, PreparedPrompt
from tests.native.conftest import Model, load
from tests.native.pumping import Client, Rig, python_functions
from tests.native.tiny import NATIVE, SLOW

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
STOP, LENGTH, ABORT, ERROR = 0, 1, 2, 3


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary)


@pytest.fixture
def ids(qwen3: Model) -> Any:
    return lambda text: qwen3.tokenizer.encode(text, add_special_tokens=False).ids


def test_a_stream_from_first_to_last(rig: Rig, ids: Any) -> None:
    client = Client()
    tokens = ids("Hello world!")
    call, (request,) = rig.start(client, stream=True, include_usage=True)
    assert client.status is None
    for k, token in enumerate(tokens):
        rig.step([request, [token], LENGTH if k == len(tokens) - 1 else None])
    assert client.status == 200
    assert len(client.pieces) == len(tokens), "one write per token: role with the first, usage and [DONE] with the last"
    events = client.events
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert client.text() == "Hello world!"
    assert client.finish() == ("length", None)
    assert events[-2]["usage"] == {"prompt_tokens": 3, "total_tokens": 3 + len(tokens), "completion_tokens": len(tokens)}
    assert events[-2]["choices"] == []
    assert events[-1] == "[DONE]"
    assert rig.ended == [call]
    assert rig.pump.live == 0
    assert rig.pump.finished_engines == [0]
    assert rig.aborted() == []


def test_an_answer_in_one_piece(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client)
    rig.step([request, ids("Hi ")])
    assert client.body is None
    rig.step([request, [*ids("there"), 151645], STOP])
    assert client.status == 200
    assert client.text() == "Hi there"
    assert client.finish() == ("stop", None)


@pytest.mark.parametrize("stream", [True, False])
def test_choices_of_one_call_keep_apart(rig: Rig, ids: Any, stream: bool) -> None:
    client = Client()
    _, requests = rig.start(client, stream=stream, n=2, kind="completion", prompts=[[5], [6, 7]], include_usage=True)
    assert len(set(requests)) == 4
    for k, request in enumerate(requests):
        rig.step([request, ids(f"choice {k}"), LENGTH])
    assert [client.text(k) for k in range(4)] == [f"choice {k}" for k in range(4)]
    usage = json.loads(client.body)["usage"] if client.body else client.events[-2]["usage"]
    assert usage["prompt_tokens"] == 3
    assert usage["completion_tokens"] == sum(len(ids(f"choice {k}")) for k in range(4))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_stop_string_ends_the_stream_and_the_request(rig: Rig, ids: Any, stream: bool, include: bool) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=stream, stop=["own fox"], include_stop_str_in_output=include)
    tokens = ids("The quick brown fox runs far")
    rig.step([request, tokens])
    assert client.text() == "The quick brown fox" if include else "The quick br"
    assert client.finish() == ("stop", "own fox")
    assert rig.aborted() == [request]
    assert rig.pump.overrun == 2
    rig.step([request, ids(" more")])
    assert client.text().endswith("fox" if include else "br"), "what comes after the end changes nothing"


def test_a_finishing_output_that_completes_a_stop_string_needs_no_abort(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, stop=["END"])
    rig.step([request, ids("ab END"), LENGTH])
    assert client.finish() == ("stop", "END")
    assert rig.aborted() == []


def test_held_back_text_leaves_with_the_finish(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True, stop=["own cat"])
    rig.step([request, ids("The brown")])
    assert client.text() == "The br"
    rig.step([request, ids(" fox"), LENGTH])
    assert client.text() == "The brown fox"


def test_min_tokens_passes_over_early_stop_strings(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, stop=["a"], min_tokens=3)
    rig.step([request, [*ids("a"), *ids("a"), *ids("a"), *ids("a"), *ids("a")]])
    assert client.text() == "aaa"
    assert json.loads(client.body or b"")["usage"]["completion_tokens"] == 4


def test_return_token_ids(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True, return_token_ids=True)
    rig.step([request, [9707, 11]])
    rig.step([request, [1879], LENGTH])
    events = [e for e in client.events if isinstance(e, dict)]
    assert events[0]["prompt_token_ids"] == [1, 2, 3]
    assert [e["choices"][0]["token_ids"] for e in events[1:]] == [[9707, 11], [1879]]


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_an_interval_joins_tokens_but_the_first_and_the_last(rig: Rig, ids: Any, kind: str) -> None:
    client = Client()
    tokens = ids("one two three four five six seven eight")
    _, (request,) = rig.start(client, stream=True, stream_interval=3, return_token_ids=True, kind=kind)
    for k, token in enumerate(tokens):
        rig.step([request, [token], LENGTH if k == len(tokens) - 1 else None])
    events = [event["choices"][0] for event in client.events[:-1]]
    told = [choice["token_ids"] for choice in events if choice.get("token_ids")]
    assert told == [tokens[:1], tokens[1:4], tokens[4:7], tokens[7:]]
    assert len(client.pieces) == len(told)
    assert (client.text(), client.finish()) == ("one two three four five six seven eight", ("length", None))


def test_an_interval_counts_the_tokens_of_each_choice(rig: Rig, ids: Any) -> None:
    client = Client()
    one, two, three = ids("a"), ids("b"), ids("c")
    _, (first, second) = rig.start(client, stream=True, stream_interval=2, n=2, kind="completion")
    rig.step([first, one], [second, two])
    rig.step([first, three])
    assert len(client.pieces) == 1
    rig.step([first, three], [second, one, STOP])
    assert (client.text(0), client.text(1)) == ("acc", "b")


def test_an_interval_sends_nothing_of_a_stop_string(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client, stream=True, stream_interval=4, stop=["two three"], kind="completion")
    for token in ids("one two three four"):
        rig.step([request, [token]])
    assert (client.text(), client.finish()) == ("one ", ("stop", "two three"))
    assert rig.aborted() == [request]


def test_odd_token_ids_give_no_text(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (request,) = rig.start(client)
    rig.step([request, [*ids("a"), -1, 2**40, 2**63, *ids("b")], LENGTH])
    assert client.text() == "ab"


@pytest.mark.parametrize(
    "build", [NATIVE["byte-level"][1], NATIVE["sentencepiece"][1], NATIVE["wordpiece"][1], SLOW["bpe-suffix"]]
)
def test_tokens_may_be_anything_where_they_are_asked_for_ahead(build: Callable[[], Tokenizer]) -> None:
    rig = Rig(Vocabulary.from_tokenizer(build()))
    size = rig.vocabulary.size
    firsts = [[0], [size - 1], [size], [-1], [2**40], [2**63], [], [1, size], [2]]
    alone, together = [Client() for _ in firsts], [Client() for _ in firsts]
    for client, tokens in zip(alone, firsts, strict=True):                  # a message each: nothing comes ahead
        rig.step([rig.start(client)[1][0], tokens, LENGTH])
    requests = [rig.start(client)[1][0] for client in together]
    rig.step(*([request, tokens, LENGTH] for request, tokens in zip(requests, firsts, strict=True)), ["nobody's", [size]])
    assert [client.text() for client in together] == [client.text() for client in alone]
    assert [bool(client.text()) for client in together[:6]] == [True, True, False, False, False, False]


@pytest.mark.parametrize("stream", [True, False])
def test_error_before_anything_was_sent_is_a_status(rig: Rig, stream: bool) -> None:
    client = Client()
    rig.start(client, stream=stream)
    _, (request,) = rig.start(other := Client(), stream=stream)
    rig.step([request, [], ERROR])
    assert other.status == 500 + ErrorCode.ERROR_INTERNAL
    assert client.status is None


def test_error_in_a_stream_is_its_last_event(rig: Rig, ids: Any) -> None:
    client = Client()
    _, (one, two) = rig.start(client, stream=True, n=2)
    rig.step([one, ids("ab")], [two, ids("cd")])
    rig.step([one, [], ERROR])
    assert client.events[-2:] == [{"error": ErrorCode.ERROR_INTERNAL}, "[DONE]"]
    assert rig.aborted() == [two]
    assert rig.pump.live == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "validation_error", "message": "no", "retryable": False}, ErrorCode.ERROR_VALIDATION),
        ({"code": "engine_paused", "message": "no", "retryable": True}, ErrorCode.ERROR_PAUSED),
        ({"code": "else", "message": "no"}, ErrorCode.ERROR_INTERNAL),
    ],
)
def test_error_map_of_newer_engines(rig: Rig, error: dict[str, Any], code: int) -> None:
    client = Client()
    _, (request,) = rig.start(client)
    rig.pump.feed(packb([0, [[request, [], None, None, None, ERROR, *[None] * 12, error]]]))
    assert client.status == 500 + code
    assert json.loads(client.body or b"") == {"code": code, "message": "no"}


def test_a_client_that_has_gone_is_given_up(rig: Rig, ids: Any) -> None:
    client = Client()
    call, (one, two) = rig.start(client, stream=True, n=2)
    rig.step([one, ids("a")])
    client.gone = True
    rig.step([one, ids("b")], [two, ids("c")])
    assert sorted(rig.aborted()) == sorted([one, two])
    assert rig.ended == [call]
    assert rig.pump.live == 0


def test_cancel_aborts_once(rig: Rig) -> None:
    call, requests = rig.start(Client(), stream=True, n=3)
    rig.pump.cancel(call)
    rig.pump.cancel(call)
    assert rig.aborted() == requests
    assert rig.aborted() == []
    assert rig.ended == [call]
    assert rig.pump.finished_engines == [0, 0, 0]


def test_a_dead_engine_fails_its_calls_only(rig: Rig, ids: Any) -> None:
    started, waiting = Client(), Client()
    _, (request,) = rig.start(started, stream=True)
    rig.start(waiting)
    rig.step([request, ids("a")])
    assert rig.pump.fail_engine(1, "gone") == 0
    assert rig.pump.fail_engine(0, "gone") == 2
    assert started.events[-2:] == [{"error": ErrorCode.ERROR_ENGINE_DEAD}, "[DONE]"]
    assert waiting.status == 500 + ErrorCode.ERROR_ENGINE_DEAD
    assert rig.aborted() == []


def test_a_stale_id_reaches_nobody(rig: Rig, ids: Any) -> None:
    first = Client()
    _, (old,) = rig.start(first)
    rig.step([old, ids("a"), LENGTH])
    second = Client()
    _, (new,) = rig.start(second)
    assert old[-16:-8] == new[-16:-8], "the slot is used again"
    rig.step([old, ids("x"), LENGTH])
    rig.step([new, ids("b"), LENGTH])
    assert second.text() == "b"


@pytest.mark.parametrize("name", ["", "x", "cmpl-x-zzzzzzzzzzzzzzzz", "cmpl-x-ffffffff00000001", "é" * 30])
def test_unknown_ids_are_passed_over(rig: Rig, name: str) -> None:
    rig.step([name, [1]])
    assert rig.pump.tokens == 0


@pytest.mark.parametrize("ended", [None, False, True])
def test_add_message_follows_the_wire(rig: Rig, ended: bool | None) -> None:
    call, _ = rig.start(Client())
    rig.pump.cancel(call)
    prepared = PreparedCall(
        "chat",
        "chatcmpl-1",
        1,
        "m",
        [PreparedPrompt([1, 300, 70000], 7)],
        {"temperature": 0.5, "logit_bias": {5: 1.0}},
        n=2,
        seed=4,
        priority=-3,
        cache_salt="s",
        reasoning_ended=ended,
        reasoning_kwargs={"chat_template_kwargs": {"enable_thinking": False}},
    )
    adds = rig.pump.attach(Call(prepared, rig.vocabulary, None, [3, 4], 2, "fp", 12.5))
    assert [engine for engine, _ in adds] == [3, 4]
    for child, (_, payload) in enumerate(adds):
        add = unpackb(payload)
        assert len(add) == 22
        assert add[0].startswith(f"{child}_chatcmpl-1-")
        assert add[1:] == [
            [1, 300, 70000],
            None,
            {"temperature": 0.5, "logit_bias": {5: 1.0}, "max_tokens": 7, "seed": 4 + child},
            None,
            12.5,
            None,
            "s",
            None,
            None,
            None,
            2,
            -1,  # an idle rank of several that step together wakes the others
            -3,
            None,
            False,
            "chatcmpl-1",
            ended,
            {"chat_template_kwargs": {"enable_thinking": False}},
            False,
            None,
            None,
        ]


OUTPUT_VECTORS = sorted(p for p in VECTORS.glob("*.json") if p.name[:2] in {"08", "09", *map(str, range(16, 26)), "37"})


@pytest.mark.parametrize("path", OUTPUT_VECTORS, ids=lambda p: p.stem)
def test_vectors(rig: Rig, path: Path) -> None:
    """Every recorded output message is understood, for streams of ours under the recorded ids' places too."""
    frame = bytes.fromhex(json.loads(path.read_text())["frames"][0])
    engine, rest = rig.pump.feed(frame)
    decoded = unpackb(frame)
    assert engine == decoded[0]
    if rest is not None:
        assert rest == frame[len(frame) - len(rest) :]
        assert decoded[2] is not None or any(v is not None for v in decoded[4:])
    client = Client()
    _, (request,) = rig.start(client)
    for output in decoded[1]:
        output[0] = request
        rig.pump.feed(packb([engine, [output], *decoded[2:]]))
        if output[5] is not None:
            assert client.status == (500 + ErrorCode.ERROR_INTERNAL if output[5] == ERROR and len(output) < 19 else client.status)
            assert client.status is not None


@pytest.mark.parametrize("path", OUTPUT_VECTORS, ids=lambda p: p.stem)
def test_truncated_anywhere(rig: Rig, path: Path) -> None:
    frame = bytes.fromhex(json.loads(path.read_text())["frames"][0])
    _, (request,) = rig.start(Client())
    decoded = unpackb(frame)
    for output in decoded[1]:
        output[0] = request
    frame = packb(decoded)
    for n in range(len(frame)):
        with contextlib.suppress(EngineMessageError):
            rig.pump.feed(frame[:n])
        rig.pump.take_aborts()


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_ignored(data: bytes) -> None:

    rig = Rig(load("qwen3").vocabulary)
    _, (request,) = rig.start(Client(), stream=True)
    for message in (data, b"\x94\x00\x91" + packb([request, [1]])[:1] + packb(request) + data):
        with contextlib.suppress(EngineMessageError):
            rig.pump.feed(message)


@given(st.data())
def test_any_split_gives_the_same_text(data: st.DataObject) -> None:
    """Streamed in any split, or in one piece, the text is decode() of the ids up to the stop string that completes first."""

    model = load("qwen3")
    tokens = data.draw(st.lists(st.one_of(st.integers(0, 600), st.integers(0, 151_000)), min_size=1, max_size=40))
    stops = data.draw(st.lists(st.text("ab .\né", min_size=1, max_size=3), max_size=3))
    rig = Rig(model.vocabulary)
    streamed, whole = Client(), Client()
    interval = data.draw(st.integers(1, 4))
    _, (a,) = rig.start(streamed, stream=True, stop=stops, kind="completion", stream_interval=interval)
    _, (b,) = rig.start(whole, stop=stops, kind="completion")
    at = 0
    while at < len(tokens):
        n = data.draw(st.integers(1, 5))
        last = LENGTH if at + n >= len(tokens) else None
        rig.step([a, tokens[at : at + n], last])
        at += n
    rig.step([b, tokens, LENGTH])
    text = model.tokenizer.decode(tokens)
    ends = sorted((text.find(s) + len(s), k) for k, s in enumerate(stops) if s in text)
    if ends:
        end, k = ends[0]
        text = text[: end - len(stops[k])]
        assert streamed.finish() == whole.finish() == ("stop", stops[k])
    else:
        text = text.rstrip("�") if text.endswith("�") else text
        assert streamed.finish() == whole.finish() == ("length", None)
    assert streamed.text().rstrip("�") == whole.text().rstrip("�") == text.rstrip("�")
    assert streamed.text() == whole.text()


def test_cancelling_what_was_never_attached_does_nothing(rig: Rig) -> None:
    prepared = PreparedCall("chat", "x", 1, "m", [PreparedPrompt([1], 5)], {})
    call = Call(prepared, rig.vocabulary, Client(), [0], 0, "fp", 1.0)
    before = sys.getrefcount(call)
    rig.pump.cancel(call)
    assert sys.getrefcount(call) == before
    assert not call.ended
    assert rig.pump.finished_engines == []
    assert len(rig.pump.attach(call)) == 1, "it can still be attached"


def test_losing_an_engine_aborts_what_runs_on_others(rig: Rig) -> None:
    prepared = PreparedCall("chat", "x", 1, "m", [PreparedPrompt([1], 5)], {}, n=3)
    call = Call(prepared, rig.vocabulary, Client(), [0, 1, 1], 0, "fp", 1.0)
    requests = [unpackb(payload)[0] for _, payload in rig.pump.attach(call)]
    assert rig.pump.fail_engine(0, "gone") == 1
    assert rig.aborted() == requests[1:]
    assert rig.pump.live == 0


def test_no_python_runs_per_token(qwen3: Model) -> None:
    """Whatever the number of streams, a step runs no Python function: only the sends, which are native calls."""

    class Wire:
        send_bytes = staticmethod(len)
        end = staticmethod(int)

    class Protocol:
        def response_stream(self, status: int, headers: list[tuple[str, str]]) -> type[Wire]:
            return Wire

    rig = Rig(qwen3.vocabulary)
    requests = [rig.start(Protocol(), stream=True, stop=["nothing"])[1][0] for _ in range(50)]
    rig.step(*[[request, [9707]] for request in requests])
    message = packb([0, [[request, [1879]] for request in requests], None, 1.0])
    assert python_functions(partial(rig.pump.feed, message)) == []
    assert rig.pump.sends == 100
