"""What runs on GPUs, with stand-ins for what only they have: recorded steps, the attention kernel, the memory's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.gpu_check import SAMPLED, STEPS, Engine, differences, random_model, sampled_alike
from engine.config import EngineConfig
from engine.executor.plan import StepResult
from engine.kv_cache.manager import KvCacheManager
from engine.model.cache import PagedCache
from engine.model.errors import ModelError
from engine.model.graphs import graph_sizes
from engine.model.loader import load
from engine.model.memory import GIB, Usage, cache_budget
from engine.model.pieces import PieceTensors
from engine.model.runner import ModelRunner, largest_step
from engine.protocol import SamplingParams
from engine.sampling.sampler import sample
from engine.sampling.state import SequenceState
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Limits, Scheduler
from engine.worker.worker import Worker
from tests.engine.offline import make_prompts
from tests.engine.test_kernels import attention
from tests.engine.test_parity import KINDS
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


class NoWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for a GPU, or copies to it from memory that is not pinned: neither can be recorded."""

    REFUSED = ("_local_scalar_dense", "item", "nonzero", "masked_select", "equal", "lift_fresh", "unique", "bincount")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        assert not name.startswith(self.REFUSED), f"{name} while a step is recorded"
        return func(*args, **(kwargs or {}))


class Careful(Standin):
    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        with NoWaiting():
            return super().record(work)


def no_attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *_more: object) -> torch.Tensor:
    return query.new_zeros(query.shape[1], query.shape[0], values.shape[3])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_recorded_waits_for_the_host(tiny_model: TinyModel, kind: str) -> None:
    loaded = load(str(tiny_model(kind)), torch.bfloat16, CPU)
    loaded.attention.cache = PagedCache(loaded.shapes, BLOCKS, BLOCK, torch.bfloat16, CPU)
    loaded.attention.kernel = no_attention
    recorder = Careful()
    ModelRunner(loaded.model, loaded.attention, CPU).record([1, 2], 32, recorder)
    assert recorder.recorded == 2


def test_waiting_for_the_host_is_noticed() -> None:
    for work in (lambda: torch.ones(1).item(), lambda: torch.ones(1).nonzero(), lambda: torch.tensor([1.0]) + 1):
        with NoWaiting(), pytest.raises(AssertionError, match="while a step is recorded"):
            work()


def test_a_worker_computes_on_the_device_of_its_thread(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of rank 1 has the second GPU: streams and launches would go to the first one otherwise."""

    class Chosen(Exception):
        pass

    def choose(device: torch.device) -> None:
        raise Chosen(device)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", choose)
    worker = Worker(EngineConfig(str(tiny_model("llama")), index=1), lambda _text: None)
    with pytest.raises(Chosen, match="cuda:1"):
        worker.load()


@pytest.mark.parametrize("eager", [True, False])
def test_recorded_steps_have_memory_of_their_own(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, eager: bool) -> None:
    loaded = load(str(tiny_model("llama")), torch.float32, CPU)
    loaded.attention.kernel = plain_attention
    steps: list[tuple[int, int]] = []
    # Weights take 3 GiB; 7 are in use with the largest step, 4 with the largest recorded one.
    used = {(20, 6): 7 * GIB, (6, 6): 4 * GIB}
    monkeypatch.setattr("engine.worker.worker.largest_step", lambda _model, _device, *step: steps.append(step))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: used[steps[-1]])
    for name, value in (
        ("memory_allocated", 3 * GIB),
        ("memory_reserved", 3 * GIB),
        ("mem_get_info", (13 * GIB, 16 * GIB)),
        ("empty_cache", None),
        ("reset_peak_memory_stats", None),
        ("synchronize", None),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *_device, value=value: value)
    worker = Worker(EngineConfig("m", max_num_seqs=6, enforce_eager=eager), lambda _text: None)
    worker._device = torch.device("cuda:0")
    budget = worker._budget(loaded, worker._device, 1, 20)
    assert budget == int(16 * GIB * 0.9) - 7 * GIB - (0 if eager else GIB)
    assert steps == ([(20, 6)] if eager else [(20, 6), (6, 6)])


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


def test_the_check_for_gpus_compares_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled_alike(CPU, vocab=512) == (0, STEPS * len(SAMPLED))

    def one_off(logits: torch.Tensor, ids: list[str], states: list[SequenceState], result: StepResult) -> None:
        sample(logits, ids, states, result)
        calls.append(1)
        if not len(calls) % 2:
            result.tokens["1"] = (result.tokens["1"] + 1) % 512

    calls: list[int] = []
    monkeypatch.setattr("bench.gpu_check.sample", one_off)
    assert sampled_alike(CPU, vocab=512) == (STEPS, STEPS * len(SAMPLED))


def test_the_check_for_gpus_asks_for_devices_ranks_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EngineConfig] = []

    class Nothing:
        def load(self) -> None:
            return None

    def make(config: EngineConfig, *_told: object) -> Nothing:
        asked.append(config)
        return Nothing()

    monkeypatch.setattr("bench.gpu_check.make_executor", make)
    names = [Engine("m", "cuda:1", "bfloat16").name, Engine("m", "cuda", "float32", True, 2, None).name]
    assert names == ["cuda:1 bfloat16", "cuda float32 eager tensor parallel 2"]
    one, two = asked
    assert (one.device, one.enforce_eager, one.tensor_parallel_size, one.kv_cache_bytes) == ("cuda:1", False, 1, 2 << 30)
    assert (two.device, two.enforce_eager, two.tensor_parallel_size, two.kv_cache_bytes) == ("cuda", True, 2, None)
