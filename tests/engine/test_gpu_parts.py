"""What runs on GPUs, with stand-ins for what only they have: recorded steps, the attention kernel, the memory's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench.gpu_check import Engine, differences, random_model
from engine.kv_cache.manager import KvCacheManager
from engine.model.cache import PagedCache
from engine.model.errors import ModelError
from engine.model.graphs import graph_sizes
from engine.model.loader import load
from engine.model.memory import GIB, Usage, cache_budget
from engine.model.pieces import PieceTensors
from engine.model.runner import ModelRunner, largest_step
from engine.protocol import SamplingParams
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from tests.engine.offline import make_prompts
from tests.engine.test_kernels import attention
from tests.engine.tiny import reference

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
CPU = torch.device("cpu")
BLOCK, BLOCKS, TOKENS = 4, 200, 12


def plain_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: PieceTensors, scale: float, window: int, softcap: float
) -> torch.Tensor:
    """As `triton_attention.attend`, sequence by sequence."""
    out = torch.full((query.shape[1], query.shape[0], values.shape[3]), float("nan"))
    for (first, count, start, _), table in zip(step.pieces.tolist(), step.tables, strict=True):
        assert count <= step.most
        if count:
            places = torch.arange(start + count)
            slots = table[places // keys.shape[1]].long() * keys.shape[1] + places % keys.shape[1]
            mine = [cache.view(-1, *cache.shape[2:])[slots] for cache in (keys, values)]
            part = query[:, first : first + count] * (scale / 0.3)
            out[first : first + count] = attention(part, mine[0], mine[1], start, window, softcap)
    return out


class Standin:
    """Records by remembering the work; launching it again computes it again into the same memory."""

    def __init__(self) -> None:
        self.recorded = self.launched = 0

    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        result = work().clone()
        self.recorded += 1

        def launch() -> None:
            self.launched += 1
            result.copy_(work())

        return launch, result


def answers(runner: ModelRunner, prompts: list[list[int]], budget: int) -> list[list[int]]:
    scheduler = Scheduler(Limits(8, budget, 128), KvCacheManager(BLOCKS, BLOCK))
    found: list[list[int]] = [[] for _ in prompts]
    for index, prompt in enumerate(prompts):
        # Sequences end one after the other, so that steps of all sizes come up.
        tokens = TOKENS - index
        scheduler.add(Request(str(index), 0, prompt, SamplingParams(temperature=0.0, max_tokens=tokens), tokens))
    while scheduler.has_work:
        plan = scheduler.schedule()
        for outcome in scheduler.update(plan, runner.execute(plan).tokens):
            found[int(outcome.request.request_id)].append(outcome.token)
    return found


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox"])
@pytest.mark.parametrize("budget", [256, 8])
def test_recorded_steps_and_a_kernel_give_the_tokens_of_generate(tiny_model: TinyModel, kind: str, budget: int) -> None:
    folder = tiny_model(kind)
    loaded = load(str(folder), torch.float32, CPU)
    loaded.attention.cache = PagedCache(loaded.shapes, BLOCKS, BLOCK, torch.float32, CPU)
    loaded.attention.kernel = plain_attention
    runner = ModelRunner(loaded.model, loaded.attention, CPU)
    recorder = Standin()
    runner.record([1, 2, 4], 32, recorder)
    assert recorder.recorded == 3
    prompts = make_prompts(3, [5, 17, 1, 30, 9])
    wanted = reference(folder, prompts, TOKENS)
    assert answers(runner, prompts, budget) == [row[: TOKENS - index] for index, row in enumerate(wanted)]
    # Four sequences and fewer; five are more than was recorded.
    assert recorder.launched >= 4


def test_sizes_of_recorded_steps() -> None:
    assert graph_sizes(256) == [1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256]
    assert graph_sizes(5) == [1, 2, 4, 5]
    assert graph_sizes(1) == [1]
    assert graph_sizes(1000)[-1] == 256


def test_the_largest_step_computes_what_it_says(tiny_model: TinyModel) -> None:
    loaded = load(str(tiny_model("llama")), torch.float32, CPU)
    seen: list[torch.Size] = []
    loaded.model.lm_head.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape))
    largest_step(loaded.model, CPU, 40, 7)
    assert seen == [torch.Size([1, 7, 48])]


def test_memory_for_the_cache() -> None:
    # Of 80 GiB torch holds 20 and had 30 in use at most; 2 are someone else's.
    usage = Usage(80 * GIB, 58 * GIB, 20 * GIB, 30 * GIB)
    assert cache_budget(usage, 0.9) == 72 * GIB - 2 * GIB - 30 * GIB
    assert cache_budget(usage, 0.5) == 8 * GIB
    with pytest.raises(ModelError, match=r"--gpu-memory-utilization 0\.4 leaves no memory .* 80\.0 GiB the model takes 30\.0"):
        cache_budget(usage, 0.4)


def test_the_check_for_gpus_tells_ties_from_errors() -> None:
    wanted = [[(1, {1: -0.1, 2: -2.0}), (2, {2: -0.5, 3: -0.5004})]]
    assert differences(wanted, wanted, "float32") == ([], 0, 0.0)
    near = [[(1, {1: -0.1005, 2: -2.0}), (3, {3: -0.4, 2: -0.6})]]
    wrong, ties, largest = differences(near, wanted, "float32")
    assert (wrong, ties) == ([], 1)
    assert largest == pytest.approx(0.0005)
    first = [wanted[0][:1]]
    assert "token 0: 2 in place of 1, which is no tie" in differences([[(2, {2: -0.1})]], first, "bfloat16")[0][0]
    assert "logprob -0.1100, expected -0.1000" in differences([[(1, {1: -0.11})]], first, "float32")[0][0]


def test_the_check_for_gpus_compares_engines(tmp_path: Path) -> None:
    """Its own way of running an engine, here twice on the CPU: float32 without chunks against bfloat16 with them."""
    folder = random_model(str(tmp_path))
    answers = []
    for dtype, budget in (("float32", 256), ("bfloat16", 16)):
        engine = Engine(folder, "cpu", dtype)
        answers.append(engine.answer([[5, 6, 7], list(range(40)), [9]], 6, budget))
        engine.close()
    assert [len(answer) for answer in answers[0]] == [6, 6, 6]
    wrong, _, largest = differences(answers[1], answers[0], "bfloat16")
    assert wrong == []
    assert largest > 0
