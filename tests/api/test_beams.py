"""Beam search over HTTP. The mock says of every prompt: its first token (-0.25), then the next ids (-1.25, -2.25, ...)."""

from __future__ import annotations

import pytest

from tests.support.http1 import post
from tests.support.mock import MockEngine
from tests.support.server import COMPLETIONS, Server
from tests.support.waiting import wait_for

PROMPT = [1000, 2000, 3000]


def test_the_best_beams_come_first(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    response = server.completion(
        prompt=PROMPT, use_beam_search=True, n=2, max_tokens=3, logprobs=1, return_token_ids=True, ignore_eos=True
    )
    assert response.status_code == 200, response.text
    body = response.json()
    first, second = body["choices"]
    assert first["token_ids"] == [1000, 1000, 1000]
    assert sorted(second["token_ids"]) == [1000, 1000, 1001]
    assert first["logprobs"]["token_logprobs"] == [-0.25, -0.25, -0.25]
    assert sorted(second["logprobs"]["token_logprobs"]) == [-1.25, -0.25, -0.25]
    assert all(len(step) == 2 for step in first["logprobs"]["top_logprobs"])
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "length"]
    assert body["usage"] == {**body["usage"], "prompt_tokens": 3, "completion_tokens": 6}
    adds = mock.adds(since)
    assert len(adds) == 5, "one call for the prompt, then two each"
    assert all(add["params"]["max_tokens"] == 1 and add["params"]["logprobs"] == 4 for add in adds)


@pytest.mark.parametrize("stream", [False, True])
def test_every_choice_of_a_chat_ends(server: Server, stream: bool) -> None:
    if stream:
        chunks = server.chat_stream(use_beam_search=True, n=2, max_tokens=3, logprobs=True, top_logprobs=1)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert sorted(choice["index"] for choice in choices if choice["finish_reason"]) == [0, 1]
        return
    response = server.chat(use_beam_search=True, n=2, max_tokens=3, logprobs=True, top_logprobs=1)
    assert response.status_code == 200, response.text
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1]


def test_several_prompts_have_beams_of_their_own(server: Server) -> None:
    response = server.completion(
        prompt=[[1000], [2000, 5]], use_beam_search=True, n=2, max_tokens=2, return_token_ids=True, ignore_eos=True
    )
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["token_ids"] for choice in choices[::2]] == [[1000, 1000], [2000, 2000]]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 11}, "logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"logprobs": 1, "echo": True}, "echo"),
        ({"logprobs": 1, "logprob_token_ids": [5]}, "logprob_token_ids"),
        ({"stream": True}, None),
        ({"n": 0}, None),
    ],
)
def test_what_a_search_cannot_be(server: Server, fields: dict[str, object], param: str | None) -> None:
    response = server.completion(prompt=PROMPT, use_beam_search=True, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_client_that_leaves_ends_the_search(server: Server, mock: MockEngine) -> None:
    since = mock.mark()
    with server.connect() as connection:
        body = {"prompt": PROMPT, "use_beam_search": True, "n": 2, "max_tokens": 2000, "ignore_eos": True}
        connection.send(post(COMPLETIONS, body))
        mock.wait_adds(9, since)
        _, port = connection.socket.getsockname()
        connection.close()
    # Between two steps the engine is idle too: the search has ended when its line of the access log is there.
    wait_for(lambda: f'127.0.0.1:{port} - "POST {COMPLETIONS} HTTP/1.1" 499' in server.log(), "the end of the search")
    accepted, _, _ = mock.wait_ended(since)
    assert len(accepted) < 4000
