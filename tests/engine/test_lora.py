"""Adapters give what the model with them merged into its weights gives, beside others in one step."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from engine.config import EngineConfig
from engine.core.adapters import AdapterCache
from engine.executor.uni import UniExecutor
from engine.kv_cache.manager import KvCacheManager
from engine.lora.errors import AdapterError
from engine.lora.files import read_adapter
from engine.lora.sites import Site
from engine.protocol import SamplingParams
from engine.scheduler.request import Adapter, Request
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.adapters import ATTENTION, MLP, PROMPTS, TOKENS, WHOSE, answers_of, expected, merged, two_adapters
from tests.engine.conftest import Spawn
from tests.engine.offline import make_prompts, run_all
from tests.engine.test_drafts import DRAFTING, following, with_oracle
from tests.engine.tiny import reference
from tests.engine.wire_frontend import WireFrontend

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]


def executor_of(folder: Path, **fields: Any) -> UniExecutor:
    config = EngineConfig(str(folder), dtype="float32", num_blocks=256, max_model_len=512, enable_lora=True, **fields)
    executor = UniExecutor(config, lambda _text: None)
    executor.load()
    return executor


NINE = {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72}
KINDS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("llama", (*MLP, *ATTENTION), {"attention_bias": True, "mlp_bias": True, "intermediate_size": 89}),
    ("llama", ("v_proj", "up_proj"), NINE),
    ("qwen3", (*ATTENTION, *MLP), {}),
    ("gemma2", (*ATTENTION, *MLP), {"tie_word_embeddings": False}),
    ("gemma3_text", (*ATTENTION, *MLP), {"tie_word_embeddings": False}),
    ("phi3", ("qkv_proj", "gate_up_proj", "down_proj"), {}),
    ("gpt_neox", ("query_key_value", "dense_h_to_4h"), {}),
    ("gpt2", ("c_attn", "c_proj", "c_fc"), {}),
]


@pytest.mark.parametrize(("kind", "targets", "options"), KINDS, ids=str)
def test_tokens_are_those_of_the_merged_model(
    tiny_model: TinyModel, tmp_path: Path, kind: str, targets: tuple[str, ...], options: dict[str, Any]
) -> None:
    model = tiny_model(kind, **options)
    adapters = two_adapters(tmp_path, model, targets)
    wanted = expected(tmp_path, model, adapters)
    assert wanted[0] != reference(model, PROMPTS[:1], TOKENS)[0]
    for kernels in (True, False):
        executor = executor_of(model, cpu_kernels=kernels)
        assert answers_of(executor, adapters) == wanted
        assert answers_of(executor, adapters, budget=33, seqs=3, caching=True) == wanted
        executor.close()


def test_they_are_not_mixed_up_by_the_prefix_cache(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("llama")
    adapters = two_adapters(tmp_path, model, (*ATTENTION, *MLP))
    models = [model, *(merged(tmp_path / f"merged-{adapter.number}", model, Path(adapter.path)) for adapter in adapters)]
    (prompt,) = make_prompts(3, [50])
    wanted = [reference(folder, [prompt], TOKENS)[0] for folder in models]
    executor = executor_of(model)
    chosen = [None, *adapters] * 3
    # One at a time, so that each finds what those before have left.
    answers, scheduler = run_all(executor, [prompt] * 9, adapters=chosen, seqs=1, caching=True, tokens=TOKENS)
    executor.close()
    assert answers == wanted * 3
    stats = scheduler.take_prefix_stats()
    assert (stats.requests, stats.hits) == (9, 6 * 48)


def test_with_drafts(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several positions of one request are its adapter's."""
    model = tiny_model("qwen3")
    adapters = two_adapters(tmp_path, model, (*ATTENTION, *MLP))
    chosen = [adapters[whose - 1] if whose else None for whose in WHOSE]
    wanted = expected(tmp_path, model, adapters)
    with_oracle(monkeypatch, following([prompt + answer for prompt, answer in zip(PROMPTS, wanted, strict=True)]))
    for kernels in (True, False):
        executor = executor_of(model, cpu_kernels=kernels)
        answers, scheduler = run_all(
            executor, PROMPTS, adapters=chosen, tokens=TOKENS, depth=1, caching=True, drafting=DRAFTING
        )
        executor.close()
        assert answers == wanted
        assert scheduler.take_draft_stats()["num_accepted_tokens"] > 0


def test_few_at_a_time(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Requests wait for a place among the adapters of a step; memory for one brings each back when its turn comes."""
    model = tiny_model("qwen3")
    adapters = two_adapters(tmp_path, model, (*ATTENTION, *MLP))
    wanted = expected(tmp_path, model, adapters)
    executor = executor_of(model)
    for depth in (1, 2):
        assert answers_of(executor, adapters, max_loras=1, most_adapters=1, depth=depth, blocks=20, max_len=128) == wanted
    executor.close()


def test_half_precision(tiny_model: TinyModel, tmp_path: Path) -> None:
    """bfloat16 weights: the adapter's own tokens, and the model's for those without."""
    model = tiny_model("llama")
    adapters = two_adapters(tmp_path, model, (*ATTENTION, *MLP))
    for kernels in (True, False):
        config = EngineConfig(
            str(model), dtype="bfloat16", num_blocks=256, max_model_len=512, enable_lora=True, cpu_kernels=kernels
        )
        executor = UniExecutor(config, lambda _text: None)
        executor.load()
        alone = run_all(executor, PROMPTS, seqs=1, tokens=TOKENS)[0]
        answers = answers_of(executor, adapters, seqs=1)
        executor.close()
        same = [one == other for one, other in zip(alone, answers, strict=True)]
        assert same == [whose == 0 for whose in WHOSE]


def test_sleeping_keeps_them(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("phi3")
    adapters = two_adapters(tmp_path, model, ("qkv_proj", "down_proj"))
    executor = executor_of(model)
    before = answers_of(executor, adapters)
    for level, parts in ((1, ["kv_cache"]), (2, ["weights", "kv_cache"])):
        executor.call("sleep", level)
        executor.call("wake_up", parts)
        assert answers_of(executor, adapters) == before
    executor.close()


# --- what is no adapter ------------------------------------------------------------------------------------------------

SITES = {"model.layers.0.q_proj": Site(6, 4), "model.layers.0.v_proj": Site(6, 2)}


def tensors(rank: int = 2, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    q = "base_model.model.model.layers.0.q_proj"
    return {f"{q}.lora_A.weight": torch.ones(rank, 6), f"{q}.lora_B.weight": torch.ones(4, rank), **more}


def write(folder: Path, weights: dict[str, torch.Tensor] | bytes | None, **config: Any) -> str:
    values = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]} | config
    (folder / "adapter_config.json").write_text(json.dumps(values))
    if isinstance(weights, bytes):
        (folder / "adapter_model.safetensors").write_bytes(weights)
    elif weights is not None:
        safetensors.torch.save_file(weights, folder / "adapter_model.safetensors")
    return str(folder)


def test_scaling_by_patterns(tmp_path: Path) -> None:
    v = "model.layers.0.v_proj"
    more = {f"{v}.lora_A.weight": torch.ones(1, 6), f"{v}.lora_B.weight": torch.ones(2, 1)}
    folder = write(tmp_path, tensors(**more), rank_pattern={r"layers\.\d+\.v_proj": 1}, alpha_pattern={"v_proj": 3, "proj": 100})
    pairs = read_adapter("a", folder, SITES, 16)
    assert {path: float(pair.up.unique()) for path, pair in pairs.items()} == {"model.layers.0.q_proj": 2.0, v: 3.0}
    pairs = read_adapter("a", write(tmp_path, tensors(), use_rslora=True), SITES, 16)
    assert float(pairs["model.layers.0.q_proj"].up[0, 0]) == pytest.approx(4 / 2**0.5)


@pytest.mark.parametrize(
    ("config", "weights", "said"),
    [
        ({"peft_type": "IA3"}, tensors(), "peft_type 'IA3' is not supported"),
        ({"use_dora": True}, tensors(), "use_dora is not supported"),
        ({"modules_to_save": ["lm_head"]}, tensors(), "modules_to_save is not supported"),
        ({"bias": "all"}, tensors(), "bias 'all' is not supported"),
        ({"lora_bias": True}, tensors(), "lora_bias is not supported"),
        ({"init_lora_weights": "pissa"}, tensors(), "init_lora_weights 'pissa' is not supported"),
        ({"r": 0}, tensors(), "r must be a whole number from 1 on, not 0"),
        ({"r": None}, tensors(), "r must be a whole number"),
        ({"lora_alpha": "8"}, tensors(), "lora_alpha must be a number, not '8'"),
        ({"target_modules": None}, tensors(), "target_modules must be a text or texts"),
        ({"target_modules": ["k_proj"]}, tensors(), "target_modules: 'k_proj' is no layer that adapters can change"),
        ({"rank_pattern": {"q_proj": 0}}, tensors(), "rank_pattern must map layers to positive numbers"),
        ({"alpha_pattern": {"(": 1}}, tensors(), "alpha_pattern: '\\('"),
        ({"r": 32}, tensors(32), "its rank 32 is more than --max-lora-rank 16"),
        ({"rank_pattern": {"v_proj": 17}}, tensors(), "its rank 17 is more than --max-lora-rank 16"),
        ({"r": 4}, tensors(), r"lora_A of model.layers.0.q_proj is \(2, 6\), not \(4, 6\)"),
        ({}, {"x.lora_A.weight": torch.ones(2, 6)}, "x is no layer that adapters can change"),
        ({}, tensors(**{"a.lora_embedding_A": torch.ones(1)}), "a.lora_embedding_A is not supported"),
        ({}, {"model.layers.0.q_proj.lora_A.weight": torch.ones(2, 6)}, "q_proj has only one of lora_A and lora_B"),
        ({}, {}, "it holds no weights"),
        ({}, None, "adapter_model.safetensors is missing"),
        ({}, b"no tensors at all", "no safetensors file"),
        ({}, struct.pack("<Q", 200) + b"{}", "truncated"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, config: dict[str, Any], weights: Any, said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        read_adapter("a", write(tmp_path, weights, **config), SITES, 16)


def test_a_folder_without_an_adapter(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as caught:
        read_adapter("sql", str(tmp_path), SITES, 16)
    assert str(caught.value) == f"Loading lora sql failed: No adapter found for {tmp_path}"
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(AdapterError, match=r"adapter_config\.json: Expecting"):
        read_adapter("sql", str(tmp_path), SITES, 16)


# --- who runs when, without a model ---------------------------------------------------------------------------------------


class Loads:
    """Stands for an executor that only loads adapters; those named bad are none."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def call(self, method: str, *args: object) -> None:
        self.calls.append((method, args[0]))
        if "bad" in args:
            raise AdapterError("bad is none")


def cache_of(loads: Loads, most: int) -> AdapterCache:
    return AdapterCache(loads, most)  # type: ignore[arg-type]


def request(request_id: str, number: int, name: str = "") -> Request:
    adapter = Adapter(number, name or str(number), "/path") if number else None
    return Request(request_id, 0, [1, 2, 3], SamplingParams(max_tokens=2), 2, adapter=adapter)


def test_the_one_unused_for_longest_goes() -> None:
    loads = Loads()
    cache = cache_of(loads, 2)
    for number in (1, 2, 1, 3, 1, 2):
        assert cache.ready(Adapter(number, "a", "/a"), ()) is None
    assert loads.calls == [
        ("load_adapter", 1), ("load_adapter", 2), ("drop_adapter", 2), ("load_adapter", 3), ("drop_adapter", 3),
        ("load_adapter", 2),
    ]  # fmt: skip
    assert cache.ready(Adapter(4, "a", "/a"), {1}) is None
    assert cache.numbers() == [1, 4]
    assert cache.ready(Adapter(5, "a", "/a"), {1, 4}) == "all 2 adapters in memory are in use (--max-cpu-loras)"


def test_requests_wait_for_a_place_and_others_pass_them() -> None:
    loads = Loads()
    scheduler = Scheduler(Limits(8, 64, 16, max_loras=1), KvCacheManager(32, 4), cache_of(loads, 1).ready)
    for index, number in enumerate([1, 2, 0, 1, 3, 2]):
        scheduler.add(request(f"{index}-{number}", number))
    plan = scheduler.schedule()
    assert [step.request_id for step in plan.steps] == ["0-1", "2-0", "3-1"]
    assert [step.adapter for step in plan.steps] == [1, 0, 1]
    assert scheduler.held_back == 3
    for _ in range(2):
        scheduler.update(plan, {step.request_id: 7 for step in plan.steps})
        plan = scheduler.schedule()
    assert [step.request_id for step in plan.steps] == ["1-2", "5-2"]
    assert scheduler.held_back == 1
    assert loads.calls == [("load_adapter", 1), ("drop_adapter", 1), ("load_adapter", 2)]


def test_a_request_whose_adapter_cannot_be_loaded_fails_alone() -> None:
    scheduler = Scheduler(Limits(8, 64, 16), KvCacheManager(32, 4), cache_of(Loads(), 1).ready)
    scheduler.add(request("a", 1, "bad"))
    scheduler.add(request("b", 0))
    assert [step.request_id for step in scheduler.schedule().steps] == ["b"]
    assert [(failed.request_id, why) for failed, why in scheduler.failed] == [("a", "bad is none")]
    assert scheduler.get("a") is None


def test_over_the_wire(tiny_model: TinyModel, tmp_path: Path, frontend: WireFrontend, spawn: Spawn) -> None:
    """`add_lora`, requests beside each other, an adapter replaced in place, one that is none: the engine stays."""
    model = tiny_model("llama")
    one, two = two_adapters(tmp_path, model, (*ATTENTION, *MLP))
    (prompt,) = make_prompts(3, [40])
    models = [model, *(merged(tmp_path / f"merged-{adapter.number}", model, Path(adapter.path)) for adapter in (one, two))]
    plain, first, second = (reference(folder, [prompt], TOKENS)[0] for folder in models)
    options = ["--max-model-len", 128, "--num-gpu-blocks-override", 64, "--enable-lora", "--max-loras", 2, "--max-cpu-loras", 2]
    engine = spawn("engine", model, *options)
    ready = frontend.accept()
    assert (ready["supports_lora"], ready["max_loras"]) == (True, 2)
    greedy = {"temperature": 0.0, "max_tokens": TOKENS}

    def add(request_id: str, *lora: Any) -> list[int]:
        answer = frontend.add(request_id, prompt, greedy, lora_request=[*lora, None, False, False] if lora else None)
        return answer.tokens

    assert frontend.call("add_lora", ["one", 1, one.path, None, False, False])[1:] == [None, [None, True]]
    assert frontend.call("add_lora", ["one", 1, one.path])[1:] == [None, [None, False]]
    answers = [add("a", "one", 1, one.path), add("b"), add("c", "two", 2, two.path)]
    frontend.finish()
    assert answers == [first, plain, second]
    named = {name for stats in frontend.stats for name in stats["running_lora_adapters"]}
    assert named == {"one", "two"}
    assert frontend.call("list_loras")[2] == [None, [1, 2]]
    # Other weights under the same name, number and path: what is cached of the first ones is not theirs.
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (Path(one.path) / name).write_bytes((Path(two.path) / name).read_bytes())
    assert frontend.call("add_lora", ["one", 1, one.path, None, True, False])[1:] == [None, [None, True]]
    assert add("d", "one", 1, one.path) == []
    frontend.finish()
    assert frontend.answers["d"].tokens == second
    missing = f"Loading lora three failed: No adapter found for {tmp_path}"
    assert missing in frontend.call("add_lora", ["three", 3, str(tmp_path)])[1]
    assert "no adapter" in frontend.call("add_lora", ["three", 0, "/a"])[1]
    add("e", "three", 3, str(tmp_path))
    frontend.finish()
    assert missing in repr(frontend.answers["e"].outputs)
    # The other one had to go for the one that is none.
    assert [frontend.call("remove_lora", number)[2][1] for number in (2, 1, 1)] == [False, True, False]
    add("f")
    frontend.finish()
    assert frontend.answers["f"].tokens == plain
    assert engine.poll() is None
