"""Configuration of one engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

LogprobsMode = Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the command line decides; None means: to be found out from the model or the machine."""

    model: str
    dtype: str = "auto"
    device: str = "auto"
    index: int = 0
    local_index: int | None = None  # among the engines of this machine; None: index
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_bytes: int | None = None
    seed: int | None = None
    threads: int | None = None
    log_stats: bool = True
    enable_prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = True
    cpu_kernels: bool = True
    reasoning_start: tuple[str, ...] = ()
    reasoning_end: tuple[str, ...] = ()
    reasoning_cut: str | None = None
    tensor_parallel_size: int = 1
    executor: Literal["auto", "uni", "mp"] = "auto"
    enforce_eager: bool = False
    gpu_memory_utilization: float = 0.9
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    logprobs_mode: LogprobsMode = "raw_logprobs"
    draft_tokens: int = 0           # looked up and verified in one step; 0: none
    lookup_least: int = 5           # shortest and longest run of tokens that is looked up
    lookup_most: int = 5
    drafts_told: Literal["none", "summary", "detailed"] = "none"
    hf_overrides: dict[str, Any] = field(default_factory=dict)
    kv_sample: float | None = None
