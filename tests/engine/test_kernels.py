"""The compiled kernels against the same arithmetic by torch: every shape of tile, both kinds of storage, any block size."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from ctypes import addressof
from pathlib import Path

import pytest
import torch

from engine.executor.plan import SequenceStep, StepPlan
from engine.model.batch import FlatBatch, flatten
from engine.model.blocked import BlockedCache
from engine.model.cache import LayerShape
from engine.model.packed import ADD, GATED_SILU, GATED_TANH, STORE, Arena, PackedWeight
from engine.native.library import FOLDER, Kernels, KernelsError, level, load_kernels

CPU = torch.device("cpu")
LEVELS = sorted(path.stem for path in FOLDER.glob("*.so"))
BEST = f"kernels-{level()}"


@pytest.fixture(scope="module", params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each library that was built and that this processor can run: the lower levels too."""
    if request.param > BEST:
        pytest.skip(f"this processor cannot run {request.param}")
    found = Kernels(FOLDER / f"{request.param}.so")
    found.use_threads(3)
    return found


def test_set_up_has_built_the_library_for_this_processor() -> None:
    found = load_kernels()
    assert found is not None
    assert found.path.stem == BEST


def test_levels(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    for flags, wanted in (
        ("fpu sse2", "x86-64"),
        ("fpu avx2 fma bmi1 bmi2 f16c movbe", "x86-64-v3"),
        ("avx2 fma bmi1 bmi2 f16c movbe avx512f avx512bw avx512cd avx512dq avx512vl", "x86-64-v4"),
        ("avx2 fma bmi1 bmi2 f16c movbe avx512f", "x86-64-v3"),
    ):
        info.write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="ascii")
        if level() != "native":
            assert level(info) == wanted


def test_a_library_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    assert load_kernels(tmp_path) is None
    (tmp_path / f"{BEST}.so").write_bytes(b"no library")
    with pytest.raises(KernelsError, match=BEST):
        load_kernels(tmp_path)


def gemm(kernels: Kernels, weight: PackedWeight, x: torch.Tensor, out: torch.Tensor, epilogue: int) -> torch.Tensor:
    kernels.gemm(weight.address, x.data_ptr(), len(x), x.stride(0), out.data_ptr(), out.stride(0), epilogue)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [*range(1, 14), 23, 24, 25, 40])
def test_products(kernels: Kernels, dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(rows)
    for outputs, inputs in ((1, 1), (16, 7), (33, 24), (70, 50), (96, 100)):
        weight, bias = torch.randn(outputs, inputs).to(dtype), torch.randn(outputs)
        x = torch.randn(rows, inputs + 3)[:, :inputs]
        wanted = x.double() @ weight.double().T
        packed, biased = PackedWeight(weight, None, Arena()), PackedWeight(weight, bias, Arena())
        margin = torch.full((rows, outputs + 5), 7.0)
        gemm(kernels, packed, x, margin[:, :outputs], STORE)
        torch.testing.assert_close(margin[:, :outputs].double(), wanted, rtol=1e-5, atol=1e-4)
        assert (margin[:, outputs:] == 7).all()
        before = torch.randn(rows, outputs)
        added = gemm(kernels, biased, x, before.clone(), ADD)
        torch.testing.assert_close(added.double(), wanted + before + bias, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [8, 16, 40])
def test_gated_products(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(width)
    weight, bias, x = torch.randn(2 * width, 30).to(dtype), torch.randn(2 * width), torch.randn(5, 30)
    packed = PackedWeight(weight, bias, Arena(), gated=True)
    gate, up = (x @ weight.float().T + bias).chunk(2, dim=-1)
    for epilogue, wanted in (
        (GATED_SILU, torch.nn.functional.silu(gate) * up),
        (GATED_TANH, torch.nn.functional.gelu(gate, approximate="tanh") * up),
    ):
        out = gemm(kernels, packed, x, torch.empty(5, width), epilogue)
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4)


def test_rms_norm(kernels: Kernels) -> None:
    for rows, size in ((1, 5), (3, 48), (40, 100)):
        x, weight, out = torch.randn(rows, size), torch.randn(size), torch.empty(rows, size)
        kernels.rms_norm(x.data_ptr(), rows, size, weight.data_ptr(), 1e-5, out.data_ptr())
        torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (size,), weight, 1e-5), rtol=1e-5, atol=1e-5)


class Sequences:
    """Growing sequences in one cache, and all their keys and values for the reference."""

    def __init__(self, kernels: Kernels, shape: LayerShape, block_size: int, dtype: torch.dtype) -> None:
        self.shape, self.block_size, self.dtype = shape, block_size, dtype
        self.cache = BlockedCache([shape], 400, block_size, dtype, kernels)
        self.free = random.Random(3).sample(range(1, 401), 400)
        self.blocks: dict[str, list[int]] = {}
        self.known: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def batch(self, counts: dict[str, int]) -> FlatBatch:
        steps = []
        for name, count in counts.items():
            start = self.known[name][0].shape[0] if name in self.known else 0
            blocks = self.blocks.setdefault(name, [])
            while len(blocks) * self.block_size < start + count:
                blocks.append(self.free.pop())
            steps.append(SequenceStep(name, [0] * count, start, blocks, False))
        return flatten(StepPlan(steps), self.block_size, CPU)

    def check(self, counts: dict[str, int], heads: int, window: int, softcap: float) -> None:
        batch, shape = self.batch(counts), self.shape
        rows = len(batch.tokens)
        query = torch.randn(1, heads, rows, shape.key_dim)
        key, value = torch.randn(1, shape.heads, rows, shape.key_dim), torch.randn(1, shape.heads, rows, shape.value_dim)
        got = self.cache.attend(0, batch, query, key, value, 0.3, window, softcap)[0]
        row = 0
        for step in batch.order:
            count, name = len(step.tokens), step.request_id
            new = [x[0, :, row : row + count].transpose(0, 1).to(self.dtype).float() for x in (key, value)]
            if name in self.known:
                new = [torch.cat((old, x)) for old, x in zip(self.known[name], new, strict=True)]
            self.known[name] = (new[0], new[1])
            wanted = attention(query[0, :, row : row + count], *new, step.start, window, softcap)
            torch.testing.assert_close(got[row : row + count], wanted, rtol=1e-4, atol=1e-4)
            row += count


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, window: int, softcap: float
) -> torch.Tensor:
    """[tokens, heads, value_dim] for query [heads, tokens, dim], keys and values [tokens so far, kv heads, dim]."""
    repeats = query.shape[0] // keys.shape[1]
    keys, values = (x.repeat_interleave(repeats, dim=1).transpose(0, 1) for x in (keys, values))
    scores = query @ keys.transpose(1, 2) * 0.3
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    place, own = torch.arange(keys.shape[1])[None], torch.arange(start, keys.shape[1])[:, None]
    hidden = (place > own) | ((place <= own - window) if window else torch.zeros_like(place > own))
    return (scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ values).transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", [1, 4, 16, 24, 150])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (5, 0.0), (40, 3.0)])
def test_attention(kernels: Kernels, dtype: torch.dtype, block_size: int, window: int, softcap: float) -> None:
    torch.manual_seed(block_size)
    for shape, heads in ((LayerShape(2, 20, 12), 6), (LayerShape(1, 16, 64), 1), (LayerShape(2, 8, 8), 32)):
        sequences = Sequences(kernels, shape, block_size, dtype)
        sequences.check({"a": 1, "b": 7, "c": 60}, heads, window, softcap)
        sequences.check({"a": 1, "b": 1, "c": 1}, heads, window, softcap)
        sequences.check({"a": 30, "b": 1, "c": 70}, heads, window, softcap)
        sequences.check({"a": 1, "c": 1}, heads, window, softcap)


def test_callers_on_several_threads_do_not_disturb_each_other(kernels: Kernels) -> None:
    torch.manual_seed(1)
    weight, x = torch.randn(256, 64), torch.randn(20, 64)
    packed = PackedWeight(weight, None, Arena())
    wanted = gemm(kernels, packed, x, torch.empty(20, 256), STORE)
    wrong: list[int] = []
    barrier = threading.Barrier(4)

    def call() -> None:
        out = torch.empty(20, 256)
        barrier.wait()
        for turn in range(300):
            out.fill_(0)
            if not torch.equal(gemm(kernels, packed, x, out, STORE), wanted):
                wrong.append(turn)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_structures_are_at_fixed_addresses() -> None:
    packed = PackedWeight(torch.randn(3, 3), None, Arena())
    assert packed.address == addressof(packed.struct)


def test_each_task_of_a_run_is_done_once_while_threads_outnumber_cores(tmp_path: Path) -> None:
    """A thread that the scheduler takes away in the middle must find nothing to do when it comes back to a later run."""
    sources = [Path(__file__).with_name("pool_probe.c"), FOLDER.parent / "pool.c"]
    probe = tmp_path / "pool_probe"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "set-up needs a C compiler, too"
    subprocess.run([compiler, "-O2", "-pthread", f"-I{FOLDER.parent}", "-o", probe, *sources], check=True)
    done = subprocess.run([probe, "4", "6"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
