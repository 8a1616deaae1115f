"""LoRA adapters over HTTP, in front of an engine that takes only those that it was told of."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import serve
from tests.support.fixtures import StartServer
from tests.support.http1 import post
from tests.support.mock import scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

UPDATES = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
FLAGS = ("--enable-lora", "--max-loras", "2", "--max-lora-rank", "8")


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(
        tmp_path_factory, "lora", *FLAGS, "--lora-modules", "sql=/a/sql", '{"name": "poems", "path": "/a/poems"}',
        "--max-model-len", "2048", env=UPDATES,
    )  # fmt: skip


def request_of(server: Server, response: httpx.Response, since: int) -> Any:
    """What the engine was told of the adapter, for an answer that must be there."""
    assert response.status_code == 200, response.text
    assert server.mock is not None
    (add,) = server.mock.wait_adds(1, since)
    return add["fields"][6]


def test_adapters_are_loaded_before_the_server_is_ready(lora: Server) -> None:
    assert lora.mock is not None
    called = [event["args"] for event in lora.mock.of("utility") if event["method"] == "add_lora"]
    assert called[:2] == ["[['sql', 1, '/a/sql', None, False, False]]", "[['poems', 2, '/a/poems', None, False, False]]"]
    cards = lora.get("/v1/models").json()["data"]
    assert [(card["id"], card["root"], card["parent"], card["max_model_len"]) for card in cards][:3] == [
        ("smollm2", "smollm2", None, 2048), ("sql", "/a/sql", "smollm2", None), ("poems", "/a/poems", "smollm2", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "Hi"}]]}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
)
def test_every_api_answers_by_the_adapter(lora: Server, path: str, body: dict[str, Any]) -> None:
    assert lora.mock is not None
    most = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    since = lora.mock.mark()
    response = lora.post(path, {**body, most: 2, "model": "poems"})
    assert request_of(lora, response, since) == ["poems", 2, "/a/poems", None, False, False]
    assert response.json()["model"] == "poems"
    lora.mock.wait_idle()
    since = lora.mock.mark()
    response = lora.post(path, {**body, most: 2, "model": "smollm2"})
    assert request_of(lora, response, since) is None
    assert response.json()["model"] == "smollm2"
    assert lora.post(path, {**body, most: 2, "model": "prose"}).status_code == 404


def test_streams_and_several_choices(lora: Server) -> None:
    assert lora.mock is not None
    since = lora.mock.mark()
    chunks = lora.completion_stream(model="sql", max_tokens=2, n=3, temperature=1.0)
    assert {chunk["model"] for chunk in chunks if isinstance(chunk, dict)} <= {"sql"}
    assert [add["fields"][6][:2] for add in lora.mock.wait_adds(3, since)] == [["sql", 1]] * 3


def test_adapters_in_use_are_in_the_metrics(lora: Server, pieces: Pieces) -> None:
    """From what is known here of the requests, whatever the engine tells."""
    assert lora.mock is not None
    a = pieces.byte_level("a")
    slow = scripted({"tokens": [a], "delay_ms": 20}, then="loop")
    never = scripted({"tokens": [a], "delay_ms": 600_000})
    with lora.connect() as sql, lora.connect() as poems:
        nobody = {"max_lora": "2", "running_lora_adapters": "", "waiting_lora_adapters": ""}
        wait_for(lambda: in_use(lora) == nobody, "the end of what others have asked for")
        sql.send(post(COMPLETIONS, {"prompt": "Hi", "model": "sql", "stream": True, "max_tokens": 2000, **slow}))
        assert sql.response_head()[0] == 200
        since = lora.mock.mark()
        poems.send(post(COMPLETIONS, {"prompt": "Hi", "model": "poems", **never}))
        lora.mock.wait_adds(1, since)
        assert in_use(lora) == {"max_lora": "2", "running_lora_adapters": "sql", "waiting_lora_adapters": "poems"}
    wait_for(lambda: in_use(lora) == nobody, "their end")


def in_use(server: Server) -> dict[str, str]:
    """The labels of the only sample."""
    families = text_string_to_metric_families(server.get("/metrics").text)
    (sample,) = next(family for family in families if family.name == "vllm:lora_requests_info").samples
    assert abs(sample.value - time.time()) < 60
    return sample.labels


def test_tokens_are_the_models(lora: Server) -> None:
    same = [lora.post("/tokenize", {"prompt": "Hi", "model": name}).json() for name in ("smollm2", "sql")]
    assert same[0] == same[1]
    assert lora.post("/tokenize", {"prompt": "Hi", "model": "prose"}).status_code == 404
    assert lora.post("/detokenize", {"tokens": [1], "model": "sql"}).status_code == 200
    counted = {"messages": [{"role": "user", "content": "Hi"}], "model": "sql"}
    assert lora.post("/v1/messages/count_tokens", counted).status_code == 200


def test_loading_and_unloading(lora: Server) -> None:
    asked = {"lora_name": "new", "lora_path": "/a/new"}
    response = lora.post("/v1/load_lora_adapter", asked)
    assert (response.status_code, response.text) == (200, "Success: LoRA adapter 'new' added successfully.")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert lora.completion(model="new", max_tokens=1).json()["model"] == "new"
    response = lora.post("/v1/load_lora_adapter", asked)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "InvalidUserInput"
    response = lora.post("/v1/load_lora_adapter", {**asked, "load_inplace": True, "lora_path": "/a/newer"})
    assert response.status_code == 200
    assert [card["root"] for card in lora.get("/v1/models").json()["data"] if card["id"] == "new"] == ["/a/newer"]
    response = lora.post("/v1/unload_lora_adapter", {"lora_name": "new"})
    assert (response.status_code, response.text) == (200, "Success: LoRA adapter 'new' removed successfully.")
    assert lora.completion(model="new", max_tokens=1).status_code == 404
    assert lora.post("/v1/unload_lora_adapter", {"lora_name": "new"}).status_code == 404


@pytest.mark.parametrize("body", [{}, {"lora_name": "a"}, {"lora_name": 3, "lora_path": "/a"}, b"{", []])
def test_bodies_that_are_wrong(lora: Server, body: Any) -> None:
    assert lora.post("/v1/load_lora_adapter", body).status_code == 400


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [("Loading lora bad failed: No adapter found for /b", 404, "NotFoundError"), ("no such rank", 500, "InternalServerError")],
)
def test_an_engine_that_refuses(lora: Server, said: str, status: int, kind: str) -> None:
    assert lora.mock is not None
    lora.mock.use(utilities={"add_lora": {"fail": f"Call failed: {said}"}})
    error = lora.post("/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": "/b"}).json()["error"]
    lora.mock.use()
    assert (error["code"], error["type"]) == (status, kind)
    assert said in error["message"]
    assert lora.post(COMPLETIONS, {"prompt": "Hi", "model": "bad"}).status_code == 404


def test_routes_are_not_there_unless_asked_for(start: StartServer) -> None:
    server = start(*FLAGS).wait_ready()
    assert server.post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}).status_code == 404


@pytest.mark.parametrize(
    ("flags", "script", "said"),
    [
        ((*FLAGS, "--lora-modules", "sql=/a"), {"utilities": {"add_lora": {"fail": "rank 32 is too large"}}},
         "--lora-modules sql=/a: .*rank 32 is too large"),
        (FLAGS, {"ready": {"supports_lora": False}}, "--enable-lora: engine 0 serves no adapters"),
    ],
)  # fmt: skip
def test_servers_that_do_not_start(start: StartServer, flags: tuple[str, ...], script: Any, said: str) -> None:
    server = start(*flags, script=script)
    assert server.exits() == 1
    assert re.search(said, server.log())
