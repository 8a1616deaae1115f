"""A worker of one rank."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

from engine.config import EngineConfig
from engine.executor.plan import StepPlan, StepResult, WorkerInfo
from engine.executor.processes import Place, device_name
from engine.limits import available_memory, usable_cores
from engine.lora.errors import AdapterError
from engine.lora.sites import Site, Sites, most_bytes
from engine.lora.store import AdapterStore
from engine.model import loader
from engine.model.blocked import BlockedCache
from engine.model.cache import PagedCache, bytes_per_token
from engine.model.errors import ModelError
from engine.model.graphs import CudaRecorder, graph_sizes
from engine.model.memory import GIB, Usage, cache_budget
from engine.model.runner import ModelRunner, Sequences, largest_step
from engine.model.split import Splitter
from engine.native.library import Kernels, KernelsError, load_kernels
from engine.worker.group import TensorGroup

CPU_CACHE_BYTES = 4 * GIB
"""Default size of the KV cache on a CPU: reserved, not touched; at most a quarter of the free memory."""
PACKING_SHARE = 4
"""One part in that many of the free memory may go into weights in a faster layout."""
DEFAULT_MODEL_LEN = 2048
_ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
CPU_BATCHED_TOKENS = 512
GPU_BATCHED_TOKENS = 8192


class Worker:
    """Holds the model, or one rank's part of it.

    All calls on one thread: `load` first; the others are what an `Executor` runs.
    """

    def __init__(self, config: EngineConfig, say: Callable[[str], None], place: Place | None = None) -> None:
        """`say` reports progress; `place` is where this rank stands, None for the only one."""
        self._config = config
        self._place = place
        self._say = say
        self._device = torch.device("cpu")
        self._runner: ModelRunner | None = None
        self._loaded: loader.Loaded | None = None
        self._cache: PagedCache | BlockedCache | None = None
        self._make_cache: Callable[[], PagedCache | BlockedCache] | None = None
        self._load_weights: Callable[[], loader.Loaded] | None = None
        self._sequences = Sequences({}, {})
        self._table_width = 0
        self._adapters: AdapterStore | None = None
        self._group: TensorGroup | None = None
        self._splitter: Splitter | None = None

    def load(self) -> WorkerInfo:
        """Load the model and reserve the KV cache; ModelError says what is wrong."""
        config = self._config
        rank, ranks = (0, 1) if self._place is None else (self._place.rank, self._place.ranks)
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self._device = device = torch.device(device_name(config, rank, devices))
        if device.type == "cuda":
            # Streams, graphs and Triton's launches are the thread's current device's, not that of the tensors they work on.
            torch.cuda.set_device(device)
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        if device.type == "cpu":
            torch.set_num_threads(config.threads or max(1, usable_cores() // ranks))
        model_config = loader.read_config(config.model, config.hf_overrides)
        dtype = loader.choose_dtype(config.dtype, model_config, device)
        max_len = self._max_model_len(loader.max_positions(model_config), loader.rotates(model_config))
        self._say(f"loading {config.model} as {_name(dtype)} on {device}")
        kernels = self._kernels() if device.type == "cpu" else None
        if self._place is not None and ranks > 1:
            self._group = TensorGroup(rank, ranks, self._place.rendezvous, device)
        self._load_weights = lambda: self._read_weights(dtype, device, kernels)
        self._loaded = loaded = self._load_weights()
        model, shapes = loaded.model, loaded.shapes
        if loaded.sites is not None:
            self._adapters = AdapterStore(
                self._own(loaded.sites), dtype if loaded.kernels is None else torch.float32, device, config.max_lora_rank,
                None if loaded.lean is None else loaded.lean.outputs,
            )  # fmt: skip
        self._say(f"{type(model).__name__}: {loaded.parameters / 1e6:.1f} M parameters, {len(shapes)} layers")
        block_bytes = bytes_per_token(shapes, dtype) * config.block_size
        batched = config.max_num_batched_tokens or max(
            CPU_BATCHED_TOKENS if device.type == "cpu" else GPU_BATCHED_TOKENS, config.max_num_seqs
        )
        num_blocks: int = config.num_blocks or self._budget(loaded, device, ranks, batched) // block_bytes
        if self._group is not None:
            num_blocks = self._group.least(num_blocks)
        if num_blocks < 1:
            raise ModelError(f"--kv-cache-memory: there is no room for one KV block of {block_bytes} bytes")
        needed = -(-max_len // config.block_size)
        if num_blocks < needed:
            if config.max_model_len is not None:
                raise ModelError(
                    f"--max-model-len {max_len} needs {needed} KV blocks of {config.block_size} tokens,"
                    f" there are only {num_blocks} (--num-gpu-blocks-override, --kv-cache-memory)"
                )
            max_len = num_blocks * config.block_size
            self._say(f"max-model-len is {max_len}: that is what the KV cache holds")
        used = loaded.kernels
        self._make_cache = lambda: (
            PagedCache(shapes, num_blocks, config.block_size, dtype, device)
            if used is None
            else BlockedCache(shapes, num_blocks, config.block_size, dtype, used)
        )
        try:
            self._cache = self._make_cache()
        except (MemoryError, torch.OutOfMemoryError) as error:
            size = f"{num_blocks} blocks of {config.block_size} tokens, {num_blocks * block_bytes / GIB:.2f} GiB"
            raise ModelError(
                f"no memory for a KV cache of {size} (--gpu-memory-utilization, --kv-cache-memory): {error}"
            ) from error
        self._say(f"KV cache: {num_blocks} blocks of {config.block_size} tokens, {num_blocks * block_bytes / GIB:.2f} GiB")
        self._table_width = -(-max_len // config.block_size)
        self._assemble()
        return WorkerInfo(
            vocab_size=model.get_input_embeddings().weight.shape[0],
            max_model_len=max_len,
            max_num_batched_tokens=batched,
            num_blocks=num_blocks,
            block_size=config.block_size,
            dtype=_name(dtype),
            device=str(device),
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step."""
        assert self._runner is not None
        return self._runner.execute(plan)

    def sleep(self, level: int) -> None:
        """Let go of the KV cache and, at level 2 or when they are on a device, of the weights. No step until `wake_up`.

        What is known of requests stays: they go on with an empty cache.
        """
        assert self._runner is not None
        assert self._loaded is not None
        self._cache = self._loaded.attention.cache = None
        if self._loaded.lean is not None:
            self._loaded.lean.bind(None)
        if self._adapters is not None:
            self._adapters.move(torch.device("cpu"))
        if level > 1 or self._device.type != "cpu":
            self._sequences = self._runner.hand_over()
            self._runner = self._loaded = None
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        self._say(f"asleep at level {level}")

    def wake_up(self, parts: list[str]) -> bool:
        """Bring back "weights" (read again from the model's folder) or "kv_cache" (empty); True when all is there."""
        assert self._load_weights is not None
        assert self._make_cache is not None
        if "weights" in parts and self._loaded is None:
            self._loaded = self._load_weights()
        if "kv_cache" in parts and self._cache is None:
            self._cache = self._make_cache()
        if self._loaded is None or self._cache is None:
            return False
        self._assemble()
        self._say("awake")
        return True

    def load_adapter(self, number: int, name: str, path: str) -> None:
        """Hold an adapter, in place of what has this number. AdapterError, on all ranks if on one."""
        assert self._adapters is not None
        fault: str | None = None
        try:
            self._adapters.load(number, name, path)
        except AdapterError as error:
            fault = str(error)
        except (MemoryError, torch.OutOfMemoryError) as error:
            fault = f"no memory for adapter {name}: {error}"
        if self._group is not None and not self._group.least(int(fault is None)) and fault is None:
            fault = f"adapter {name} could not be loaded by another rank"
        if fault is not None:
            self._adapters.drop(number)
            raise AdapterError(fault)
        self._say(f"adapter {number}: {name}, {path}")

    def drop_adapter(self, number: int) -> None:
        """Let go of an adapter; without effect if it is not there."""
        assert self._adapters is not None
        self._adapters.drop(number)

    def _own(self, sites: Sites) -> Sites:
        """The sites with the parts that this rank has."""
        parts = {} if self._splitter is None else self._splitter.parts
        whole = (None, None)
        return {path: Site(site.inputs, site.outputs, *parts.get(path, whole)) for path, site in sites.items()}

    def _assemble(self) -> None:
        """Put model and cache together."""
        assert self._loaded is not None
        loaded = self._loaded
        loaded.attention.cache = self._cache
        if self._adapters is not None:
            self._adapters.move(self._device)
        if loaded.lean is not None:
            assert isinstance(self._cache, BlockedCache)
            loaded.lean.bind(self._cache)
        if self._runner is None:
            self._runner = ModelRunner(
                loaded.model, loaded.attention, self._device, self._sequences, loaded.lean, self._splitter,
                self._config.logprobs_mode, self._adapters, loaded.adapted,
            )  # fmt: skip
            self._record(self._runner, loaded)

    def _record(self, runner: ModelRunner, loaded: loader.Loaded) -> None:
        """Record decode steps on a GPU, where that is possible."""
        sizes = self._recorded_sizes(loaded)
        if not sizes:
            return
        began = time.monotonic()
        try:
            runner.record(sizes, self._table_width, CudaRecorder())
        except RuntimeError as error:
            self._say(f"decode steps cannot be recorded, slower: {error}")
            return
        self._say(f"decode steps of up to {sizes[-1]} sequences recorded in {time.monotonic() - began:.1f} s")

    def _recorded_sizes(self, loaded: loader.Loaded) -> list[int]:
        """For how many sequences decode steps are to be recorded. For none of a split model's: its sums go over other GPUs."""
        if self._device.type != "cuda" or self._config.enforce_eager or loaded.attention.kernel is None or self._splitter:
            return []
        return graph_sizes(self._config.max_num_seqs)

    def _read_weights(self, dtype: torch.dtype, device: torch.device, kernels: Kernels | None) -> loader.Loaded:
        """The model, or this rank's part of it."""
        folder, memory = self._config.model, available_memory() // PACKING_SHARE
        reading: dict[str, Any] = {
            "say": self._say,
            "memory_bytes": available_memory() // 2,
            "overrides": self._config.hf_overrides,
            "adapters": self._config.enable_lora,
        }
        if self._group is None:
            return loader.load(folder, dtype, device, memory, kernels, **reading)
        splitter = self._splitter = Splitter(self._group)
        loaded = loader.load(folder, dtype, device, memory // self._group.size, kernels, splitter.split, **reading)
        splitter.join(loaded.lean)
        return loaded

    def _kernels(self) -> Kernels | None:
        """The CPU kernels, with as many threads as torch has; None, and a line that says so, if they cannot be used."""
        if not self._config.cpu_kernels:
            return None
        try:
            kernels = load_kernels()
        except KernelsError as error:
            self._say(f"without CPU kernels, slower: {error}")
            return None
        if kernels is None:
            self._say("without CPU kernels, slower: set-up has built none for this processor (make ext)")
            return None
        threads = kernels.use_threads(torch.get_num_threads())
        self._say(f"{kernels.path.name}, {threads} threads")
        return kernels

    def _max_model_len(self, positions: int | None, rotary: bool) -> int:
        wanted = self._config.max_model_len
        if wanted is not None and positions is not None and wanted > positions:
            known = f"--max-model-len {wanted} is more than the {positions} positions the model is made for"
            if not rotary:  # positions are rows of a table: there are no others
                raise ModelError(known)
            if os.environ.get(_ALLOW_LONG) != "1":
                raise ModelError(f"{known} ({_ALLOW_LONG}=1 allows it)")
            self._say(f"{known}: answers that long may make no sense")
        return wanted or positions or DEFAULT_MODEL_LEN

    def _budget(self, loaded: loader.Loaded, device: torch.device, ranks: int, batched: int) -> int:
        """Bytes for one rank's part of the KV cache; a GPU's are what a step of `batched` tokens leaves."""
        if self._config.kv_cache_bytes is not None:
            return self._config.kv_cache_bytes // ranks
        if device.type == "cpu":
            return min(CPU_CACHE_BYTES, available_memory() // 4) // ranks
        weights = torch.cuda.memory_allocated(device)
        peak = _peak(loaded, device, batched, min(batched, self._config.max_num_seqs))
        if sizes := self._recorded_sizes(loaded):
            # Recorded steps keep their memory beside that of other steps, all of them what the largest one needs.
            peak += _peak(loaded, device, sizes[-1], sizes[-1]) - weights
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        peak += self._adapter_bytes(loaded)
        usage = Usage(total, free, torch.cuda.memory_reserved(device), peak)
        return cache_budget(usage, self._config.gpu_memory_utilization)

    def _adapter_bytes(self, loaded: loader.Loaded) -> int:
        """What a device must have room for: all adapters in memory are there."""
        config = self._config
        if loaded.sites is None:
            return 0
        each = most_bytes(self._own(loaded.sites), config.max_lora_rank, loaded.model.dtype)
        return (config.max_cpu_loras or config.max_loras) * each


def _peak(loaded: loader.Loaded, device: torch.device, tokens: int, samples: int) -> int:
    """Bytes in use on a GPU at most, weights included, while it computes so many tokens and logits of `samples` of them."""
    torch.cuda.reset_peak_memory_stats(device)
    largest_step(loaded.model, device, tokens, samples)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
