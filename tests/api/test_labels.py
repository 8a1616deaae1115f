"""The client's request id is a label: nothing inside depends on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clients import at_once
from tests.support.http1 import post
from tests.support.mock import MockEngine, scripted
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import chunks, joined
from tests.support.tokens import Pieces

SAME = {"x-request-id": "same"}


@pytest.mark.parametrize("stream", [False, True])
def test_c58_requests_with_one_id_do_not_mix(server: Server, mock: MockEngine, pieces: Pieces, stream: bool) -> None:
    since = mock.mark()

    def ask(k: int) -> str:
        ids = pieces.encode(f"text number {k}")
        body = {"prompt": "hello", "request_id": "same", "stream": stream, "max_tokens": 50, **scripted(*ids, then="stop")}
        response = server.post(COMPLETIONS, body, **SAME)
        assert response.status_code == 200
        if stream:
            found = chunks(response.content)
            assert {chunk["id"] for chunk in found} == {"cmpl-same"}
            return joined(found)
        assert response.json()["id"] == "cmpl-same"
        return str(response.json()["choices"][0]["text"])

    assert at_once(ask, range(20)) == [f"text number {k}" for k in range(20)]
    adds = mock.adds(since)
    assert len({add["id"] for add in adds}) == 20
    assert {add["fields"][16] for add in adds} == {"cmpl-same"}


def test_c58_leaving_one_aborts_only_that(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    since = mock.mark()
    a = pieces.byte_level("a")
    scripts: list[dict[str, Any]] = [scripted({"tokens": [a], "delay_ms": 50}, then="loop"), scripted(*[a] * 100, then="stop")]
    long, short = (
        post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 2000, **script}, x_request_id="same")
        for script in scripts
    )
    leaving, staying = server.connect(), server.connect()
    with leaving, staying:
        leaving.send(long)
        leaving.response_head()
        first = mock.wait_adds(1, since)[0]["id"]
        staying.send(short)
        mock.wait_adds(2, since)
        leaving.close()
        mock.wait_aborts([first], since)
        assert joined(chunks(staying.response().body)) == "a" * 100
    assert mock.aborted(since) == [first]


@pytest.mark.parametrize("label", ["x" * 5000, "ü", "a\tb", '"\\', "0" * 16, "1_x", "cmpl-0000000000000001"])
def test_any_label_will_do(server: Server, pieces: Pieces, label: str) -> None:
    script = scripted(*pieces.many("a", "b"), then="stop")
    assert server.completion(script, request_id=label).json()["id"] == f"cmpl-{label}"
    found = server.completion_stream(script, request_id=label, n=2)
    assert joined(found, 0) == joined(found, 1) == "ab"
    assert found[0]["id"] == f"cmpl-{label}"
