"""The routes beside the generating ones, and who may use which."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from fastfront.server.apis import POOLING
from tests.api.conftest import BODY_LIMIT, KEYS
from tests.support.http1 import chunked, head, post
from tests.support.mock import MockEngine
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.tokens import Pieces

OPEN = [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping"), ("GET", "/version"), ("GET", "/metrics")]
GUARDED = [("POST", CHAT), ("POST", COMPLETIONS), ("GET", "/v1/models"), ("POST", "/tokenize"), ("POST", "/detokenize")]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == status
    return error


@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")])
def test_health_has_no_body(server: Server, method: str, path: str) -> None:
    response = server.client.request(method, path)
    assert (response.status_code, response.content) == (200, b"")


def test_version(server: Server) -> None:
    response = server.get("/version")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"version": "0.32.0"}  # of the API: clients look for vLLM's
    assert re.fullmatch(r"\d+\.\d+\.\d+", response.json()["version"])


def test_models(server: Server) -> None:
    body = server.get("/v1/models").json()
    assert list(body) == ["object", "data"]
    assert body["object"] == "list"
    (card,) = body["data"]
    assert list(card) == ["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"]
    assert (card["id"], card["object"], card["parent"], card["max_model_len"]) == ("smollm2", "model", None, 2048)
    (permission,) = card["permission"]
    assert list(permission) == [
        "id", "object", "created", "allow_create_engine", "allow_sampling", "allow_logprobs", "allow_search_indices",
        "allow_view", "allow_fine_tuning", "organization", "group", "is_blocking",
    ]  # fmt: skip
    assert re.fullmatch(r"modelperm-[0-9a-f]{16}", permission["id"])


def test_every_name_is_listed_and_the_first_is_in_answers(guarded: Server) -> None:
    key = {"authorization": f"Bearer {KEYS[0]}"}
    assert [card["id"] for card in guarded.get("/v1/models", **key).json()["data"]] == ["first", "second"]
    for name in ("first", "second"):
        body = guarded.post(COMPLETIONS, {"model": name, "prompt": "hello", "max_tokens": 1}, **key).json()
        assert body["model"] == "first"


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/models", "/nowhere"])
def test_preflights_where_no_origin_is_allowed(guarded: Server, path: str) -> None:
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    answer = httpx.request("OPTIONS", f"http://127.0.0.1:{guarded.port}{path}", headers=headers, timeout=60.0)
    assert (answer.status_code, answer.text) == (400, "Disallowed CORS origin")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["vary"].startswith("Origin, ")


def test_metrics_are_prometheus_text(server: Server) -> None:
    response = server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = [line for line in response.text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-zA-Z_:][\w:]*(\{.*\})? \S+( \d+)?", line) for line in lines), lines
    names = {re.split(r"[ {]", line)[0] for line in lines}
    assert {
        "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total", "vllm:request_success_total", "process_resident_memory_bytes",
    } <= names  # fmt: skip


# ---- tokenize, detokenize


def test_tokenize_and_back(server: Server, pieces: Pieces) -> None:
    text = "Hello wörld 👋"
    body = server.post("/tokenize", {"prompt": text}).json()
    assert list(body) == ["count", "max_model_len", "tokens", "token_strs"]
    assert body == {
        "count": len(pieces.encode(text)), "max_model_len": 2048, "tokens": pieces.encode(text), "token_strs": None,
    }  # fmt: skip
    assert server.post("/detokenize", {"tokens": body["tokens"]}).json() == {"prompt": text}


def test_tokenize_names_the_tokens(server: Server) -> None:
    body = server.post("/tokenize", {"prompt": "hello world", "return_token_strs": True}).json()
    assert body["token_strs"] == ["hello", "Ġworld"]


def test_tokenize_of_a_chat_is_what_the_engine_gets(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    server.chat(max_tokens=1)
    body = server.post("/tokenize", {"messages": HELLO}).json()
    assert body["tokens"] == mock.adds(since)[0]["prompt"]


def test_texts_are_tokenized_with_the_models_own_begin(llama: Server) -> None:
    asked: list[dict[str, Any]] = [{}, {"add_special_tokens": False}]
    begun, bare = (llama.post("/tokenize", {"prompt": "x", **more}).json()["tokens"] for more in asked)
    assert begun[1:] == bare


def test_tokenize_of_a_text_refuses_what_no_chat_could_be(server: Server) -> None:
    fields = {"prompt": "a", "continue_final_message": True, "add_generation_prompt": True}
    assert server.post("/tokenize", fields).status_code == 400


def test_tokenize_has_no_length_limit(server: Server) -> None:
    assert server.post("/tokenize", {"prompt": "word " * 5000}).json()["count"] > 2048


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}), ("/tokenize", {"prompt": 5}), ("/tokenize", {"messages": []}), ("/detokenize", {}),
        ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": "x"}),
    ],
)  # fmt: skip
def test_tokenize_refuses(server: Server, path: str, body: dict[str, Any]) -> None:
    error_of(server.post(path, body), 400)


def test_detokenize_of_ids_that_are_no_tokens(server: Server) -> None:
    """No crash whatever the number; such ids have no text."""
    for token in (49152, 2**31, 2**32, 2**40, 2**63):
        response = server.post("/detokenize", {"tokens": [28120, token]})
        assert response.status_code in (200, 400), response.text
        if response.status_code == 200:
            assert response.json() == {"prompt": "hello"}


# ---- paths and methods


@pytest.mark.parametrize("path", ["/", "/nope", "/v1", "/v1/chat", "/V1/models", "//health", "/%68ealth2"])
def test_c55_unknown_paths(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        with server.connect() as connection:
            connection.send(head(method, path, content_length="0"))
            response = connection.response()
        assert response.status == 404
        assert response.json()["error"]["code"] == 404


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/models", "/health", "/tokenize"])
def test_a_trailing_slash_is_redirected(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        response = server.client.request(method, path + "/", follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (307, path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"), ("PUT", CHAT, "POST"), ("DELETE", COMPLETIONS, "POST"), ("POST", "/health", "GET"),
        ("POST", "/v1/models", "GET"), ("GET", "/tokenize", "POST"), ("PATCH", "/ping", "GET, POST"),
        ("OPTIONS", CHAT, "POST"), ("OPTIONS", "/health", "GET"),
    ],
)  # fmt: skip
def test_c55_wrong_methods(server: Server, method: str, path: str, allowed: str) -> None:
    response = server.client.request(method, path)
    error_of(response, 405)
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/health", "/v1/models", CHAT, "/nope"])
def test_head_has_no_body(server: Server, path: str) -> None:
    """Whatever the status, the connection stays in step."""
    with server.connect() as connection:
        connection.send(head("HEAD", path) + head("GET", "/version"))
        assert connection.response("HEAD").status in (200, 404, 405)
        following = connection.response()
        assert (following.status, list(following.json())) == (200, ["version"])


def test_an_unknown_method_does_no_harm(server: Server) -> None:
    with server.connect() as connection:
        connection.send(head("BREW", "/health"))
        assert connection.response().status in (400, 405, 501)


def test_query_strings_are_ignored(server: Server) -> None:
    assert server.get("/health?a=1&b=%00").status_code == 200
    assert server.post(COMPLETIONS + "?api-version=1", {"prompt": "hello", "max_tokens": 1}).status_code == 200


# ---- keys


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Basic first-key", "first-key", "Bearer", "Bearer first-keyx", "Bearer first-key second-key", ""],
)
def test_c55_everything_that_runs_or_reveals_the_model_needs_the_key(
    guarded: Server, method: str, path: str, authorization: str | None
) -> None:
    assert guarded.mock is not None
    since = guarded.mock.mark()
    for prefix in ("", "/prefix"):
        headers = {} if authorization is None else {"authorization": authorization}
        response = guarded.client.request(method, prefix + path, headers=headers, json={"prompt": "x", "messages": HELLO})
        assert response.status_code == 401
        assert response.content == b'{"error":"Unauthorized"}'
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/json"
    assert not guarded.mock.adds(since)


def test_every_route_is_guarded_that_is_not_open(guarded: Server) -> None:
    paths = guarded.get("/openapi.json", authorization=f"Bearer {KEYS[0]}").json()["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    found |= {("GET", "/docs"), ("GET", "/openapi.json"), *(("POST", path) for path in POOLING)}
    assert {("POST", "/v1/responses"), ("POST", "/v1/messages"), ("GET", "/load")} < found
    asked = {route: guarded.client.request(route[0], route[1].replace("{response_id}", "x"), json={}) for route in found}
    assert {route for route, response in asked.items() if response.status_code != 401} == set(OPEN)


def test_the_key_can_guard_what_vllm_guards(tmp_path: Path) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    flags = ("--api-key", "key", "--api-key-scope", "vllm", "--root-path", "/prefix")
    with Server(tmp_path, *flags, mock=mock) as server:
        server.wait_ready()
        for prefix in ("", "/prefix"):
            asked = [(path, server.client.request(method, prefix + path, json={})) for method, path in (*GUARDED, *OPEN)]
            assert all((response.status_code == 401) == path.startswith("/v1") for path, response in asked)


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_c55_open_routes_need_none(guarded: Server, method: str, path: str) -> None:
    for prefix in ("", "/prefix"):
        assert guarded.client.request(method, prefix + path).status_code == 200


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_every_key_opens(guarded: Server, key: str, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {key}"}
    for prefix in ("", "/prefix"):
        assert guarded.post(prefix + COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, **headers).status_code == 200
        assert guarded.get(prefix + "/v1/models", **headers).status_code == 200


def test_a_key_that_is_not_ascii_is_just_wrong(guarded: Server) -> None:
    with guarded.connect() as connection:
        connection.send(b"GET /v1/models HTTP/1.1\r\nhost: t\r\nauthorization: Bearer \xff\xfe\r\n\r\n")
        assert connection.response().status in (400, 401)


def test_unknown_paths_and_methods_of_a_guarded_server(guarded: Server) -> None:
    error_of(guarded.get("/nope"), 404)
    error_of(guarded.get(CHAT), 405)


# ---- size


def sized(n: int) -> bytes:
    """A valid completion request of n bytes."""
    frame = json.dumps({"prompt": "hello", "max_tokens": 1, "user": ""}).encode()
    return frame.replace(b'"user": ""', b'"user": "' + b"x" * (n - len(frame)) + b'"')


def test_bodies_up_to_the_limit(guarded: Server) -> None:
    key = {"authorization": f"Bearer {KEYS[0]}"}
    for n in (1000, BODY_LIMIT):
        body = sized(n)
        assert len(body) == n
        assert guarded.post(COMPLETIONS, body, **key).status_code == 200
        with guarded.connect() as connection:
            headers = {"content_type": "application/json", "transfer_encoding": "chunked", **key}
            connection.send(head("POST", COMPLETIONS, **headers) + chunked(body, 3000))
            assert connection.response().status == 200


def test_a_body_over_the_limit_is_refused(guarded: Server) -> None:
    assert guarded.mock is not None
    since = guarded.mock.mark()
    key = {"authorization": f"Bearer {KEYS[0]}"}
    for path in (CHAT, COMPLETIONS, "/tokenize"):
        error = error_of(guarded.post(path, sized(BODY_LIMIT + 1), **key), 413)
        assert str(BODY_LIMIT) in error["message"]
    assert not guarded.mock.adds(since)


def test_an_announced_body_over_the_limit_is_refused_unread(guarded: Server) -> None:
    with guarded.connect() as connection:
        headers = {"content_type": "application/json", "content_length": str(10**12), "authorization": f"Bearer {KEYS[0]}"}
        connection.send(head("POST", COMPLETIONS, **headers))
        assert connection.response().status == 413


def test_a_chunked_body_is_refused_when_it_passes_the_limit(guarded: Server) -> None:
    with guarded.connect() as connection:
        headers = {"content_type": "application/json", "transfer_encoding": "chunked", "authorization": f"Bearer {KEYS[0]}"}
        connection.send(head("POST", COMPLETIONS, **headers))
        piece = b"%x\r\n%s\r\n" % (10_000, b"x" * 10_000)
        for _ in range(BODY_LIMIT // 10_000 + 1):
            connection.send(piece)
        assert connection.response().status == 413
    assert guarded.get("/health").status_code == 200


@pytest.mark.parametrize("length", ["-1", "abc", "1e3", "0x10", "5, 6"])
def test_lengths_that_are_no_numbers(server: Server, length: str) -> None:
    with server.connect() as connection:
        connection.send(head("POST", COMPLETIONS, content_type="application/json", content_length=length) + b"{}")
        assert connection.response().status in (400, 413)


def test_a_length_of_many_zeros(server: Server) -> None:
    """More digits than Python reads; the head comes alone, so that its length is looked at."""
    with server.connect() as connection:
        headers = {"content_type": "application/json", "content_length": "0" * 5000 + "2", "expect": "100-continue"}
        connection.send(head("POST", COMPLETIONS, **headers))
        assert connection.response_head()[0] == 100
        connection.send(b"{}")
        assert connection.response().status == 400


def test_a_body_for_a_route_that_takes_none(server: Server) -> None:
    """It is not read as the next request."""
    with server.connect() as connection:
        connection.send(post("/ping", b"GET /nope HTTP/1.1\r\n\r\n") + head("GET", "/version"))
        assert connection.response().status == 200
        assert list(connection.response().json()) == ["version"]


@pytest.mark.parametrize("coding", ["sized", "chunked"])
@pytest.mark.parametrize(("path", "status"), [(COMPLETIONS, 413), ("/nope", 404), ("/v1/models", 405), ("/tokenize", 401)])
def test_a_refused_client_that_is_still_sending_reads_its_answer(guarded: Server, path: str, status: int, coding: str) -> None:
    """Megabytes behind an answer that did not wait for them: no reset, and the connection serves on."""
    body = b"x" * 5_000_000
    key = {} if status == 401 else {"authorization": f"Bearer {KEYS[0]}"}
    with guarded.connect() as connection:
        for _ in range(3):
            if coding == "sized":
                connection.send(post(path, body, **key))
            else:
                connection.send(head("POST", path, content_type="application/json", transfer_encoding="chunked", **key))
                connection.send(chunked(body, 60_000))
            assert connection.response().status == status
        connection.send(head("GET", "/version"))
        assert connection.response().status == 200


def test_a_client_that_asks_first_is_not_asked_for_a_body_that_is_refused(guarded: Server) -> None:
    with guarded.connect() as connection:
        headers = {"content_type": "application/json", "content_length": "5000000", "expect": "100-continue"}
        connection.send(head("POST", COMPLETIONS, authorization=f"Bearer {KEYS[0]}", **headers))
        assert connection.response().status == 413
