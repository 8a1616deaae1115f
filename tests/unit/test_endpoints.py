"""/tokenize, /detokenize, /v1/models and /version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.openai.models import models_body, version_body
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.tokenize import detokenize_body, tokenize_body
from tests.unit.support import JSON_TYPE, USER, body_of, chat, config_of, refusal


def tokenize(serving: Serving, fields: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tokenize_body(body_of(fields), JSON_TYPE.get, serving))
    return answer


def detokenize(serving: Serving, fields: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(detokenize_body(body_of(fields), JSON_TYPE.get, serving))
    return answer


def test_a_text(serving: Serving) -> None:
    answer = tokenize(serving, {"prompt": "né", "return_token_strs": True})
    assert list(answer) == ["count", "max_model_len", "tokens", "token_strs"]
    assert (answer["count"], answer["max_model_len"], answer["token_strs"]) == (3, 2048, ["n", "Ã", "©"])
    assert tokenize(serving, {"prompt": ""}) == {"count": 0, "max_model_len": 2048, "tokens": [], "token_strs": None}
    assert tokenize(serving, {"prompt": "x" * 5000})["count"] == 5000


def test_a_chat_has_the_tokens_it_would_be_answered_with(serving: Serving) -> None:
    assert tokenize(serving, {"messages": USER})["tokens"] == chat(serving, {}).prompts[0].token_ids
    shorter = tokenize(serving, {"messages": USER, "add_generation_prompt": False})
    assert shorter["tokens"] == chat(serving, {"add_generation_prompt": False}).prompts[0].token_ids


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "body.prompt"),
        ({"prompt": 5}, 400, "body.prompt"),
        ({"messages": "x"}, 400, "body.prompt"),
        ({"messages": [{"role": 1}]}, 400, "body.prompt"),
        ({"messages": USER, "mm_processor_kwargs": {"a": 1}}, 400, "mm_processor_kwargs"),
        ({"messages": []}, 400, None),
        ({"messages": USER, "chat_template": "x"}, 400, None),
        ({"messages": USER, "continue_final_message": True, "add_generation_prompt": True}, 400, None),
        ({"model": "other", "prompt": "a"}, 404, "model"),
    ],
)
def test_what_cannot_be_tokenized(serving: Serving, fields: dict[str, Any], status: int, param: str | None) -> None:
    error = refusal(tokenize, serving, fields)
    assert (error.status, error.param) == (status, param)


def test_neither_prompt_nor_messages_misses_both(serving: Serving) -> None:
    assert refusal(tokenize, serving, {"model": "tiny"}).message.splitlines()[1:] == [
        "  {'type': 'missing', 'loc': 'body.prompt', 'msg': 'Field required', 'input': '<dict of 1 items>'}",
        "  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}",
    ]


def test_ids_to_text(serving: Serving) -> None:
    ids = tokenize(serving, {"prompt": "<|im_start|>né"})["tokens"]
    assert detokenize(serving, {"tokens": ids}) == {"prompt": "<|im_start|>né"}
    assert detokenize(serving, {"tokens": []}) == {"prompt": ""}
    assert detokenize(serving, {"tokens": [99999999, *ids]}) == {"prompt": "<|im_start|>né"}
    assert refusal(detokenize, serving, {"tokens": [2**32]}).status == 400
    assert refusal(detokenize, serving, {"tokens": [2**70]}).param == "body.tokens.0"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "body.tokens"),
        ({"tokens": "x"}, "body.tokens"),
        ({"tokens": [-1]}, "body.tokens.0"),
        ({"tokens": [1], "model": "other"}, "model"),
    ],
)
def test_what_cannot_be_detokenized(serving: Serving, fields: dict[str, Any], param: str) -> None:
    assert refusal(detokenize, serving, fields).param == param


def test_every_served_name_has_a_card(tiny_folder: Path) -> None:
    serving = build_serving(config_of(tiny_folder, served_model_name=("a", "b"), max_model_len=77))
    answer = json.loads(models_body(serving))
    assert answer["object"] == "list"
    assert [card["id"] for card in answer["data"]] == ["a", "b"]
    card = answer["data"][0]
    assert list(card) == ["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"]
    assert (card["owned_by"], card["root"], card["parent"], card["max_model_len"]) == ("vllm", "tiny", None, 77)
    assert card["permission"][0]["id"].startswith("modelperm-")
    assert card["permission"][0]["allow_sampling"] is True


def test_version() -> None:
    assert json.loads(version_body()) == {"version": "0.32.0"}


def test_a_text_beside_what_is_no_chat_is_a_text(serving: Serving) -> None:
    text = json.loads(tokenize_body(b'{"prompt": "abc"}', JSON_TYPE.get, serving))
    for more in ('"messages": [{}]', '"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]'):
        both = b'{"prompt": "abc", %b}' % more.encode()
        assert json.loads(tokenize_body(both, JSON_TYPE.get, serving)) == text
    chat = b'{"prompt": "abc", "messages": [{"role": "user", "content": "x"}]}'
    assert json.loads(tokenize_body(chat, JSON_TYPE.get, serving)) != text
