from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ParserOptions
from fastfront.errors import SetupError
from fastfront.openai.serving import build_serving
from fastfront.render.model_info import ModelInfo, load_model_info, overridden
from tests.unit.support import config_of, make_folder, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024, "max_seq_len": 2048}, 1024),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.0}}, 8192),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 40960, "rope_scaling":
          {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 40960),
        ({"max_position_embeddings": 4096, "rope_scaling":
          {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": "x"}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": float("inf")}}, 4096),
        ({"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}, 8192),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({}, 0),
    ],
)  # fmt: skip
def test_longest_sequence(tmp_path: Path, config: dict[str, Any], length: int) -> None:
    write(tmp_path / "config.json", **config)
    assert load_model_info(tmp_path).max_model_len == length


OVERRIDES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}, {"a": 1, "b": {"d": 2}}),
    ({"text_config": {"a": 1, "x_config": {"b": 1}}}, {"text_config": {"x_config": {"c": 2}}},
     {"text_config": {"a": 1, "x_config": {"b": 1, "c": 2}}}),
    ({"text_config": {"a": 1}}, {"text_config": None}, {"text_config": None}),
    ({}, {"text_config": {"a": 1}}, {"text_config": {"a": 1}}),
    ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 5}, {"rope_parameters": {"rope_type": "dynamic"}},
     {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 5}, "rope_theta": 5}),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 5}}, {"rope_scaling": {"rope_type": "yarn", "factor": 2}},
     {"rope_parameters": {"rope_type": "yarn", "factor": 2, "rope_theta": 5}}),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 5}}, {"rope_theta": 7},
     {"rope_parameters": {"rope_type": "default", "rope_theta": 7}, "rope_theta": 7}),
    ({"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 5}}, {"rope_scaling": None},
     {"rope_parameters": {"rope_type": "default", "rope_theta": 5}}),
    ({"rope_parameters": {"full": {"rope_theta": 5}}}, {"rope_theta": 7},
     {"rope_parameters": {"full": {"rope_theta": 5}}, "rope_theta": 7}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "overrides", "merged"), OVERRIDES)
def test_other_values_than_the_files(config: dict[str, Any], overrides: dict[str, Any], merged: dict[str, Any]) -> None:
    before = json.dumps(config)
    assert overridden(config, overrides) == merged
    assert json.dumps(config) == before


def test_the_engine_reads_overrides_alike() -> None:
    def body(path: str) -> str:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        return ast.dump(next(item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == "overridden"))

    assert body("fastfront/render/model_info.py") == body("engine/model/overrides.py")


def test_overrides_change_lengths_and_the_models_kind(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert build_serving(config_of(folder, hf_overrides={"max_position_embeddings": 99})).max_model_len == 99
    scaled = {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    assert build_serving(config_of(folder, hf_overrides=scaled, max_model_len=4096)).max_model_len == 4096
    tools = {"parsers": ParserOptions("auto")}
    with pytest.raises(SetupError, match="--tool-call-parser auto"):
        build_serving(config_of(folder, **tools))
    assert build_serving(config_of(folder, hf_overrides={"model_type": "glm4_moe"}, **tools)).parsers.tools is not None
    with pytest.raises(SetupError, match="vocab_size"):
        build_serving(config_of(folder, hf_overrides={"vocab_size": "x"}))


def test_a_folder_without_files_says_nothing(tmp_path: Path) -> None:
    assert load_model_info(tmp_path) == ModelInfo()


def test_end_tokens_come_from_the_generation_configuration_first(tmp_path: Path) -> None:
    write(tmp_path / "config.json", eos_token_id=5, vocab_size=7, model_type="x")
    assert load_model_info(tmp_path).eos_token_ids == (5,)
    write(tmp_path / "generation_config.json", eos_token_id=[1, 2], temperature=0.5)
    info = load_model_info(tmp_path)
    assert (info.eos_token_ids, info.vocab_size, info.model_type) == ((1, 2), 7, "x")
    assert info.generation_defaults["temperature"] == 0.5


@pytest.mark.parametrize(
    ("config", "is_mixture"),
    [
        ({"num_local_experts": 8}, True),
        ({"text_config": {"n_routed_experts": 64}}, True),
        ({"moe_num_experts": 4, "num_experts": None}, True),
        ({"block_configs": [{"block_type": "mamba"}, {"n_routed_experts": 2}]}, True),
        ({"block_configs": [{"block_type": "mamba"}, 5], "num_experts": 0}, False),
        ({"num_experts_per_tok": 2}, False),
        ({}, False),
    ],
)
def test_mixtures_of_experts(tmp_path: Path, config: dict[str, Any], is_mixture: bool) -> None:
    write(tmp_path / "config.json", **config)
    assert load_model_info(tmp_path).is_mixture is is_mixture


@pytest.mark.parametrize("content", ["", "[]", "{", "5", "[" * 200_000, '{"vocab_size": "x"}', '{"vocab_size": -1}'])
def test_broken_files_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SetupError, match=r"config\.json"):
        load_model_info(tmp_path)


def test_the_flag_can_only_shorten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path)
    assert build_serving(config_of(folder)).max_model_len == 2048
    assert build_serving(config_of(folder, max_model_len=100)).max_model_len == 100
    with pytest.raises(SetupError, match="--max-model-len 4096 is more than the model's 2048"):
        build_serving(config_of(folder, max_model_len=4096))
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    assert build_serving(config_of(folder, max_model_len=4096)).max_model_len == 4096


def test_the_tokenizer_can_know_a_smaller_length(tmp_path: Path) -> None:
    assert build_serving(config_of(make_folder(tmp_path, model_max_length=512))).max_model_len == 512
    assert build_serving(config_of(make_folder(tmp_path, model_max_length=1e30))).max_model_len == 2048


def test_without_any_length_the_flag_is_asked_for(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(SetupError, match="--max-model-len"):
        build_serving(config_of(folder))
    serving = build_serving(config_of(folder, max_model_len=64))
    assert (serving.max_model_len, serving.vocab_size, serving.max_prompt_token_id) == (64, 259, 258)
