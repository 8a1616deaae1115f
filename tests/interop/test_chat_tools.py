"""The official client's helpers for tools and parsed answers in chats, over an engine that sends the prompt back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from tests.support.mock import MockEngine
from tests.support.paths import ROOT
from tests.support.server import Server

CALL = '<tool_call>\n{"name": "find", "arguments": {"what": "tea"}}\n</tool_call>'


class Find(pydantic.BaseModel):
    """What the tool takes."""

    what: str


TOOLS: list[Any] = [openai.pydantic_function_tool(Find, name="find")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("chat-tools")
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    template = str(ROOT / "tests/golden/echo.jinja")
    mock = MockEngine(folder, "--tokens", "echo")
    with Server(folder, "--chat-template", template, "--served-model-name", "m", *flags, mock=mock) as server:
        server.wait_ready()
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
            yield client


def message_of(client: openai.OpenAI, text: str, stream: bool, **fields: Any) -> tuple[Any, str]:
    """The parsed message and the reason to stop."""
    ask: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    if stream:
        with client.chat.completions.stream(**ask) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.parse(**ask).choices[0]
    return choice.message, choice.finish_reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_parsed_call(client: openai.OpenAI, stream: bool) -> None:
    message, finish = message_of(client, "Wait. " + CALL + CALL, stream, tools=TOOLS)
    assert [call.function.parsed_arguments for call in message.tool_calls] == [Find(what="tea")] * 2
    assert len({call.id for call in message.tool_calls}) == 2
    assert finish == "tool_calls"
    assert message.content.strip() == "Wait."


@pytest.mark.parametrize("stream", [False, True])
def test_a_parsed_answer(client: openai.OpenAI, stream: bool) -> None:
    message, finish = message_of(client, '{"what": "tea"}', stream, response_format=Find)
    assert message.parsed == Find(what="tea")
    assert finish == "stop"


def test_the_answer_goes_on(client: openai.OpenAI) -> None:
    message, _ = message_of(client, CALL, False, tools=TOOLS)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
    turns: list[Any] = [{"role": "user", "content": CALL}, message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model="m", messages=turns, tools=TOOLS)
    assert answer.choices[0].message.content == "found"
