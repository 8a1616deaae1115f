"""Load balancers may ask for the engines' load with an answer."""

from __future__ import annotations

import json

import pytest

from fastfront.server.orca import Load, load_header
from tests.support.mock import scripted
from tests.support.server import CHAT, COMPLETIONS, HELLO, Server
from tests.support.tokens import Pieces

HEADER = "endpoint-load-metrics"


@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "hello"})])
def test_answers_tell_the_load_in_the_form_asked_for(server: Server, pieces: Pieces, path: str, body: dict[str, object]) -> None:
    asked = body | scripted(pieces.byte_level("a"), then="stop")
    forms = ("text", "JSON", "xml")
    headers = {form: server.post(path, asked, **{"endpoint-load-metrics-format": form}).headers for form in forms}
    assert headers["text"][HEADER].startswith("TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=")
    kind, _, told = headers["JSON"][HEADER].partition(" ")
    assert kind == "JSON"
    assert set(json.loads(told)["named_metrics"]) == {"num_requests_waiting", "kv_cache_usage_perc"}
    assert headers["JSON"]["content-type"] == "application/json"
    assert HEADER not in headers["xml"]


def test_streams_errors_and_those_who_do_not_ask_get_none(server: Server, pieces: Pieces) -> None:
    ask = {"endpoint-load-metrics-format": "text"}
    script = {"messages": HELLO, **scripted(pieces.byte_level("a"), then="stop")}
    assert HEADER not in server.post(CHAT, script).headers
    assert HEADER not in server.post(CHAT, script | {"stream": True}, **ask).headers
    assert HEADER not in server.post(CHAT, script | {"temperature": -1}, **ask).headers
    assert HEADER not in server.post(CHAT, {"messages": HELLO, **scripted({"finish": "error"})}, **ask).headers


def test_the_forms() -> None:
    load = Load(3.0, 0.25)
    assert load_header("text", load) == (
        HEADER, "TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25"
    )  # fmt: skip
    assert load_header(" Json", load) == (
        HEADER, 'JSON {"named_metrics": {"num_requests_waiting": 3.0, "kv_cache_usage_perc": 0.25}}'
    )  # fmt: skip
    assert load_header("protobuf", load) is None
