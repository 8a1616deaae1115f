"""Several frontends of one deployment, each for a node's ranks or for one rank."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.fixtures import StartServer
from tests.support.http1 import post
from tests.support.metrics import metric
from tests.support.mock import MockEngine, ranks, scripted
from tests.support.processes import session_members, title, wait_gone
from tests.support.server import COMPLETIONS, Server
from tests.support.waiting import wait_for

LIMIT_S = 60.0


def begin(start: StartServer, folder: Path, first: int, count: int, *flags: str) -> tuple[Server, list[MockEngine]]:
    """A frontend with these ranks of four, and its mocks."""
    told, mocks = ranks(folder, first + count)
    return start("--data-parallel-size", "4", *flags, mock=told), mocks[first:]


def node(start: StartServer, folder: Path, first: int, *flags: str) -> tuple[Server, list[MockEngine]]:
    return begin(start, folder, first, 2, "--data-parallel-size-local", "2", "--data-parallel-start-rank", str(first), *flags)


def engines(server: Server) -> list[str]:
    """Titles of the engines of a server, in order."""
    titles = (title(pid) for pid in session_members(server.pid))
    return sorted(name.split()[0] for name in titles if name.startswith("fastfront::mock-engine-"))


def adds(mocks: list[MockEngine]) -> list[int]:
    return [len(mock.adds()) for mock in mocks]


def labels(server: Server, name: str) -> list[str]:
    """The engines that a metric has."""
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith(name + "{")]
    return [line.partition('engine="')[2].partition('"')[0] for line in lines]


def test_a_frontend_on_each_node_serves_the_ranks_there(start: StartServer, tmp_path: Path, a: int) -> None:
    nodes = [node(start, tmp_path, 0), node(start, tmp_path, 2)]
    for server, _ in nodes:
        server.wait_ready()
    for (server, mocks), own in zip(nodes, (["0", "1"], ["2", "3"]), strict=True):
        assert engines(server) == [f"fastfront::mock-engine-{rank}" for rank in own]
        for _ in range(6):
            assert server.completion(scripted(a, then="stop")).status_code == 200
        assert adds(mocks) == [3, 3]
        for name in ("vllm:num_requests_running", "vllm:cache_config_info", "fastfront:engine_up", "fastfront:engine_in_flight"):
            assert labels(server, name) == own
        for rank in own:
            assert metric(server, "vllm:generation_tokens_total", engine=rank) == 3
            assert metric(server, "vllm:time_to_first_token_seconds_count", engine=rank) == 3
        # Clients count from the first rank that is there.
        assert server.post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, **{"X-data-parallel-rank": "1"}).status_code == 200
        assert adds(mocks) == [3, 4]
        refused = server.post(COMPLETIONS, {"prompt": "hello"}, **{"X-data-parallel-rank": "2"})
        assert refused.status_code == 400
        assert "out of range [0, 2)" in refused.text


def test_a_frontend_that_is_killed_leaves_the_others_alone(start: StartServer, tmp_path: Path, a: int) -> None:
    (gone, _), (other, mocks) = node(start, tmp_path, 0), node(start, tmp_path, 2)
    gone.wait_ready()
    other.wait_ready()
    going = other.connect(LIMIT_S)
    going.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, **scripted(a, {"gate": "g"}, a, then="stop")}))
    going.response_head()
    gone.kill()
    wait_gone(gone.pid, LIMIT_S)
    for mock in mocks:
        mock.open("g")
    assert b'"finish_reason":"stop"' in going.response_body()
    for _ in range(4):
        assert other.completion(scripted(a, then="stop")).status_code == 200
    assert other.get("/health").status_code == 200
    assert other.stop() == 0


def test_a_rank_of_a_later_node_is_killed_and_comes_again(start: StartServer, tmp_path: Path, a: int) -> None:
    server, _ = node(start, tmp_path, 2, "--engine-restarts", "1")
    server.wait_ready()
    pid = next(pid for pid in session_members(server.pid) if title(pid).startswith("fastfront::mock-engine-3"))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "engine 3 is ready again" in server.log(), "the engine to come again", LIMIT_S)
    assert engines(server) == ["fastfront::mock-engine-2", "fastfront::mock-engine-3"]
    assert [server.completion(scripted(a, then="stop")).status_code for _ in range(4)] == [200] * 4
    assert metric(server, "fastfront:engine_up", engine="3") == 1


@pytest.mark.parametrize("rank", [0, 3])
def test_a_frontend_for_a_single_rank(start: StartServer, tmp_path: Path, rank: int, a: int) -> None:
    server, mocks = begin(start, tmp_path, rank, 1, "--data-parallel-rank", str(rank))
    server.wait_ready()
    assert engines(server) == [f"fastfront::mock-engine-{rank}"]
    assert [server.completion(scripted(a, then="stop")).status_code for _ in range(3)] == [200] * 3
    assert adds(mocks) == [3]
    assert labels(server, "vllm:num_requests_running") == [str(rank)]
    assert server.stop() == 0
