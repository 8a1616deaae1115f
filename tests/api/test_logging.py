"""Log lines of a running server: who asked for what and how it ended."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.http1 import head, post
from tests.support.mock import MockEngine, scripted
from tests.support.paths import ROOT
from tests.support.server import CHAT, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

ACCESS = re.compile(r'fastfront\.access: 127\.0\.0\.1:\d+ - "(\S+) (\S+) HTTP/1\.1" (\d+) ([\w ]+) (\d+\.\d{3})s$', re.M)


def accesses(server: Server) -> list[tuple[str, ...]]:
    """Method, path and status of every line of the access log."""
    return [found.groups()[:3] for found in ACCESS.finditer(server.log())]


def serve(folder: Path, *flags: str, **env: str) -> Server:
    return Server(folder, *flags, mock=MockEngine(folder, "--tokens", "echo", "--stats"), env=env)


def test_every_answer_is_one_line(tmp_path: Path, pieces: Pieces) -> None:
    with serve(tmp_path, "--disable-access-log-for-endpoints", "/health,/ping") as server:
        server.wait_ready()
        script = scripted(pieces.byte_level("a"), then="stop")
        assert server.chat(script).status_code == 200
        assert server.chat(script, stream=True).status_code == 200
        assert server.chat(temperature=5).status_code == 400
        for path, status in (("/v1/models", 200), ("/health", 200), ("/nope", 404), ("/ping", 200)):
            assert server.get(path).status_code == status
        wanted = [
            ("POST", CHAT, "200"), ("POST", CHAT, "200"), ("POST", CHAT, "400"), ("GET", "/v1/models", "200"),
            ("GET", "/nope", "404"),
        ]  # fmt: skip
        found = wait_for(lambda: len(found := accesses(server)) == len(wanted) and found, "the lines")
        assert sorted(found) == sorted(wanted), "whoever has answered adds the line, after the answer"


@pytest.mark.parametrize("leave", [False, True])
def test_a_generation_is_logged_at_its_end(tmp_path: Path, leave: bool) -> None:
    """Not when it begins; a client that leaves before an answer is told apart."""
    with serve(tmp_path) as server:
        server.wait_ready()
        assert server.mock is not None
        server.mock.pause()
        connection = server.connect()
        connection.send(post("/v1/completions", {"prompt": "hello", "stream": True, "max_tokens": 3}))
        server.mock.wait_adds(1)
        assert accesses(server) == []
        if leave:
            connection.close()
            status = "499"
        else:
            server.mock.resume()
            status = "200"
        assert wait_for(lambda: accesses(server), "a line") == [("POST", "/v1/completions", status)]
        server.mock.resume()


@pytest.mark.parametrize("flags", [(), ("--middleware", "tests.support.middleware.Header")])
def test_a_client_that_leaves_inside_its_body_is_a_line(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serve(tmp_path, *flags, PYTHONPATH=str(ROOT)) as server:
        server.wait_ready()
        with server.connect() as connection:
            connection.send(head("POST", "/v1/completions", content_type="application/json", content_length="100") + b"{")
        assert wait_for(lambda: accesses(server), "a line") == [("POST", "/v1/completions", "499")]
        counted = 'http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1.0' in server.get("/metrics").text
        assert counted != bool(flags), "the application has not seen it behind middleware"


def test_the_last_lines_are_written_before_the_end(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        server.wait_ready()
        for _ in range(20):
            assert server.completion(max_tokens=1).status_code == 200
        server.stop()
        assert len(accesses(server)) == 20


def test_no_access_log(tmp_path: Path) -> None:
    with serve(tmp_path, "--disable-uvicorn-access-log", "--disable-log-stats") as server:
        server.wait_ready()
        assert server.completion(max_tokens=1).status_code == 200
        server.stop()
        assert "fastfront.access" not in server.log()
        assert "throughput" not in server.log()


def records(server: Server, name: str) -> list[dict[str, Any]]:
    """The JSON lines of one logger."""
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["logger"] == name]


@pytest.mark.parametrize("level", ["info", "debug"])
def test_requests_as_json(tmp_path: Path, level: str) -> None:
    flags = ("--log-format", "json", "--enable-log-requests", "--log-level", level, "--max-log-len", "3")
    with serve(tmp_path, *flags, VLLM_LOG_STATS_INTERVAL="1") as server:
        wait_for(lambda: "ready in" in server.log() or server.process.poll() is not None, "a ready server")
        found = re.search(r"ready in \S+ s: http://127\.0\.0\.1:(\d+)", server.log())
        assert found, server.log()
        server.port = int(found[1])
        assert server.completion(prompt="hello world", top_p=0.5, max_tokens=2).status_code == 200
        (access,) = wait_for(lambda: records(server, "fastfront.access"), "an access line")
        assert (access["method"], access["path"], access["status"]) == ("POST", "/v1/completions", 200)
        asked = [line["message"] for line in records(server, "fastfront.requests")]
        assert "'top_p': 0.5" in asked[0]
        assert len(asked) == (2 if level == "debug" else 1)
        assert "hello world" not in server.log()
        if level == "debug":
            assert asked[1].endswith("prompt 0: 'hel'")
        wait_for(lambda: records(server, "fastfront.stats"), "a line of statistics")


def test_flags_without_effect_are_said_at_start(tmp_path: Path) -> None:
    with serve(tmp_path, "--trust-remote-code", "--api-server-count", "3") as server:
        server.wait_ready()
        assert "WARNING fastfront: --trust-remote-code has no effect" in server.log()
        assert "WARNING fastfront: --api-server-count has no effect" in server.log()


def test_documents_of_the_api_can_be_left_out(tmp_path: Path) -> None:
    with serve(tmp_path, "--disable-fastapi-docs") as server:
        server.wait_ready()
        assert [server.get(path).status_code for path in ("/docs", "/openapi.json")] == [404, 404]
