"""An engine's error about one request is that request's answer, whole and framed; nobody else notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http1 import post
from tests.support.metrics import finished
from tests.support.mock import MockEngine, rule, scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import frames
from tests.support.waiting import wait_for

KINDS = pytest.mark.parametrize("kind", ["chat", "completion"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("errors")
    with Server(folder, mock=MockEngine(folder)) as server:
        yield server.wait_ready()
        assert "Traceback" not in server.log(), server.log()


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """Whatever a test does to its requests, the next one must be served."""
    yield shared
    assert shared.completion(max_tokens=1).status_code == 200
    assert shared.mock is not None
    shared.mock.wait_idle()
    shared.mock.use()


@pytest.fixture
def mock(server: Server) -> MockEngine:
    assert server.mock is not None
    return server.mock


def ask(server: Server, kind: str, *fields: Any, **more: Any) -> Any:
    return (server.chat if kind == "chat" else server.completion)(*fields, **more)


def error_of(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer["error"]
    assert list(answer) == ["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"]
    return error


@KINDS
def test_c45_an_error_after_the_first_tokens(server: Server, a: int, kind: str) -> None:
    """The tokens, one error event, one [DONE], and the end; no finish reason."""
    response = ask(server, kind, scripted(a, a, {"finish": "error"}), stream=True)
    assert response.status_code == 200
    found = frames(response.content)
    assert found[-1] == "[DONE]"
    assert found.count("[DONE]") == 1
    contents = [json.loads(frame) for frame in found[:-2]]
    assert len(contents) == (3 if kind == "chat" else 2)
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in contents)
    error = error_of(json.loads(found[-2]))
    assert (error["type"], error["code"]) == ("InternalServerError", 500)


@KINDS
@pytest.mark.parametrize("stream", [False, True])
def test_c45_an_error_before_the_first_token(server: Server, kind: str, stream: bool) -> None:
    """A real status, also for a stream: nothing has been sent."""
    response = ask(server, kind, scripted({"finish": "error"}), stream=stream)
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/json"
    assert error_of(response.json())["code"] == 500


@KINDS
def test_an_error_of_a_plain_request_after_some_tokens(server: Server, a: int, kind: str) -> None:
    response = ask(server, kind, scripted(a, a, {"finish": "error"}))
    assert response.status_code == 500
    assert error_of(response.json())["code"] == 500


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"code": "validation_error", "message": "no such grammar", "retryable": False}, 400, "BadRequestError"),
        ({"code": "engine_paused", "message": "come back", "retryable": True}, 503, "ServiceUnavailableError"),
        ({"code": "something_new", "message": "what is this", "retryable": False}, 500, "InternalServerError"),
    ],
)
def test_errors_with_a_code(server: Server, a: int, stream: bool, error: dict[str, Any], status: int, kind: str) -> None:
    """Before the first token the code decides the status and the engine's words are passed on."""
    response = server.completion(scripted({"error": error, "finish": "error"}), stream=stream)
    assert response.status_code == status, response.text
    found = error_of(response.json())
    assert (found["type"], found["code"], found["message"]) == (kind, status, error["message"])
    if stream:
        late = frames(server.completion(scripted(a, {"error": error, "finish": "error"}), stream=True).content)
        assert error_of(json.loads(late[-2]))["code"] == status


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_one_choice_ends_the_answer(server: Server, mock: MockEngine, a: int, stream: bool) -> None:
    """The other choices are aborted."""
    mock.use(
        {"when": {"child": 0}, **rule(a, {"finish": "error", "wait_steps": 3})},
        {"when": {"child": 1}, **rule({"tokens": [a], "delay_ms": 2}, then="loop")},
    )
    since = mock.mark()
    response = server.completion(n=2, max_tokens=5000, stream=stream)
    ids = [add["id"] for add in mock.wait_adds(2, since)]
    mock.wait_aborts([ids[1]], since)
    assert mock.aborted(since) == [ids[1]]
    if stream:
        assert frames(response.content)[-1] == "[DONE]"
        assert error_of(json.loads(frames(response.content)[-2]))["code"] == 500
    else:
        assert response.status_code == 500


def test_stream_with_no_choices_leaves_the_connection_free(server: Server) -> None:
    with server.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, "n": 0}))
        assert connection.response().status == 400
        connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
        assert connection.response().status == 200


def test_after_an_error_the_connection_serves_on(server: Server, a: int) -> None:
    with server.connect() as connection:
        for fields in ({"stream": True, **scripted(a, {"finish": "error"})}, {"stream": True, **scripted({"finish": "error"})}):
            connection.send(post(COMPLETIONS, {"prompt": "hello", **fields}))
            connection.response()
            connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}))
            assert connection.response().status == 200


def test_errors_are_counted(server: Server, a: int) -> None:
    before = finished(server)["error"]
    server.completion(scripted({"finish": "error"}))
    server.completion(scripted(a, {"finish": "error"}), stream=True)
    wait_for(lambda: finished(server)["error"] == before + 2, "both errors to be counted")
