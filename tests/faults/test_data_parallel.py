"""Several engines under one frontend: even load, pins, and what happens when some of them go and come again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.ports import free_port
from tests.support.fixtures import StartServer
from tests.support.http1 import Connection, post
from tests.support.metrics import finished
from tests.support.mock import MockEngine, ranks, scripted
from tests.support.paths import SMOLLM2
from tests.support.processes import title
from tests.support.server import COMPLETIONS, Server, headless_mock
from tests.support.sse import frames
from tests.support.waiting import wait_for

LIMIT_S = 60.0  # everything here takes milliseconds; the machine may be busy
GATE = "go on"
HELD = {"gate": GATE}
STAY = {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"}


class Group(NamedTuple):
    """A server and the mocks it has started."""

    server: Server
    mocks: list[MockEngine]

    def pid(self, rank: int) -> int | None:
        """The process of a rank, if it is there."""
        pids = [pid for pid in self.server.engine_pids() if title(pid).startswith(f"fastfront::mock-engine-{rank}")]
        return pids[0] if pids else None

    def kill(self, rank: int) -> None:
        pid = self.pid(rank)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def send(self, rank: int | None, stream: bool, **fields: object) -> Connection:
        """A completion on a connection of its own; it has arrived at its engine when this returns."""
        since = [mock.mark() for mock in self.mocks]
        connection = self.server.connect(LIMIT_S)
        headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": stream, "max_tokens": 500, **fields}, **headers))
        wait_for(lambda: any(m.adds(s) for m, s in zip(self.mocks, since, strict=True)), "the request at an engine", LIMIT_S)
        return connection

    def adds(self) -> list[int]:
        return [len(mock.adds()) for mock in self.mocks]

    def health(self) -> int:
        return self.server.get("/health").status_code


def held(a: int) -> dict[str, object]:
    """One token at once, 39 more and the end when the engine's gate is opened."""
    return scripted(a, HELD, *[a] * 39, then="stop")


def check_only_the_first_fails(two: Group, going: list[Connection]) -> None:
    """Of two streams that are held, one on each rank."""
    failed, other = going
    assert b'"error"' in failed.response_body()
    two.mocks[1].open(GATE)
    body = other.response_body()
    assert b'"error"' not in body
    assert b'"finish_reason":"stop"' in body


@pytest.fixture
def group(start: StartServer, tmp_path: Path) -> Callable[..., Group]:
    """Starts a server with `count` mocks: `group(count, *flags, mock_flags=(), **options)`."""

    def begin(count: int, *flags: str, mock_flags: tuple[str, ...] = (), **options: object) -> Group:
        told, mocks = ranks(tmp_path, count, *mock_flags)
        server = start("--data-parallel-size", str(count), *flags, mock=told, **options)
        return Group(server.wait_ready(), mocks)

    return begin


Begin = Callable[..., Group]


def test_load_is_even_and_ranks_can_be_pinned(group: Begin, a: int) -> None:
    two = group(2)
    for _ in range(10):
        assert two.server.completion(scripted(a, then="stop")).status_code == 200
    assert two.adds() == [5, 5]
    for _ in range(3):
        headers = {"X-data-parallel-rank": "1"}
        assert two.server.post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, **headers).status_code == 200
    assert two.adds() == [5, 8]
    refused = two.server.post(COMPLETIONS, {"prompt": "hello"}, **{"X-data-parallel-rank": "2"})
    assert refused.status_code == 400
    assert two.adds() == [5, 8]


def test_a_rank_is_killed(group: Begin, a: int) -> None:
    """What had sent something ends with an error, what had sent nothing is answered by the other rank, which goes on."""
    two = group(2)
    slow = held(a)
    going = [two.send(None, True, **slow) for _ in range(4)]
    for connection in going:
        connection.response_head()
    assert two.adds() == [2, 2]
    # Tokens of a plain answer are not sent before its end; a stream sends nothing before its first token.
    begun = [two.send(None, False, **slow) for _ in range(2)]
    untouched = [two.send(None, True, **scripted(HELD, a, a, then="stop")) for _ in range(2)]
    assert two.adds() == [4, 4]
    two.kill(0)
    wait_for(lambda: two.adds() == [4, 6], "what had sent nothing at the other rank", LIMIT_S)
    two.mocks[1].open(GATE)
    bodies = [connection.response_body() for connection in going]
    failed = [body for body in bodies if b'"error"' in body]
    assert len(failed) == 2
    for body in failed:
        *_, error, done = frames(body)
        assert (json.loads(error)["error"]["code"], done) == (503, "[DONE]")
    assert sum(b'"finish_reason":"stop"' in body for body in bodies) == 2
    assert [connection.response().json()["choices"][0]["text"] for connection in begun] == ["a" * 40] * 2
    for connection in untouched:
        connection.response_head()
        body = connection.response_body()
        assert b'"error"' not in body
        assert body.count(b'"text":"a"') == 2
    assert two.adds() == [4, 6]
    assert two.health() == 200
    for _ in range(3):
        assert two.server.completion(scripted(a, then="stop")).status_code == 200
    assert two.adds() == [4, 9]
    counts = {"stop": 2 + 2 + 2 + 3, "length": 0, "abort": 0, "error": 2, "repetition": 0}
    wait_for(lambda: finished(two.server) == counts, "all to be counted", LIMIT_S)
    two.kill(1)
    assert two.server.exits(LIMIT_S) == 1


def test_pinned_requests_stay_with_their_rank(group: Begin, a: int) -> None:
    two = group(2)
    pinned = two.send(0, False, **scripted([a], then="silence"))
    two.kill(0)
    assert pinned.response().status == 503
    again = two.server.post(COMPLETIONS, {"prompt": "hello"}, **{"X-data-parallel-rank": "0"})
    assert again.status_code == 503
    assert two.adds() == [1, 0]
    assert two.health() == 200


def test_a_request_that_kills_engines_does_not_get_them_all(group: Begin, a: int) -> None:
    three = group(3)
    answer = three.server.completion(scripted({"tokens": [a], "die": "kill"}))
    assert answer.status_code == 503
    assert three.adds() == [1, 1, 0]
    assert three.health() == 200
    assert three.server.completion(scripted(a, then="stop")).status_code == 200


def test_a_client_that_leaves_before_its_request_begins_anew(group: Begin, a: int) -> None:
    """The request is aborted where it is now."""
    two = group(2)
    connection = two.send(None, False, **scripted([a], then="silence"))
    two.kill(0)
    (add,) = two.mocks[1].wait_adds(1)
    connection.close()
    two.mocks[1].wait_aborts([add["id"]], timeout_s=LIMIT_S)
    two.mocks[1].wait_idle()


@pytest.mark.parametrize("how", ["dead", "exit"])
def test_an_engine_that_leaves_by_itself_takes_no_other_with_it(group: Begin, a: int, how: str) -> None:
    """The message that announces an engine's death does not say whose."""
    two = group(2)
    going = [two.send(k, True, **held(a)) for k in range(2)]
    for connection in going:
        connection.response_head()
    two.mocks[0].die(how)
    check_only_the_first_fails(two, going)
    assert two.health() == 200


def test_an_engine_that_breaks_the_protocol_is_ended_alone(group: Begin, a: int) -> None:
    two = group(2, "--engine-restarts", "1")
    going = [two.send(k, True, **held(a)) for k in range(2)]
    for connection in going:
        connection.response_head()
    before = two.pid(0)
    two.mocks[0].raw(b"\x92\x00\xc1")
    check_only_the_first_fails(two, going)
    wait_for(lambda: "engine 0 is ready again" in two.server.log(), "the engine to come again", LIMIT_S)
    assert two.pid(0) not in (None, before)


def test_a_rank_comes_again(group: Begin, a: int) -> None:
    two = group(2, "--engine-restarts", "1")
    two.kill(0)
    wait_for(lambda: "engine 0 is ready again" in two.server.log(), "the engine to come again", LIMIT_S)
    assert two.health() == 200
    before = two.adds()
    for _ in range(10):
        assert two.server.completion(scripted(a, then="stop")).status_code == 200
    assert [after - earlier for earlier, after in zip(before, two.adds(), strict=True)] == [5, 5]
    two.kill(0)
    wait_for(lambda: two.pid(0) is None, "the end of the engine", LIMIT_S)
    assert two.server.completion(scripted(a, then="stop")).status_code == 200
    assert two.server.log().count("engine 0 is started again") == 1
    two.kill(1)
    wait_for(lambda: "engine 1 is ready again" in two.server.log(), "the other engine", LIMIT_S)
    assert two.health() == 200
    assert two.server.stop() == 0


def test_the_only_engine_comes_again(group: Begin, tmp_path: Path, a: int) -> None:
    loaded = tmp_path / "loaded"
    loaded.touch()
    one = group(1, "--engine-restarts", "1", mock_flags=("--load-until", str(loaded)))
    loaded.unlink()
    going = one.send(None, False, **scripted([a], then="silence"))
    one.kill(0)
    assert going.response().status == 503
    assert one.health() == 503
    assert one.server.completion(max_tokens=1).status_code == 503
    loaded.touch()
    wait_for(lambda: one.health() == 200, "/health to turn 200", LIMIT_S)
    assert one.server.completion(max_tokens=1).status_code == 200
    one.kill(0)
    assert one.server.exits(LIMIT_S) == 1


def test_an_engine_that_cannot_start_again(group: Begin, tmp_path: Path) -> None:
    """Every try counts; then the server leaves as if there had been none."""
    script = tmp_path / "script.json"
    script.write_text("{}")
    one = group(1, "--engine-restarts", "2", mock_flags=("--script", str(script)))
    script.write_text("not JSON")
    one.kill(0)
    assert one.server.exits(LIMIT_S) == 1
    assert one.server.log().count("engine 0 is started again") == 2


def test_a_server_that_is_stopped_while_an_engine_starts_again(group: Begin, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    loaded.touch()
    one = group(1, "--engine-restarts", "1", mock_flags=("--load-until", str(loaded)))
    loaded.unlink()
    one.kill(0)
    wait_for(lambda: "has joined again" in one.server.log(), "the engine to start again", LIMIT_S)
    assert one.server.stop() == 0


# ---- engines elsewhere


def test_a_headless_engine_joins_again(start: StartServer, tmp_path: Path, a: int) -> None:
    """One rank here, one that comes over TCP from another address; nothing has to be said for it to come again."""
    port = free_port()
    told, (here,) = ranks(tmp_path, 1)
    server = start(
        "--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.2",
        "--data-parallel-rpc-port", str(port), mock=told,
    )  # fmt: skip
    there = MockEngine(tmp_path)
    engine = headless_mock(port, there, 1, "127.0.0.2")
    try:
        server.wait_ready()
        for _ in range(4):
            assert server.completion(scripted(a, then="stop")).status_code == 200
        assert [len(here.adds()), len(there.adds())] == [2, 2]
        engine.kill()
        engine.wait()
        for _ in range(4):
            assert server.completion(scripted(a, then="stop")).status_code == 200
        assert [len(here.adds()), len(there.adds())] == [6, 2]
        engine = headless_mock(port, there, 1, "127.0.0.2")
        wait_for(lambda: "engine 1 is ready again" in server.log(), "the engine to come again", LIMIT_S)
        for _ in range(4):
            assert server.completion(scripted(a, then="stop")).status_code == 200
        assert [len(here.adds()), len(there.adds())] == [8, 4]
        twin = headless_mock(port, MockEngine(tmp_path), 1, "127.0.0.2")
        wait_for(lambda: "that rank is running" in server.log(), "a second process with the rank to be noticed", LIMIT_S)
        twin.kill()
        twin.wait()
        assert server.completion(scripted(a, then="stop")).status_code == 200
    finally:
        engine.kill()
        engine.wait()


def test_a_server_that_stays_up_without_engines_serves_again(start: StartServer, tmp_path: Path, a: int) -> None:
    port = free_port()
    server = start("--data-parallel-size-local", "0", "--data-parallel-rpc-port", str(port), mock=None, env=STAY)
    there = MockEngine(tmp_path)
    engine = headless_mock(port, there)
    try:
        server.wait_ready()
        engine.kill()
        engine.wait()
        wait_for(lambda: server.get("/health").status_code == 503, "/health to turn 503", LIMIT_S)
        engine = headless_mock(port, there)
        wait_for(lambda: server.get("/health").status_code == 200, "/health to turn 200", LIMIT_S)
        assert server.completion(scripted(a, then="stop")).status_code == 200
        assert server.stop() == 0
    finally:
        engine.kill()
        engine.wait()


FACTS = {"model": "/models/other", "host": "node-b", "model_type": "llama", "vocab_size": 151936}


def test_engines_elsewhere_with_another_model(start: StartServer, tmp_path: Path) -> None:
    """One that says so is refused at start; the log tells of one by vLLM's description, and by a length too large."""
    port = free_port()
    flags = ("--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(port))
    server = start(*flags, mock=None)
    other = headless_mock(port, MockEngine(tmp_path, script={"ready": {"model_facts": FACTS}}))
    try:
        assert server.exits(LIMIT_S) == 1
        assert "engine 0 serves another model: /models/other on node-b has vocab_size 151936, " in server.log()
        assert f"{SMOLLM2} here has vocab_size 49152" in server.log()
    finally:
        other.kill()
        other.wait()
    server = start(*flags, mock=None)
    described = {"collective_rpc": {"result": ["VocabParallelEmbedding(num_embeddings=151936, org_vocab_size=151936)"]}}
    other = headless_mock(port, MockEngine(tmp_path, script={"ready": {"max_model_len": 40960}, "utilities": described}))
    try:
        server.wait_ready()
        assert f"engine 0 takes sequences of 40960 tokens, {SMOLLM2} here only 8192" in server.log()
        told = f"engine 0 serves another model: its vocabulary has 151936 tokens, that of {SMOLLM2} here 49152"
        wait_for(lambda: told in server.log(), "the vocabulary to be noticed", LIMIT_S)
        server.stop()
    finally:
        other.kill()
        other.wait()
