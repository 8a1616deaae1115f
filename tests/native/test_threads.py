"""Threads that start together on shared tables, each with streams of its own."""

import random
import sys
import sysconfig
import threading
from collections.abc import Callable

import pytest

from fastfront._speedups.detokenizer import Detokenizer
from fastfront._speedups.engine_loads import EngineLoads
from fastfront._speedups.inbox import Inbox
from fastfront._speedups.json_escape import escape
from fastfront._speedups.msgpack import packb, unpackb
from fastfront._speedups.passage import Field, Passage, Triggers
from fastfront._speedups.pump import Pump
from fastfront._speedups.stop_matcher import StopMatcher
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.engine_client.addresses import local_addresses
from fastfront.engine_client.handshake import bind_lanes
from tests.native.conftest import Model
from tests.native.tiny import NATIVE, SLOW, byte_level

THREADS = 4


def together(work: Callable[[int], None]) -> None:
    """Runs work(0..THREADS-1) in threads released by one barrier; the first failure is raised."""
    barrier = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded interpreter")
def test_the_modules_leave_the_gil_off() -> None:
    assert not getattr(sys, "_is_gil_enabled")()  # noqa: B009 - the name is missing from older type stubs


@pytest.mark.parametrize("name", [*NATIVE, *SLOW])
def test_one_vocabulary_many_streams(name: str) -> None:
    tokenizer = (NATIVE[name][1] if name in NATIVE else SLOW[name])()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    rng = random.Random(4)
    lists = [[rng.randrange(-1, vocabulary.size + 1) for _ in range(40)] for _ in range(20)]
    expected = [tokenizer.decode([i for i in ids if i >= 0]) for ids in lists]

    def work(number: int) -> None:
        for round_ in range(5):
            streams = [Detokenizer(vocabulary) for _ in lists]
            texts = ["" for _ in lists]
            for at in range(0, 40, 1 + (number + round_) % 4):
                for n, ids in enumerate(lists):
                    texts[n] += streams[n].feed(ids[at : at + 1 + (number + round_) % 4])
            assert [text + stream.flush() for text, stream in zip(texts, streams, strict=True)] == expected

    together(work)


def test_building_and_dropping_vocabularies_in_parallel(qwen3: Model) -> None:
    ids = qwen3.tokenizer.encode("Bäume 👋🏽 im Wald").ids
    expected = qwen3.tokenizer.decode(ids)

    def work(number: int) -> None:
        vocabulary = Vocabulary.from_tokenizer(qwen3.tokenizer)
        for _ in range(200):
            assert Detokenizer(vocabulary).feed(ids) == expected

    together(work)


def test_matchers_packing_and_escaping() -> None:
    value = {"a": [1, 2.5, None, {"b": ["x" * 40] * 20}], "c": b"\x00" * 100}
    packed = packb(value)

    def work(number: int) -> None:
        for _ in range(500):
            matcher = StopMatcher(["fox", "dog"])
            assert "".join(matcher.push(c) for c in "the quick f o fo do") + matcher.finish() == "the quick f o fo do"
            assert unpackb(packed) == value
            assert packb(value) == packed
            assert escape('a"b') == b'a\\"b'

    together(work)


def test_triggers_of_many_passages() -> None:
    triggers = Triggers("<tool_call>", "^", spaces=True)
    texts = {"plain": False, "a <": True, "a ^ b": True, "<tool_x": False, "so ": True, "é\u3000": True, "": False}

    def work(number: int) -> None:
        for _ in range(500):
            passage = Passage([b"(", Field.FIELD_TEXT], (triggers, Triggers(str(number % 10))), keeps_text=True)
            assert passage.take() == ("", b"")
            assert {text: triggers.end(text) for text in texts} == texts

    together(work)


def test_loads_of_engines_lose_nothing() -> None:
    loads = EngineLoads(0, 3)

    def work(number: int) -> None:
        for k in range(2000):
            chosen = loads.choose(1 + k % 3, None if k % 5 else number % 3, number % 3 if k % 2 else -1)
            loads.report(k % 3, k % 7, 0.9)
            if number == 0 and k % 50 == 0:
                loads.set_alive(1, not loads.set_alive(1, False))
            loads.finished(chosen)

    together(work)
    assert loads.in_flight == [0, 0, 0]


def test_an_inbox_loses_nothing_and_keeps_each_senders_order() -> None:
    (pair,) = bind_lanes(local_addresses(1), 1)
    pump = Pump(Vocabulary.from_tokenizer(byte_level([])), lambda *_: (500, [], b""), lambda *_: b"", [], [])
    inbox = Inbox(0, pair.sockets, pump)
    taken: list[object] = []

    def work(number: int) -> None:
        for k in range(2000):
            inbox.post((number, k))  # type: ignore[arg-type]
            if number == 0:
                inbox.settle()
                taken.extend(inbox.take())

    together(work)
    taken.extend(inbox.take())
    assert inbox.queued == 0
    senders = {number for number, _ in taken}  # type: ignore[misc]
    for number in senders:
        assert [k for sender, k in taken if sender == number] == list(range(2000))  # type: ignore[misc]
