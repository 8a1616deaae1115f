"""Structured outputs with the official client and a real model behind the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.server import Server

pytestmark = pytest.mark.slow
EMPTY = {"type": "number", "exclusiveMinimum": 5, "exclusiveMaximum": 5}
ASK: Any = [{"role": "user", "content": "Invent a pet. Give its name, age and kind."}]
PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "kind": {"type": "string", "enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Iterator[openai.OpenAI]:
    assert (cache_folder / "models" / "smollm2").is_dir(), "run `make setup`"
    flags = (
        "--served-model-name", "m", "--max-model-len", "512", "--structured-outputs-config.disable_any_whitespace=true",
    )  # fmt: skip
    with Server(tmp_path_factory.mktemp("structured"), *flags, model="smollm2") as server:
        server.wait_ready(timeout_s=300)
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", timeout=120) as client:
            yield client


def form(schema: object) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": schema}}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_fits_its_schema(client: openai.OpenAI, stream: bool) -> None:
    answer: Any = client.chat.completions.create(
        model="m", messages=ASK, response_format=form(PET), temperature=0.8, seed=3, max_tokens=200, stream=stream
    )
    if stream:
        choices = [chunk.choices[0] for chunk in answer if chunk.choices]
        text, finish = "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason
    else:
        text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert finish == "stop"
    pet = json.loads(text)
    assert pet.keys() == {"name", "age", "kind"}
    assert 0 <= pet["age"] <= 30
    assert pet["kind"] in ("cat", "dog")


def test_a_choice_and_an_expression(client: openai.OpenAI) -> None:
    def complete(**wanted: Any) -> str:
        body = {"structured_outputs": wanted}
        answer = client.completions.create(model="m", prompt="Is it hot?", max_tokens=20, extra_body=body, logprobs=2)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.choices[0].logprobs is not None
        return answer.choices[0].text

    assert complete(choice=["yes", "no"]) in ("yes", "no")
    assert re.fullmatch(r"\d{2}:\d{2}", complete(regex=r"\d{2}:\d{2}"))


def test_what_the_engine_cannot_compile_is_a_400_and_others_go_on(client: openai.OpenAI) -> None:
    """Nothing lies between the bounds, which only the compiler of grammars finds out."""
    stream = client.chat.completions.create(model="m", messages=ASK, max_tokens=40, stream=True)
    with pytest.raises(openai.BadRequestError, match="does not compile"):
        client.chat.completions.create(model="m", messages=ASK, response_format=form(EMPTY))
    assert [chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] in ("length", "stop")
