"""Conversion of GGUF files: what is understood becomes exact, what is not is refused by name."""

import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from engine.convert.gguf import main
from engine.convert.metadata import UnsupportedGGUF, generation_config, model_config
from engine.convert.tensors import hugging_face_name, unpermute
from engine.convert.tokenizer import tokenizer_config, tokenizer_json

TOKENS = ["<|end|>", "<|start|>", "a", "b", "Ġ", "ab", "1", "<tool>"]

FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 128,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 16,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": float(np.float32(1e-5)),
    "llama.rope.freq_base": 100000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1, 4],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}


def test_config_has_the_shapes_and_the_special_ids() -> None:
    config = model_config(FIELDS, tied=True)
    expected = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "vocab_size": 8,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 0,
    }
    assert {key: config[key] for key in expected} == expected
    assert "pad_token_id" not in config
    assert generation_config(FIELDS)["eos_token_id"] == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"general.architecture": "gemma3"}, "architecture 'gemma3'"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama.embedding_length": None}, "'llama.embedding_length' is missing"),
    ],
)
def test_unknown_models_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    fields = {key: value for key, value in {**FIELDS, **change}.items() if value is not None}
    with pytest.raises(UnsupportedGGUF, match=named):
        model_config(fields, tied=True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer model 'llama'"),
        ({"tokenizer.ggml.pre": "qwen2"}, "pre-tokenizer 'qwen2'"),
    ],
)
def test_unknown_tokenizers_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedGGUF, match=named):
        tokenizer_json({**FIELDS, **change})


def test_tokenizer_that_adds_a_first_token_is_refused() -> None:
    with pytest.raises(UnsupportedGGUF, match="add_bos_token"):
        tokenizer_config({**FIELDS, "tokenizer.ggml.add_bos_token": True})


def test_tokenizer_merges_and_splits_off_digits_and_added_tokens() -> None:
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(FIELDS)))
    assert tokenizer.encode("<|start|>ab 11<tool>ba").ids == [1, 5, 4, 6, 6, 7, 3, 2]
    assert tokenizer.decode([1, 5, 4, 6, 7, 0]) == "ab 1<tool>"
    assert tokenizer.decode([1, 5, 0], skip_special_tokens=False) == "<|start|>ab<|end|>"


def test_tokenizer_config_names_special_tokens_and_template() -> None:
    config = tokenizer_config(FIELDS)
    assert (config["bos_token"], config["eos_token"]) == ("<|start|>", "<|end|>")
    assert config["chat_template"] == "{{ messages }}"
    assert config["model_max_length"] == 128
    assert "pad_token" not in config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.12.attn_output.weight", "model.layers.12.self_attn.o_proj.weight"),
        ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ],
)
def test_tensor_names(name: str, expected: str) -> None:
    assert hugging_face_name(name) == expected


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate_exps.weight"])
def test_unknown_tensors_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedGGUF, match=name):
        hugging_face_name(name)


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's own rearrangement of q and k, which `unpermute` has to undo."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 4), (2, 4), (3, 64)])
def test_unpermute_undoes_the_rearrangement_of_q_and_k(heads: int, head_dim: int) -> None:
    weight = np.arange(heads * head_dim * 5, dtype=np.float32).reshape(heads * head_dim, 5)
    assert not np.array_equal(permute(weight, heads), weight)
    assert np.array_equal(unpermute(permute(weight, heads), heads), weight)


def write_gguf(path: Path, extra_tensor: str | None = None) -> dict[str, np.ndarray]:
    """A tiny llama file made by the reference writer; returns the weights as Hugging Face wants them."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types(FIELDS["tokenizer.ggml.token_type"])
    writer.add_token_merges(FIELDS["tokenizer.ggml.merges"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    embedding, query, key, down = weights(8, 8), weights(8, 8), weights(4, 8), weights(8, 32)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("blk.0.attn_q.weight", permute(query, 2).astype(np.float16))
    writer.add_tensor("blk.0.attn_k.weight", permute(key, 1))
    quantized = gguf.quants.quantize(down, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.ffn_down.weight", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    if extra_tensor is not None:
        writer.add_tensor(extra_tensor, weights(4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "model.embed_tokens.weight": embedding,
        "model.layers.0.self_attn.q_proj.weight": query.astype(np.float16).astype(np.float32),
        "model.layers.0.self_attn.k_proj.weight": key,
        "model.layers.0.mlp.down_proj.weight": gguf.quants.dequantize(quantized, gguf.GGMLQuantizationType.Q8_0),
    }


def test_whole_file_becomes_a_folder(tmp_path: Path) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "out"
    assert main([str(tmp_path / "tiny.gguf"), str(out)]) == 0
    found = load_file(out / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert np.array_equal(found[name], weight), name
    assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] is True
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in out.iterdir()} == names


def test_file_that_is_not_understood_leaves_nothing_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(tmp_path / "tiny.gguf", extra_tensor="rope_freqs.weight")
    out = tmp_path / "out"
    assert main([str(tmp_path / "tiny.gguf"), str(out)]) == 1
    assert "tensor 'rope_freqs.weight'" in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_files_that_are_no_whole_gguf_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "tiny.gguf"
    write_gguf(whole)
    data = whole.read_bytes()
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"PK\3\4 something else", data[:3], data[:30], data[: len(data) // 2], data[:-40]):
        broken.write_bytes(content)
        assert main([str(broken), str(tmp_path / "out")]) == 1
        assert "broken.gguf: cannot be converted: it is" in capsys.readouterr().err
        assert list((tmp_path / "out").iterdir()) == []
    assert main([str(tmp_path / "nowhere.gguf"), str(tmp_path / "out")]) == 1
    assert "nowhere.gguf: No such file or directory" in capsys.readouterr().err


def test_a_file_is_converted_into_the_cache_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTFRONT_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "tiny.gguf"
    write_gguf(source)
    folders = []
    for _ in range(2):
        assert main([str(source), "--cached"]) == 0
        shown = capsys.readouterr()
        folders.append(Path(shown.out.splitlines()[-1]))
        assert ("converting: 100 %" in shown.err) == (len(folders) == 1)
    assert folders[0] == folders[1]
    assert (folders[0] / "model.safetensors").is_file()
    os.utime(source, ns=(1, 1))
    assert main([str(source), "--cached"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[-1]) != folders[0]
    write_gguf(source, extra_tensor="rope_freqs.weight")
    assert main([str(source), "--cached"]) == 1
    assert {path.name for path in (tmp_path / "cache" / "gguf").iterdir() if path.name.startswith(".")} == set()
