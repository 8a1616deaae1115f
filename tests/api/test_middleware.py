"""--middleware: what it changes takes effect, whatever it does the server stands, and clients that leave are noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastfront.server.middleware.bridge import UNKEYED_BYTES
from tests.api.conftest import BODY_LIMIT
from tests.support.fixtures import StartServer
from tests.support.http1 import Closed, chunked, head, post
from tests.support.mock import MockEngine, scripted
from tests.support.paths import ROOT
from tests.support.processes import thread_titles
from tests.support.server import COMPLETIONS, Server, read_stream
from tests.support.sse import joined
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

HERE = "tests.support.middleware"
KEY = {"authorization": "Bearer key"}
ENV = {"PYTHONPATH": str(ROOT)}


def flags(*names: str) -> list[str]:
    return [word for name in names for word in ("--middleware", f"{HERE}.{name}")]


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("wrapped")
    mock = MockEngine(folder, "--tokens", "echo")
    with Server(
        folder, *flags("guard", "Header", "Second", "Body", "Shouting", "Faults", "Life"), "--api-key", "key",
        "--max-body-bytes", str(BODY_LIMIT), "--root-path", "/prefix", mock=mock, env=ENV,
    ) as server:  # fmt: skip
        yield server.wait_ready()
        mock.wait_idle()
        assert server.stop() == 0
        assert server.log().count("life: lifespan.startup") == 1
        assert server.log().count("life: lifespan.shutdown") == 1


def mock_of(server: Server) -> MockEngine:
    assert server.mock is not None
    return server.mock


def test_answers_are_changed_by_all_of_them(wrapped: Server) -> None:
    """The last one is the outermost; a refusal of the application is an answer too."""
    answer = wrapped.get("/health", x_word="hello")
    assert answer.status_code == 200
    assert answer.headers.get_list("x-order") == ["first", "second"]
    assert answer.headers["x-guard"] == "none"
    assert wrapped.get("/health", **{"x-word": "hello"}).headers["x-guard"] == "hello"
    refused = wrapped.post(COMPLETIONS, {"prompt": "hello"})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.headers["x-guard"] == "none"


def test_requests_are_changed(wrapped: Server) -> None:
    """Path, body and headers: a longer body than announced, and a key that the client has not got."""
    answer = wrapped.post("/other", {"max_tokens": 10})
    assert answer.status_code == 200
    usage = answer.json()["usage"]
    assert usage["completion_tokens"] == 10
    assert usage["prompt_tokens"] >= 10


def test_requests_are_answered_by_middleware_alone(wrapped: Server) -> None:
    """With the body as it came, in pieces too."""
    since = mock_of(wrapped).mark()
    for data in (post("/refused", b"short"), post("/refused", b"x" * 90_000),
                 head("POST", "/refused", transfer_encoding="chunked") + chunked(b"x" * 90_000, 7_000)):  # fmt: skip
        with wrapped.connect() as connection:
            connection.send(data * 2)
            for _ in range(2):
                answer = connection.response()
                assert answer.status == 418
                assert len(answer.json()["said"]) == (5 if len(data) < 1000 else 90_000)
    assert not mock_of(wrapped).adds(since)


def test_streams_and_whole_answers_pass_through(wrapped: Server, pieces: Pieces) -> None:
    """Also in other lengths than they came."""
    a, b = pieces.byte_level("a"), pieces.byte_level("b")
    body = {"prompt": "hello", "max_tokens": 50, **scripted(*[a, b] * 20, then="stop")}
    for path, text in ((COMPLETIONS, "ab" * 20), (COMPLETIONS + "?loud", "AAAb" * 20)):
        response = wrapped.post(path, {**body, "stream": True}, **KEY)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers.get_list("x-order") == ["first", "second"]
        assert joined(read_stream(response)) == text
    whole = {"prompt": "hello", "max_tokens": 50, **scripted(a, then="stop")}
    assert wrapped.post(COMPLETIONS, whole, **KEY).json()["choices"][0]["text"] == "a"
    assert wrapped.post(COMPLETIONS + "?loud", whole, **KEY).json()["choices"][0]["text"] == "AAA"


def test_bodies_over_the_limit_are_refused(wrapped: Server) -> None:
    """Announced or not, and once the middleware has seen the request; the application says so to those with a key."""
    with wrapped.connect() as connection:
        connection.send(head("POST", COMPLETIONS, content_type="application/json", content_length=str(10**12), **KEY))
        answer = connection.response()
        assert answer.status == 413
        assert answer.header("x-guard") == "none"
    for key, status in ((KEY, 413), ({}, 401)):
        with wrapped.connect() as connection:
            connection.send(head("POST", COMPLETIONS, content_type="application/json", transfer_encoding="chunked", **key))
            connection.send(chunked(b" " * (BODY_LIMIT + 1), 10_000))
            assert connection.response().status == status


def test_large_bodies_of_clients_without_a_key_are_not_read(start: StartServer) -> None:
    """Whether announced or not, and whatever the route; where none is needed, or with one, they are."""
    large = b"x" * (UNKEYED_BYTES + 1)
    server = start(*flags("guard"), "--api-key", "key", env=ENV).wait_ready()
    for path, status, unkeyed, keyed in (("/refused", 418, 0, len(large)), ("/v1/models", 405, None, None)):
        for key, said in (({}, unkeyed), (KEY, keyed)):
            pieces = head("POST", path, transfer_encoding="chunked", **key) + chunked(large, 60_000)
            for data in (post(path, large, **key), pieces):
                with server.connect() as connection:
                    connection.send(data)
                    answer = connection.response()
                    assert answer.status == status
                    assert said is None or len(answer.json()["said"]) == said
    with server.connect() as connection:
        connection.send(post("/refused", large[1:]))
        assert len(connection.response().json()["said"]) == UNKEYED_BYTES
    body = json.dumps({"model": "smollm2", "prompt": "x", "user": "x" * UNKEYED_BYTES}).encode()
    for path, key, status in (("/tokenize", {}, 401), ("/tokenize", KEY, 200)):
        with server.connect() as connection:
            connection.send(post(path, body, **key))
            assert connection.response().status == status
    # The rest of a body that nobody reads may come: its client gets its answer, and the connection closes or goes on.
    with server.connect() as connection:
        connection.send(head("POST", COMPLETIONS, content_type="application/json", content_length=str(60 << 20)))
        assert connection.response().status == 401


def test_head_and_options(wrapped: Server) -> None:
    with wrapped.connect() as connection:
        connection.send(head("HEAD", "/health") + head("GET", "/version"))
        assert connection.response("HEAD").status in (200, 405)
        assert list(connection.response().json()) == ["version"]


def test_what_the_scope_says(wrapped: Server) -> None:
    with wrapped.connect() as connection:
        connection.send(head("GET", "/state"))
        said = connection.response().json()
        client = list(connection.socket.getsockname())
    assert said == {
        "word": "from the start", "scheme": "http", "client": client, "server": ["127.0.0.1", wrapped.port],
        "raw_path": "/state", "root_path": "/prefix",
    }  # fmt: skip
    assert wrapped.get("/prefix/version").status_code == 200


@pytest.mark.parametrize("path", ["/raises", "/exits", "/silent"])
def test_no_answer_of_middleware_is_a_500(wrapped: Server, path: str) -> None:
    answer = wrapped.get(path)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "Internal server error"
    assert answer.json()["error"]["type"] == "InternalServerError"
    assert f"GET {path!r}" in wrapped.log()
    assert wrapped.get("/version").status_code == 200


@pytest.mark.parametrize("path", ["/cut", "/unfinished"])
def test_answers_that_break_off_do_not_look_complete(wrapped: Server, path: str) -> None:
    with wrapped.connect() as connection:
        connection.send(head("GET", path))
        assert connection.response_head()[0] == 200
        with pytest.raises((Closed, ConnectionError)):
            connection.response_body()


def test_middleware_that_gives_up_ends_the_generation(wrapped: Server, pieces: Pieces) -> None:
    mock = mock_of(wrapped)
    since = mock.mark()
    slow = {"prompt": "hello", "max_tokens": 5000, **scripted({"tokens": [pieces.byte_level("a")], "delay_ms": 20}, then="loop")}
    with wrapped.connect() as connection:
        connection.send(post("/gives-up", slow, **KEY))
        ids = [add["id"] for add in mock.wait_adds(1, since)]
        assert wrapped.get("/give-up").status_code == 200
        assert connection.response().status == 500
    mock.wait_aborts(ids, since)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_generation(wrapped: Server, pieces: Pieces, stream: bool) -> None:
    mock = mock_of(wrapped)
    since = mock.mark()
    slow = {"prompt": "hello", "stream": stream, "max_tokens": 5000,
            **scripted({"tokens": [pieces.byte_level("a")], "delay_ms": 20}, then="loop")}  # fmt: skip
    with wrapped.connect() as connection:
        connection.send(post(COMPLETIONS, slow, **KEY))
        if stream:
            connection.response_head()
        ids = [mock.wait_adds(1, since)[0]["id"]]
    mock.wait_aborts(ids, since)


def test_middleware_hears_of_a_client_that_leaves(wrapped: Server) -> None:
    before = wrapped.log().count("life: left")
    with wrapped.connect() as connection:
        connection.send(head("GET", "/waits"))
        assert connection.silent(0.1)
    wait_for(lambda: wrapped.log().count("life: left") > before, "a notice of it")


def test_middleware_waits_for_clients_that_do_not_read(wrapped: Server) -> None:
    """20 MB in pieces of 100 kB: no more than sockets and the server's bound hold are made before they are read."""
    seen = [0]

    def settled() -> bool:
        seen.append(int(wrapped.get("/sent").text))
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    with wrapped.connect() as connection:
        connection.send(head("GET", "/large"))
        assert connection.response_head()[0] == 200
        wait_for(settled, "middleware that waits", every_s=0.05)
        assert seen[-1] < 190
        assert len(connection.response_body()) == 20_000_000


def test_lines_of_the_access_log_have_what_clients_saw(wrapped: Server) -> None:
    wrapped.post("/refused", b"{}")
    wait_for(lambda: '"POST /refused HTTP/1.1" 418' in wrapped.log(), "a line of it")


@pytest.mark.parametrize(("path", "said"), [
    ("no.such.module", "ModuleNotFoundError: No module named 'no'"), (f"{HERE}.nothing", "AttributeError"),
    (f"{HERE}.plain", "is no class"), (f"{HERE}.NoApp", "TypeError"),
    (f"{HERE}.Unready", "start-up failed: the database is away"),
])  # fmt: skip
def test_what_will_not_do_is_said_before_anything_starts(start: StartServer, path: str, said: str) -> None:
    server = start("--middleware", path, env=ENV)
    assert server.exits() == 1
    assert "fastfront: --middleware" in server.log()
    assert said in server.log()
    assert said.startswith("start-up") or path in server.log()
    assert server.mock is not None
    assert not server.mock.events()


def test_coroutine_functions_need_starlette(start: StartServer, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "starlette"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    server = start("--middleware", f"{HERE}.guard", env={"PYTHONPATH": f"{hidden.parent}:{ROOT}"})
    assert server.exits() == 1
    assert f"--middleware {HERE}.guard is a coroutine function, which needs starlette: pip install starlette" in server.log()


def test_without_middleware_there_is_no_event_loop(server: Server) -> None:
    assert "middleware" not in thread_titles(server.pid)
    assert json.loads(server.get("/version").content)
