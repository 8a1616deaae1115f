"""Structured outputs through the engine core process: a tiny random model, then SmolLM2."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from tests.engine.conftest import Spawn
from tests.engine.letters import EOS, decode, save_tokenizer
from tests.engine.tiny import reference
from tests.engine.wire_frontend import Answer, WireFrontend
from tests.support.paths import SMOLLM2

pytestmark = pytest.mark.filterwarnings("default")
ENDS: dict[str, Any] = {"_eos_token_id": EOS, "_all_stop_token_ids": [EOS]}
FREE: dict[str, Any] = {"temperature": 0.0, "max_tokens": 30}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "size", "kind"],
}


def bound(wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"temperature": 1.0, "max_tokens": 90, **ENDS, "structured_outputs": {"_backend": "xgrammar", **wanted}, **more}


def fits(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["name", "size", "kind"] and 0 <= value["size"] <= 99 and value["kind"] in ("cat", "dog")


KINDS: list[tuple[dict[str, Any], Callable[[str], object]]] = [  # the last one is llguidance's
    ({"json": SCHEMA, "disable_any_whitespace": True}, fits),
    ({"regex": r"[a-c]{3}-\d{2}"}, re.compile(r"[a-c]{3}-\d{2}").fullmatch),
    ({"choice": ["red", "green"]}, ["red", "green"].__contains__),
    ({"grammar": 'root ::= "(" [x-z] ")"'}, re.compile(r"\([x-z]\)").fullmatch),
    ({"json": {"type": "integer", "minimum": 10, "maximum": 900, "multipleOf": 7}, "_backend": "guidance"},
     lambda text: int(text) in range(14, 900, 7)),
]


def text_of(answer: Answer) -> str:
    assert answer.finish == 0
    assert answer.tokens[-1] == EOS
    return decode(answer.tokens)


@pytest.fixture(scope="module")
def folder(tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("structured") / "model"
    shutil.copytree(tiny_model("llama"), path)
    save_tokenizer(path)
    return path


def test_random_tokens_obey_in_a_crowd_of_free_requests(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    spawn("engine", folder, "--max-model-len", 128, "--max-num-seqs", 8, "--num-gpu-blocks-override", 64, "--seed", 5)
    frontend.accept()
    prompts = [[20 + i, 5, 7] for i in range(4)]
    free = [frontend.add(f"free-{i}", prompt, FREE) for i, prompt in enumerate(prompts)]
    tied = [frontend.add(f"{k}-{i}", [30 + k, 9], bound(KINDS[k][0], seed=i)) for i in range(3) for k in range(len(KINDS))]
    bad = frontend.add("bad", [8], bound({"regex": "(a"}))
    nothing = frontend.add("nothing", [8], bound({"choice": ["a"]}, allowed_token_ids=[150]))
    least = frontend.add("least", [8], bound({"choice": ["a"]}, min_tokens=5))
    endless = {"structured_outputs": {"choice": ["a"]}, "_all_stop_token_ids": [EOS], "max_tokens": 5}
    on = frontend.add("on", [8], endless)
    frontend.finish()
    assert [answer.tokens for answer in free] == reference(folder, prompts, 30)
    for k, (_, valid) in enumerate(KINDS):
        texts = [text_of(tied[i * len(KINDS) + k]) for i in range(3)]
        assert all(valid(text) for text in texts), texts
    for answer, message in ((bad, "the regex does not compile"), (nothing, "leave no token")):
        assert (answer.finish, answer.tokens) == (3, [])
        assert (answer.outputs[0][18]["code"], answer.outputs[0][18]["retryable"]) == ("validation_error", False)
        assert message in answer.outputs[0][18]["message"]
    assert text_of(least) == "a"
    assert (decode(on.tokens), on.tokens[1:], on.finish) == ("a", [EOS] * 4, 1)
    assert frontend.stats[-1]["kv_cache_usage"] == 0.0
    # Seeds: the same text again, alone.
    again = frontend.add("again", [30, 9], bound(KINDS[0][0], seed=1))
    frontend.finish()
    assert again.tokens == tied[len(KINDS)].tokens


def test_preempted_requests_go_on_where_their_grammar_was(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    spawn("engine", folder, "--max-model-len", 96, "--num-gpu-blocks-override", 6)
    frontend.accept()
    wanted = bound({"regex": "(ab|cd|ef){20}"})
    prompts = [[10 + i] * 20 for i in range(4)]
    alone = []
    for i, prompt in enumerate(prompts):
        alone.append(frontend.add(f"alone-{i}", prompt, {**wanted, "seed": i}))
        frontend.finish()
    together = [frontend.add(f"r{i}", prompt, {**wanted, "seed": i}) for i, prompt in enumerate(prompts)]
    frontend.finish()
    events = [event["type"] for answer in together for output in answer.outputs for event in output[7] or []]
    assert 3 in events
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
    assert all(re.fullmatch("(ab|cd|ef){20}", text_of(answer)) for answer in together)


@pytest.mark.slow
def test_smollm2(frontend: WireFrontend, spawn: Spawn) -> None:
    if not (SMOLLM2 / "model.safetensors").is_file():
        pytest.skip(f"{SMOLLM2} is missing: set-up makes it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    spawn("engine", SMOLLM2, "--headless", "--max-model-len", 512)
    frontend.accept()
    messages = [{"role": "user", "content": "Describe a pet: its name, its size and its kind."}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    free = frontend.add("alone", prompt, FREE)
    frontend.finish()
    tied = [frontend.add(f"r{k}", prompt, bound(wanted, temperature=0.0)) for k, (wanted, _) in enumerate(KINDS)]
    among = frontend.add("among", prompt, FREE)
    frontend.finish(wait_s=120)
    assert among.tokens == free.tokens
    for answer, (_, valid) in zip(tied, KINDS, strict=True):
        assert answer.finish == 0
        text = tokenizer.decode(answer.tokens, skip_special_tokens=True)
        assert valid(text), text
