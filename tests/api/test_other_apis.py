"""Other APIs that end as a chat: Messages, Responses, batches, and whatever /invocations is given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.conftest import KEYS
from tests.support.http1 import post
from tests.support.mock import MockEngine, scripted
from tests.support.server import HELLO, Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for
from tests.unit.answering import events, kinds

MESSAGES, RESPONSES, BATCH = "/v1/messages", "/v1/responses", "/v1/chat/completions/batch"
ASK: dict[str, Any] = {"model": "smollm2", "max_tokens": 4, "temperature": 0, "messages": HELLO}


def test_a_message_says_what_a_chat_says(server: Server) -> None:
    said = server.chat(max_tokens=4, temperature=0).json()
    message = server.post(MESSAGES, ASK).json()
    assert message["content"] == [{"type": "text", "text": said["choices"][0]["message"]["content"]}]
    assert (message["stop_reason"], message["model"]) == ("max_tokens", said["model"])
    usage = said["usage"]
    assert message["usage"] == {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}


def test_a_streamed_message_is_the_same(server: Server) -> None:
    response = server.post(MESSAGES, {**ASK, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = events(response.content)
    text = "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta")
    assert [{"type": "text", "text": text}] == server.post(MESSAGES, ASK).json()["content"]
    assert kinds(found)[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert found[-2]["usage"]["output_tokens"] == 4


def test_stop_sequences_of_messages(server: Server, mock: MockEngine) -> None:
    ask = {**ASK, "max_tokens": 30, "system": "Be short. Now.", "stop_sequences": ["Now"]}
    message = server.post(MESSAGES, ask).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "Now")
    assert message["content"][0]["text"].endswith("Be short. ")
    found = events(server.post(MESSAGES, {**ask, "stream": True}).content)
    assert found[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "Now"}


def test_counting_tokens_equals_usage(server: Server) -> None:
    count = server.post(MESSAGES + "/count_tokens", {"model": "smollm2", "messages": HELLO}).json()
    assert count["input_tokens"] == server.post(MESSAGES, ASK).json()["usage"]["input_tokens"]


def test_errors_of_messages(server: Server) -> None:
    response = server.post(MESSAGES, {**ASK, "model": "other"})
    assert (response.status_code, response.json()["type"]) == (404, "error")
    response = server.post(MESSAGES, b"{")
    assert (response.status_code, response.json()["error"]["code"]) == (400, 400)


def test_a_response_says_what_a_chat_says(server: Server) -> None:
    said = server.chat(max_tokens=4, temperature=0).json()
    ask = {"input": "hello", "max_output_tokens": 4, "temperature": 0}
    response = server.post(RESPONSES, ask).json()
    text = said["choices"][0]["message"]["content"]
    assert response["output"][0]["content"][0]["text"] == text
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["usage"]["input_tokens"] == said["usage"]["prompt_tokens"]
    found = events(server.post(RESPONSES, {**ask, "stream": True}).content)
    assert "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta") == text
    last = found[-1]["response"]
    assert last["output"][0]["content"] == response["output"][0]["content"]
    assert last["usage"] == response["usage"]


def test_logprobs_of_a_response(server: Server) -> None:
    ask = {"input": "hello", "max_output_tokens": 2, "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    response = server.post(RESPONSES, ask).json()
    entries = response["output"][0]["content"][0]["logprobs"]
    said = server.chat(max_tokens=2, logprobs=True, top_logprobs=1).json()
    assert entries == said["choices"][0]["logprobs"]["content"]
    assert response["top_logprobs"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_characters_in_pieces(server: Server, pieces: Pieces, stream: bool) -> None:
    ids = pieces.many(" hi", " ", b"\xf0\x9f", b"\x91", b"\x8b", "!")
    body = server.post(RESPONSES, {"input": "x", "stream": stream, **scripted(*ids, then="stop")}).content
    response = events(body)[-1]["response"] if stream else json.loads(body)
    assert response["output"][0]["content"][0]["text"] == " hi 👋!"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel")])
def test_no_response_is_stored(server: Server, method: str, path: str) -> None:
    response = server.client.request(method, path)
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "Response with id 'resp_1' not found."


def test_a_failing_engine(server: Server) -> None:
    failing = scripted({"finish": "error"})
    assert server.post(RESPONSES, {"input": "x", **failing}).status_code == 500


def test_a_batch(server: Server) -> None:
    other = [{"role": "system", "content": "Short."}, *HELLO]
    answer = server.post(BATCH, {"messages": [HELLO, other], "max_tokens": 6, "temperature": 0}).json()
    alone = [server.chat(messages=messages, max_tokens=6, temperature=0).json() for messages in (HELLO, other)]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["message"] for choice in answer["choices"]] == [said["choices"][0]["message"] for said in alone]
    for key in ("prompt_tokens", "completion_tokens"):
        assert answer["usage"][key] == sum(said["usage"][key] for said in alone)


@pytest.mark.parametrize(("body", "kind"), [({"messages": HELLO}, "chat.completion"), ({"prompt": "hello"}, "text_completion")])
def test_invocations(server: Server, body: dict[str, Any], kind: str) -> None:
    assert server.post("/invocations", {**body, "max_tokens": 2}).json()["object"] == kind


@pytest.mark.parametrize("body", [{"input": "x"}, [], b"{"])
def test_invocations_of_nothing_known(server: Server, body: Any) -> None:
    response = server.post("/invocations", body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, 400)


@pytest.mark.parametrize("path", ["/v1/chat/completions/render", "/v1/completions/derender", "/inference/v1/generate"])
def test_scale_out_is_disabled(server: Server, path: str) -> None:
    response = server.post(path, {"input": "x"})
    assert (response.status_code, response.json()["error"]["type"]) == (403, "PermissionDeniedError")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/score", "/v2/rerank"])
def test_pooling_is_not_implemented(server: Server, path: str) -> None:
    response = server.post(path, {"input": "x"})
    assert (response.status_code, response.json()["error"]["type"]) == (501, "NotImplementedError")


def test_load_counts_what_runs(server: Server, mock: MockEngine) -> None:
    wait_for(lambda: server.get("/load").json() == {"server_load": 0}, "no running request")
    connection = server.connect()
    connection.send(post(RESPONSES, {"input": "x", "stream": True, **scripted(5, then="silence")}))
    wait_for(lambda: server.get("/load").json() == {"server_load": 1}, "a running request")
    connection.reset()
    mock.wait_idle()


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES, BATCH, "/invocations", "/v1/responses/x"])
def test_keys_guard_them(guarded: Server, path: str) -> None:
    method = "GET" if path.endswith("/x") else "POST"
    assert guarded.client.request(method, path).status_code == 401
    assert guarded.client.request(method, "/prefix" + path).status_code == 401


def test_the_key_header_of_anthropics_clients(guarded: Server) -> None:
    ask = {**ASK, "model": "first"}
    assert guarded.post(MESSAGES, ask, **{"x-api-key": KEYS[0]}).status_code == 200
    for wrong in ("", "x", KEYS[0] + "x"):
        assert guarded.post(MESSAGES, ask, **{"x-api-key": wrong}).status_code == 401


def test_the_document_and_its_page(server: Server, guarded: Server) -> None:
    document = server.get("/openapi.json").json()
    assert "/v1/messages" in document["paths"]
    assert server.get("/docs").headers["content-type"].startswith("text/html")
    assert guarded.get("/openapi.json").status_code == 401
