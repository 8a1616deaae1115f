"""LangChain's client: answers, streams with usage, tools, structured output, several prompts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.support.mock import MockEngine
from tests.support.paths import ROOT
from tests.support.server import Server

TEMPLATE = str(ROOT / "tests/golden/echo.jinja")
CALL = '<tool_call>\n{"name": "find", "arguments": {"what": "tea"}}\n</tool_call>'


class find(BaseModel):
    """Finds things."""

    what: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its engine sends the last message back."""
    folder = tmp_path_factory.mktemp("langchain")
    mock = MockEngine(folder, "--tokens", "echo", "--step-ms", "0")
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with Server(folder, "--chat-template", TEMPLATE, "--served-model-name", "m", *flags, mock=mock) as server:
        yield server.wait_ready()


@pytest.fixture
def model(server: Server) -> ChatOpenAI:
    url = f"http://127.0.0.1:{server.port}/v1"
    return ChatOpenAI(model="m", base_url=url, api_key="none", max_retries=0, temperature=0, stream_usage=True)


def test_an_answer(model: ChatOpenAI) -> None:
    answer = model.invoke("alpha beta gamma")
    assert answer.content == "alpha beta gamma"
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == answer.usage_metadata["input_tokens"] + 1


def test_a_stream(model: ChatOpenAI) -> None:
    chunks = list(model.stream("alpha beta gamma"))
    assert len(chunks) > 3
    assert "".join(str(chunk.content) for chunk in chunks) == "alpha beta gamma"
    assert sum(chunk.usage_metadata is not None for chunk in chunks) == 1


def test_tools(model: ChatOpenAI) -> None:
    with_tools = model.bind_tools([find])
    assert [(call["name"], call["args"]) for call in with_tools.invoke(CALL).tool_calls] == [("find", {"what": "tea"})]
    whole = None
    for chunk in with_tools.stream(CALL):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("find", {"what": "tea"})]


def test_structured_output(model: ChatOpenAI) -> None:
    reader = model.with_structured_output(find, method="json_schema")
    assert reader.invoke('{"what": "tea"}') == find(what="tea")


def test_many_at_once(model: ChatOpenAI) -> None:
    texts = [f"number {k} of many" for k in range(32)]
    answers = asyncio.run(model.abatch(texts))
    assert [answer.content for answer in answers] == texts
