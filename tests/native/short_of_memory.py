"""A call that there is no memory for, once it is with its lane: `python -m tests.native.short_of_memory CASE`.

A process of its own: what others have freed would be memory at hand.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastfront._speedups.call import Call
from fastfront._speedups.memory import trim
from fastfront.streams.prepared import PreparedCall, PreparedPrompt
from tests.native.conftest import load
from tests.native.pumping import Client, Rig

LONG = 10_000_000  # ids; their ADD message takes 5 bytes for each: more than malloc keeps at hand, and than `ROOM`
ROOM = 16 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    """No more than ROOM bytes of addresses besides those in use, of which malloc keeps none at hand."""
    trim()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def its_client_is_told(stream: bool) -> None:
    """The first prompt is in the table by then, the second enters it, the third does not come to it."""
    rig, client = Rig(load("qwen3").vocabulary, engines=3), Client()
    prompts = [PreparedPrompt([1], 5), PreparedPrompt([100_000] * LONG, 5), PreparedPrompt([2], 5)]
    prepared = PreparedCall("completion", "x", 1, "m", prompts, {}, stream=stream)
    call = Call(prepared, rig.vocabulary, client, [2, 0, 1], 0, "fp", 1.0, rig.ended.append)
    before = sys.getrefcount(call)
    with little_memory():
        assert rig.pump.attach(call) == []
    assert sys.getrefcount(call) == before + 1, "the list of ended calls has it"
    assert rig.ended == [call]
    assert call.ended
    assert client.status is not None
    assert client.status >= 500
    assert json.loads(client.body or b"")["message"] == ""
    assert sorted(rig.pump.finished_engines) == [0, 1, 2]
    assert [type(error) for error in rig.pump.errors] == [MemoryError]
    assert rig.pump.live == 0
    assert rig.pump.prefill_tokens == 0
    assert rig.aborted() == [], "no engine has heard of it"


def the_next_call_is_served() -> None:
    rig, client = Rig(load("qwen3").vocabulary), Client()
    prepared = PreparedCall("completion", "x", 1, "m", [PreparedPrompt([100_000] * LONG, 5)], {})
    call = Call(prepared, rig.vocabulary, Client(), [0], 0, "fp", 1.0)
    with little_memory():
        assert rig.pump.attach(call) == []
    _, (name,) = rig.start(client, kind="completion", stream=False)
    rig.step([name, [5], 1])
    assert client.status == 200


CASES = {
    "whole": lambda: its_client_is_told(stream=False),
    "stream": lambda: its_client_is_told(stream=True),
    "next": the_next_call_is_served,
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
