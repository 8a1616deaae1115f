"""The model runner gives the tokens of transformers' generate, however the work is cut into steps."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.executor.plan import StepPlan
from engine.executor.uni import UniExecutor
from engine.kv_cache.hashing import PrefixHashes
from engine.kv_cache.manager import KvCacheManager
from engine.model.errors import ModelError
from engine.protocol import SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.tiny import VOCAB, reference

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
TOKENS = 24


def make_prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def generate(
    folder: Path,
    prompts: list[list[int]],
    *,
    budget: int = 512,
    seqs: int = 32,
    blocks: int = 256,
    tokens: int = TOKENS,
    max_len: int = 512,
    block_size: int = 16,
    depth: int = 2,
    caching: bool = False,
) -> tuple[list[list[int]], Scheduler]:
    """Greedy answers to all prompts at once, through scheduler and executor, with up to `depth` steps under way."""
    config = EngineConfig(str(folder), dtype="float32", num_blocks=blocks, block_size=block_size, max_model_len=max_len)
    executor = UniExecutor(config, lambda _text: None)
    executor.load()
    scheduler = Scheduler(Limits(seqs, budget, max_len), KvCacheManager(blocks, block_size))
    answers: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0, max_tokens=tokens)
        request = Request(str(index), 0, prompt, params, tokens)
        if caching:
            request.prefix = PrefixHashes(block_size)
            request.prefix.extend(prompt)
        scheduler.add(request)
        answers[str(index)] = []
    flights: deque[StepPlan] = deque()
    while scheduler.has_work:
        plan = scheduler.schedule() if len(flights) < depth else StepPlan()
        if plan.steps:
            assert plan.num_tokens <= budget
            executor.launch(plan)
            flights.append(plan)
        else:
            for outcome in scheduler.update(flights.popleft(), executor.collect().tokens):
                answers[outcome.request.request_id].append(outcome.token)
    executor.close()
    assert scheduler.cache.free_blocks == blocks
    return list(answers.values()), scheduler


@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt_neox", "olmo2"],
)
def test_equals_generate_batched(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    prompts = make_prompts(1, [1, 5, 16, 17, 40, 63])
    answers, _ = generate(folder, prompts)
    assert answers == reference(folder, prompts, TOKENS)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("budget", [8, 33])
def test_equals_generate_when_prompts_are_chunked(tiny_model: TinyModel, kind: str, budget: int) -> None:
    folder = tiny_model(kind)
    prompts = make_prompts(2, [50, 3, 31, 80])
    answers, _ = generate(folder, prompts, budget=budget, seqs=8)
    assert answers == reference(folder, prompts, TOKENS)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize(("budget", "blocks"), [(512, 256), (8, 256), (512, 9), (8, 9)])
def test_equals_generate_in_every_mode(tiny_model: TinyModel, depth: int, caching: bool, budget: int, blocks: int) -> None:
    """One step under way or two, shared prefixes or none, whole prompts or chunks, blocks in plenty or too few."""
    folder = tiny_model("llama")
    start = make_prompts(6, [40])[0]
    prompts = [start[:40], start[:40], start[:33], *make_prompts(7, [30, 5]), start[:17]]
    answers, scheduler = generate(
        folder, prompts, budget=budget, blocks=blocks, max_len=128, seqs=3, depth=depth, caching=caching, tokens=30
    )
    assert answers == reference(folder, prompts, 30)
    assert (scheduler.num_preemptions > 0) == (blocks == 9)
    assert (scheduler.take_prefix_stats().hits > 0) == caching


@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_equals_generate_for_any_block_size(tiny_model: TinyModel, block_size: int) -> None:
    folder = tiny_model("llama")
    prompts = make_prompts(3, [9, 30, 2])
    answers, _ = generate(folder, prompts, block_size=block_size, blocks=512 // block_size)
    assert answers == reference(folder, prompts, TOKENS)


def test_equals_generate_under_preemption(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    prompts = make_prompts(4, [30, 25, 20, 28, 17])
    answers, scheduler = generate(folder, prompts, blocks=8, max_len=128)
    assert scheduler.num_preemptions > 0
    assert answers == reference(folder, prompts, TOKENS)


def test_one_sequence_at_a_time_gives_the_same(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama")
    prompts = make_prompts(5, [4, 44])
    alone = [generate(folder, [prompt])[0][0] for prompt in prompts]
    together, _ = generate(folder, prompts)
    assert alone == together


def load(folder: Path, **options: object) -> None:
    executor = UniExecutor(EngineConfig(str(folder), **options), lambda _text: None)  # type: ignore[arg-type]
    try:
        executor.load()
    finally:
        executor.close()


def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path, tiny_model: TinyModel) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load(tmp_path)
    (tmp_path / "config.json").write_bytes((tiny_model("llama") / "config.json").read_bytes())
    with pytest.raises(ModelError, match=r"no \.safetensors file"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(ModelError, match="cannot load the weights"):
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


def test_a_model_without_the_attention_interface_is_refused(tmp_path: Path) -> None:
    from tests.engine.tiny import save_tiny  # noqa: PLC0415 - only here

    folder = save_tiny("mamba", tmp_path)
    with pytest.raises(ModelError, match="cannot be served"):
        load(folder)
