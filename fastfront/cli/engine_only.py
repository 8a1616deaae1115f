"""Flags of `vllm serve` about the inside of its engine and its kinds of models, by the reason why they are not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Group(NamedTuple):
    """Flags without dashes that have one reason: those that take a value, and switches."""

    why: str
    values: str
    switches: str = ""

    def flags(self) -> Mapping[str, bool]:
        """Each flag, and whether it is a switch."""
        return {**dict.fromkeys(self.values.split(), False), **dict.fromkeys(self.switches.split(), True)}


_NO_SETTING = "this project's engine has no such setting, vllm's has (--engine vllm)"
NO_LORA_SETTING = "this project's engine has no such setting for adapters, vllm's has (--engine vllm)"

# Nothing is lost without them.
TUNING = Group(
    "the engine chooses that itself",
    "safetensors-prefetch-num-threads safetensors-prefetch-block-size distributed-timeout-seconds "
    "cpu-distributed-timeout-seconds prefix-caching-hash-algo linear-backend sparse-indexer-topk-backend ir-op-priority "
    "jit-monitor-mode kernel-config attention-config dp-sync-interval mamba-backend mamba-ssu-algorithm gdn-prefill-backend "
    "kda-prefill-backend kda-decode-backend prefill-schedule-interval",
    "numa-bind enable-shm-tensor-arena long-prefill-token-threshold-adaptive enable-flashinfer-autotune jit-monitor-verbose "
    "enable-cumem-allocator enable-nccl-comm-suspend disable-chunked-mm-input disable-nccl-for-dp-synchronization "
    "enable-batch-sharded-sampling scheduler-reserve-full-isl fail-on-environ-validation",
)
REFUSED = (
    Group(
        _NO_SETTING,
        "model-class-overrides sleep-preserve-parameter-names mamba-cache-philox-rounds numa-bind-nodes numa-bind-cpus "
        "device-ids dcp-comm-backend dcp-kv-cache-interleave-size cp-kv-cache-interleave-size all2all-backend ubatch-size "
        "elastic-ep-max-dp-size dbo-decode-token-threshold dbo-prefill-token-threshold expert-placement-strategy "
        "fault-tolerance-config prefix-cache-retention-interval kv-cache-dtype-skip-layers mamba-cache-dtype "
        "mamba-ssm-cache-dtype mamba-block-size prefix-match-unit mamba-cache-mode replayssm-buffer-len offload-backend "
        "cpu-offload-params offload-group-size offload-num-in-group offload-prefetch-step offload-params "
        "max-num-scheduled-tokens max-num-active-seqs watermark watermark-config diffusion-config ec-manager-config "
        "engram-config aux-output-config weight-transfer-config",
        "enable-return-routed-experts return-sampling-mask use-fp64-gumbel enable-trace-replay sleep-mode-offload-cudagraph "
        "enable-mamba-cache-stochastic-rounding dcp-q-replicate enable-hc-sp enable-ep-weight-filter enable-dbo "
        "enable-elastic-ep enable-eplb ray-workers-use-nsight kv-sharing-fast-prefill swa-bounded-replay "
        "enable-mamba-shared-prefix-checkpoint "
        "use-replayssm enable-layerwise-nvtx-tracing enable-logging-iteration-details",
    ),
    Group("weights are used as they are", "quantization-config", "allow-deprecated-quantization"),
    Group("use --gpu-memory-utilization or --kv-cache-memory-bytes", "device-memory-utilization"),
    Group("an engine keeps its cache on its device", "kv-offloading-size kv-offloading-backend"),
    Group("this server generates text", "pooler-config", "enable-flash-late-interaction"),
    Group("only text is served", "", "enable-mm-embeds"),
    Group(
        NO_LORA_SETTING, "max-lora-cls-labels",
        "fully-sharded-loras specialize-active-lora enable-mixed-moe-lora-format enable-moe-shared-loras "
        "enable-tower-connector-lora",
    ),
)  # fmt: skip
