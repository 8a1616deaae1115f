"""Recorded answers of vLLM's server, as far as they are decided before an engine is asked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import ApiError
from fastfront.openai.chat import prepare_chat
from fastfront.openai.completions import prepare_completion
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.tokenize import detokenize_body, tokenize_body
from fastfront.streams.prepared import PreparedCall
from tests.golden.compare import HERE, body_of, read_lines
from tests.unit.support import JSON_TYPE, config_of

ROUTES: dict[str, Any] = {
    "/v1/chat/completions": prepare_chat,
    "/v1/completions": prepare_completion,
    "/tokenize": tokenize_body,
    "/detokenize": detokenize_body,
}
# What is asked for in these is not served yet; they must be refused naming the field.
PENDING = json.loads((HERE / "pending.json").read_text(encoding="utf-8"))
DECIDED = json.loads((HERE / "decided.json").read_text(encoding="utf-8"))
ANSWERS = {item["id"]: item for item in read_lines(HERE / "answers.jsonl")}
REQUESTS = [
    item
    for item in read_lines(HERE / "requests.jsonl")
    if item["server"] in ("base", "echo") and item["path"] in ROUTES and item["method"] == "POST"
]


@pytest.fixture(scope="module")
def servers(smollm2_folder: Path) -> dict[str, Serving]:
    base = build_serving(config_of(smollm2_folder, model="smollm2", served_model_name=("m",)))
    template = (HERE / "echo.jinja").read_text(encoding="utf-8")
    echo = build_serving(config_of(smollm2_folder, served_model_name=("m",), chat_template=template))
    return {"base": base, "echo": dataclasses.replace(echo, trust_request_chat_template=True)}


@pytest.mark.parametrize("request_line", REQUESTS, ids=[item["id"] for item in REQUESTS])
def test_same_outcome(servers: dict[str, Serving], request_line: dict[str, Any]) -> None:
    wanted = ANSWERS[request_line["id"]]
    headers = JSON_TYPE | request_line.get("headers", {})
    body = body_of(request_line)
    assert body is not None
    try:
        got = ROUTES[request_line["path"]](body, headers.get, servers[request_line["server"]])
    except ApiError as error:
        check_refusal(request_line, wanted, error)
        return
    assert wanted["status"] == 200
    if isinstance(got, bytes):
        assert json.loads(got) == wanted["json"]
    elif "json" in wanted:
        check_call(wanted["json"], got)


def check_refusal(request_line: dict[str, Any], wanted: dict[str, Any], error: ApiError) -> None:
    if request_line["id"] in PENDING:
        assert error.status == 400
        assert error.param in request_line["json"]
        return
    if request_line["id"] in DECIDED:
        assert error.status >= 400
        return
    assert error.status == wanted["status"], error.message
    told = wanted["json"]["error"]
    assert (told["type"], told["param"], told["code"]) == (error.kind, error.param, error.status)


def check_call(wanted: dict[str, Any], call: PreparedCall) -> None:
    assert sum(len(prompt.token_ids) for prompt in call.prompts) == wanted["usage"]["prompt_tokens"]
    assert len(call.prompts) * call.n == len(wanted["choices"])
    if "message" in wanted["choices"][0]:
        assert call.role == wanted["choices"][0]["message"]["role"]
