"""Engines elsewhere that have another model than their frontend are found by what they say of it."""

from __future__ import annotations

from typing import Any

import pytest

from fastfront.engine_client.agreement import Model, doubt_of_description, doubts, facts_of, require_same_model
from fastfront.engine_client.handshake import EngineInfo
from fastfront.errors import EngineError

CONFIG = {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "rope_theta": 1e5}
MODEL = Model("/models/small", facts_of(CONFIG), 8192)
LINEAR = "(gate): ReplicatedLinear(in_features=576)"


def engine(index: int = 0, **limits: Any) -> EngineInfo:
    return EngineInfo(index, limits.get("max_model_len", 8192), 100, 16, "0.32.0", limits)


def told(**facts: Any) -> EngineInfo:
    return engine(3, model_facts={"model": "/models/other", "host": "node-b", **facts})


@pytest.mark.parametrize(
    "facts",
    [{}, {"vocab_size": 49152}, dict(facts_of(CONFIG)), {"model_type": "llama", "head_dim": 64}],
)
def test_the_same_model_or_as_far_as_is_said(facts: dict[str, Any]) -> None:
    require_same_model(MODEL, told(**facts))
    require_same_model(MODEL, engine())
    require_same_model(Model("/models/bare", {}), told(vocab_size=1))


def test_another_model_is_refused_and_both_sides_are_named() -> None:
    with pytest.raises(EngineError) as found:
        require_same_model(MODEL, told(model_type="llama", vocab_size=151936, hidden_size=2048))
    assert str(found.value) == (
        "engine 3 serves another model: /models/other on node-b has vocab_size 151936, hidden_size 2048,"
        " /models/small here has vocab_size 49152, hidden_size 576"
    )


@pytest.mark.parametrize("facts", [7, ["vocab_size", 1], "llama", None])
def test_facts_that_are_none(facts: object) -> None:
    require_same_model(MODEL, engine(model_facts=facts))


def test_facts_of_a_model_of_parts_are_those_of_its_text() -> None:
    outer = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "vocab_size": 7}}
    assert facts_of(outer) == {"model_type": "gemma3", "vocab_size": 7}


def test_engines_that_differ_or_take_too_much_are_told() -> None:
    same = {"dtype": "bfloat16", "max_model_len": 8192, "vllm_version": "0.32.0"}
    assert doubts(MODEL, [engine(0, **same), engine(1, **same)]) == []
    assert doubts(MODEL, [engine(0, **same), engine(1, **{**same, "dtype": "float16", "max_model_len": 512})]) == [
        "engines 0 and 1 differ: max_model_len 8192, dtype bfloat16 against max_model_len 512, dtype float16"
    ]
    (doubt,) = doubts(MODEL, [engine(2, **{**same, "max_model_len": 40960})])
    assert doubt == "engine 2 takes sequences of 40960 tokens, /models/small here only 8192: do both have the same model?"
    assert doubts(Model("/models/small", {}, 0), [engine(2, **{**same, "max_model_len": 40960})]) == []


@pytest.mark.parametrize(
    ("description", "sizes"),
    [
        (f"VocabParallelEmbedding(num_embeddings=49216, org_vocab_size=49152, tp_size=1)\n{LINEAR}", None),
        ("VocabParallelEmbedding(org_vocab_size=262144)\nParallelLMHead(org_vocab_size=49152)", None),
        ("VocabParallelEmbedding(org_vocab_size=151936)\nParallelLMHead(org_vocab_size=151936)", "151936"),
        ("VocabParallelEmbedding(org_vocab_size=32000)\nParallelLMHead(org_vocab_size=151936)", "32000 and 151936"),
        (LINEAR, None),
        ("", None),
        (None, None),
        ({"org_vocab_size": 1}, None),
    ],
)
def test_descriptions_of_vllm(description: object, sizes: str | None) -> None:
    found = doubt_of_description(MODEL, 1, description)
    expected = f"engine 1 serves another model: its vocabulary has {sizes} tokens, that of /models/small here 49152"
    assert found == (None if sizes is None else expected)
    assert doubt_of_description(Model("/models/small", {}), 1, description) is None
