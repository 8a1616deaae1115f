"""A tiny model folder and shorthands for asking the request layer."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from fastfront.cli.serve import add_arguments, parse, serve_config
from fastfront.config import ServeConfig
from fastfront.errors import ApiError
from fastfront.openai.chat import prepare_chat
from fastfront.openai.completions import prepare_completion
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BYTES_AT = len(SPECIALS)  # ids of single bytes start here
VOCAB_SIZE = 300  # of the model; the tokenizer has 259
MAX_MODEL_LEN = 2048
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
JSON_TYPE = {"content-type": "application/json"}
USER: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]

Prepare = Callable[[bytes, Callable[[str], str | None], Serving], PreparedCall]


def make_folder(folder: Path, **tokenizer_config: Any) -> Path:
    """A model of 300 ids whose tokenizer gives one token per byte and joins nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {name: i for i, name in enumerate(SPECIALS)} | {char: BYTES_AT + i for i, char in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "config.json", vocab_size=VOCAB_SIZE, max_position_embeddings=MAX_MODEL_LEN, model_type="tiny",
          eos_token_id=2)  # fmt: skip
    base = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHATML}
    write(folder / "tokenizer_config.json", **(base | tokenizer_config))
    return folder


def write(path: Path, **content: Any) -> None:
    path.write_text(json.dumps(content))


def config_from(*words: str) -> ServeConfig:
    """What the words behind `fastfront serve` mean."""
    parser = ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return serve_config(parse(words, parser), parser)


def config_of(folder: Path, **changes: Any) -> ServeConfig:
    return ServeConfig(**({"model": "tiny", "model_path": folder, "served_model_name": ("tiny",)} | changes))


def body_of(fields: dict[str, Any] | bytes) -> bytes:
    return fields if isinstance(fields, bytes) else json.dumps(fields).encode()


def prepare(function: Prepare, serving: Serving, fields: dict[str, Any] | bytes, **headers: str) -> PreparedCall:
    """Header names are given with underscores. What is made ready natively must be the same without that."""
    sent = JSON_TYPE | {name.replace("_", "-"): value for name, value in headers.items()}
    call = function(body_of(fields), sent.get, serving)
    if call.sink is None and call.steps is None:
        other = function(body_of(fields), sent.get, without_quick_ways(serving))
        named = {"created": call.created, "external_id": call.external_id}
        assert {**other.fields(), **named} == call.fields()
    return call


class NoWay:
    """Stands for native preparation that no request is usual enough for."""

    def prepare(self, fields: dict[str, Any], header: object) -> None:
        pass


def without_quick_ways(serving: Serving) -> Serving:
    """The same server, which makes every request ready the long way."""
    changed = dataclasses.replace(serving)
    object.__setattr__(changed, "quick_chats", None)
    object.__setattr__(changed, "quick_completions", NoWay())
    return changed


def chat(serving: Serving, fields: dict[str, Any] | bytes, **headers: str) -> PreparedCall:
    if isinstance(fields, dict):
        fields = {"messages": USER} | fields
    return prepare(prepare_chat, serving, fields, **headers)


def completion(serving: Serving, fields: dict[str, Any] | bytes, **headers: str) -> PreparedCall:
    if isinstance(fields, dict):
        fields = {"prompt": "abc def"} | fields
    return prepare(prepare_completion, serving, fields, **headers)


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> ApiError:
    """The error of a call that must be refused; its body must be JSON of the one shape."""
    try:
        result = call(*args, **kwargs)
    except ApiError as error:
        caught = error
    else:
        raise AssertionError(f"accepted: {result}")
    content = json.loads(caught.body().decode("utf-8"))
    assert list(content) == ["error"]
    assert list(content["error"]) == ["message", "type", "param", "code"]
    assert content["error"]["code"] == caught.status
    return caught
