"""Loading a model: what cannot be loaded or served is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.executor.uni import UniExecutor
from engine.model.errors import ModelError
from tests.engine.offline import TOKENS, generate, make_prompts
from tests.engine.tiny import reference

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]


def load(folder: Path, **options: object) -> None:
    executor = UniExecutor(EngineConfig(str(folder), **options), lambda _text: None)  # type: ignore[arg-type]
    try:
        executor.load()
    finally:
        executor.close()


def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path, tiny_model: TinyModel) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"model\.gguf: a file, not a model folder"):
        load(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load(tmp_path)
    (tmp_path / "config.json").write_bytes((tiny_model("llama") / "config.json").read_bytes())
    with pytest.raises(ModelError, match=r"no \.safetensors file"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(ModelError, match=r"model\.safetensors: no safetensors file"):
        load(tmp_path)


def test_missing_weights_are_refused_by_name(tmp_path: Path, tiny_model: TinyModel) -> None:
    (tmp_path / "config.json").write_bytes((tiny_model("llama") / "config.json").read_bytes())
    weights = load_file(tiny_model("llama") / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load(tmp_path)


def test_lengths_that_cannot_be_served_are_refused(tiny_model: TinyModel) -> None:
    with pytest.raises(ModelError, match="--max-model-len 513 is more than the 512 positions"):
        load(tiny_model("llama"), max_model_len=513)
    with pytest.raises(ModelError, match="--max-model-len 512 needs 32 KV blocks"):
        load(tiny_model("llama"), max_model_len=512, num_blocks=31)
    with pytest.raises(ModelError, match="--kv-cache-memory: there is no room for one KV block of 6144 bytes"):
        load(tiny_model("llama"), kv_cache_bytes=6143)
    with pytest.raises(ModelError, match=r"no memory for a KV cache of .* GiB \(--gpu-memory-utilization, --kv-cache-memory\)"):
        load(tiny_model("llama"), kv_cache_bytes=1 << 60)


def test_longer_than_the_model_is_made_for(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    folder, prompts = tiny_model("llama"), make_prompts(3, [505])
    assert generate(folder, prompts, max_len=600)[0] == reference(folder, prompts, TOKENS)
    with pytest.raises(ModelError, match=r"--max-model-len 513 is more than the 512 positions the model is made for$"):
        load(tiny_model("opt"), max_model_len=513)


def test_a_model_without_the_attention_interface_is_refused(tmp_path: Path) -> None:
    from tests.engine.tiny import save_tiny  # noqa: PLC0415 - only here

    folder = save_tiny("mamba", tmp_path)
    with pytest.raises(ModelError, match="cannot be served"):
        load(folder)
