"""The official clients of the Messages and Responses APIs, over an engine that sends the prompt back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.support.mock import MockEngine
from tests.support.paths import ROOT
from tests.support.server import Server

TEXT = "alpha beta gamma"
CALL = '<tool_call>\n{"name": "find", "arguments": {"what": "tea"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}
TEMPLATE = str(ROOT / "tests/golden/echo.jinja")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("apis")
    mock = MockEngine(folder, "--tokens", "echo")
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with Server(folder, "--chat-template", TEMPLATE, "--served-model-name", "m", *flags, mock=mock) as server:
        yield server.wait_ready()


@pytest.fixture
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_message(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": TEXT}])
    (block,) = message.content
    assert isinstance(block, anthropic.types.TextBlock)
    assert (block.text, message.stop_reason, message.role) == (TEXT, "end_turn", "assistant")
    counted = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": TEXT}])
    assert counted.input_tokens == message.usage.input_tokens == 3


def test_a_streamed_message(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="m", max_tokens=2, messages=[{"role": "user", "content": TEXT}]) as stream:
        assert "".join(stream.text_stream) == "alpha beta"
        message = stream.get_final_message()
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 2)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_in_a_message(claude: anthropic.Anthropic, stream: bool) -> None:
    tools: list[Any] = [{"name": "find", "description": "finds", "input_schema": SCHEMA}]
    ask: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": CALL}], "tools": tools}
    if stream:
        with claude.messages.stream(**ask) as events:
            message: Any = events.get_final_message()
    else:
        message = claude.messages.create(**ask)
    (block,) = message.content
    assert (block.type, block.name, block.input, message.stop_reason) == ("tool_use", "find", {"what": "tea"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": block.id, "content": TEXT}
    said = {"role": "assistant", "content": message.content}
    turns: list[Any] = [*ask["messages"], said, {"role": "user", "content": [result]}]
    answer = claude.messages.create(model="m", max_tokens=9, messages=turns, tools=tools)
    assert isinstance(answer.content[0], anthropic.types.TextBlock)
    assert answer.content[0].text == TEXT


def test_errors_of_messages(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(model="other", max_tokens=9, messages=[{"role": "user", "content": TEXT}])
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model="m", max_tokens=0, messages=[{"role": "user", "content": TEXT}])


def test_a_response(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input=TEXT)
    assert (response.output_text, response.status) == (TEXT, "completed")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 4)
    short = client.responses.create(model="m", input=[{"role": "user", "content": TEXT}], max_output_tokens=2)
    assert short.incomplete_details is not None
    assert (short.output_text, short.incomplete_details.reason) == ("alpha beta", "max_output_tokens")


def test_a_streamed_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input=TEXT) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert "".join(deltas) == response.output_text == TEXT


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_in_a_response(client: openai.OpenAI, stream: bool) -> None:
    tools: list[Any] = [{"type": "function", "name": "find", "parameters": SCHEMA, "strict": False}]
    if stream:
        with client.responses.stream(model="m", input=CALL, tools=tools) as events:
            response: Any = [*events] and events.get_final_response()
    else:
        response = client.responses.create(model="m", input=CALL, tools=tools)
    (call,) = response.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "find", {"what": "tea"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": TEXT}
    turns: list[Any] = [{"role": "user", "content": CALL}, call.model_dump(exclude={"parsed_arguments"}), result]
    assert client.responses.create(model="m", input=turns, tools=tools).output_text == TEXT


def test_errors_of_responses(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="resp_1"):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.NotFoundError, match="resp_1"):
        client.responses.create(model="m", input=TEXT, previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.responses.create(model="m", input=TEXT, temperature=9)
