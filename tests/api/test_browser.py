"""What browsers and proxies need: CORS, request ids, keep-alive comments, no trailing slash."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.api.conftest import serve
from tests.support.http1 import post
from tests.support.mock import scripted
from tests.support.server import COMPLETIONS, Server

ORIGIN = "https://app.example"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for one origin, with a key, request ids and comments on silent streams."""
    yield from serve(
        tmp_path_factory, "browser", "--api-key", "k", "--allowed-origins", f'["{ORIGIN}"]', "--enable-request-id-headers",
        "--sse-keep-alive-interval", "0.2",
    )  # fmt: skip


def url(server: Server, path: str = COMPLETIONS) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def ask(server: Server, method: str = "POST", path: str = COMPLETIONS, **headers: str) -> httpx.Response:
    body = {"prompt": "hello", "max_tokens": 2} if method == "POST" else None
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return httpx.request(method, url(server, path), json=body, headers=named, timeout=LIMIT_S)


def test_c57_preflight_is_answered_before_the_key_is_asked_for(browser: Server) -> None:
    answer = ask(
        browser,
        "OPTIONS",
        origin=ORIGIN,
        access_control_request_method="POST",
        access_control_request_headers="authorization, x-a",
    )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "authorization, x-a"


def test_c57_errors_can_be_read_by_the_page(browser: Server) -> None:
    answer = ask(browser, origin=ORIGIN, authorization="Bearer wrong")
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_c57_plain_options_runs_no_handler(browser: Server) -> None:
    assert ask(browser, "OPTIONS", origin=ORIGIN).status_code == 405


@pytest.mark.parametrize("stream", [False, True])
def test_generations_carry_the_headers(browser: Server, stream: bool) -> None:
    answer = httpx.post(
        url(browser),
        json={"prompt": "hello", "max_tokens": 2, "stream": stream},
        headers={"origin": ORIGIN, "authorization": "Bearer k", "x-request-id": "mine"},
        timeout=LIMIT_S,
    )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"
    assert answer.headers["x-request-id"] == "mine"


def test_a_foreign_origin_gets_nothing(browser: Server) -> None:
    answer = ask(browser, origin="https://other.example", authorization="Bearer k")
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    preflight = ask(browser, "OPTIONS", origin="https://other.example", access_control_request_method="POST")
    assert preflight.status_code == 400
    assert "access-control-allow-origin" not in preflight.headers


def test_every_answer_has_an_id(browser: Server) -> None:
    ids = {ask(browser, "GET", "/health").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_c61_comments_keep_a_silent_stream_alive(browser: Server) -> None:
    """Comments stand between events, before and after the first token; they are no events."""
    assert browser.mock is not None
    script = scripted({"gate": "first", "tokens": [504]}, {"gate": "second", "tokens": [504], "finish": "stop"})
    comment, body = b": keep-alive\n\n", b""
    with browser.connect() as connection:
        asked = {"prompt": "hello", "max_tokens": 9, "stream": True, **script}
        connection.send(post(COMPLETIONS, asked, authorization="Bearer k"))
        connection.response_head()
        for gate in ("first", "second"):
            before = len(body)
            while comment not in body[before:] or (gate == "second" and b"data: " not in body):
                body += connection.piece()
            browser.mock.open(gate)
        body += connection.response_body()
    blocks = body.decode().split("\n\n")
    assert blocks[-1] == ""
    comments = [block for block in blocks[:-1] if block.startswith(":")]
    events = [block for block in blocks[:-1] if not block.startswith(":")]
    assert set(comments) == {": keep-alive"}
    assert all(block.startswith("data: ") and "\n" not in block for block in events)
    assert len(events) == 3
    assert events[-1] == "data: [DONE]"
    assert blocks[0] == ": keep-alive"
    assert [block.startswith(":") for block in blocks].index(True, blocks.index(events[0])), "one between the tokens"


def test_a_trailing_slash_is_redirected(server: Server) -> None:
    answer = httpx.get(url(server, "/v1/models/"), follow_redirects=True, timeout=LIMIT_S)
    assert answer.status_code == 200
    assert answer.history[0].status_code == 307
