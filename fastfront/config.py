"""How a server was asked to run. Frozen: changed only by `dataclasses.replace`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastfront.cores import usable_cores

EngineKind = Literal["native", "mock", "vllm", "external"]
# One frontend for all ranks; one on each node for the node's ranks; one for each rank.
LoadBalancing = Literal["internal", "hybrid", "external"]
ContentFormat = Literal["auto", "string", "openai"]
KeyScope = Literal["all", "vllm"]


def cache_folder() -> Path:
    """Where set-up keeps what it made: $FASTFRONT_CACHE, else ~/.cache/fastfront."""
    return Path(os.environ.get("FASTFRONT_CACHE") or Path.home() / ".cache" / "fastfront")


def default_lanes() -> int:
    """One for each two cores, but two where there are two."""
    cores = usable_cores()
    return max(min(2, cores), cores // 2)


def default_request_threads() -> int:
    """Threads that validate, render and tokenize: one for each core."""
    return usable_cores()


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The server's certificate and its key, PEM files, and what is asked of clients."""

    certfile: str
    keyfile: str
    ca_certs: str | None = None
    cert_reqs: int = 0                          # as in the ssl module: a client's certificate is not asked for, checked, required
    ciphers: str | None = None                  # OpenSSL's names, for TLS 1.2
    refresh: bool = False                       # read them again when they change


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request, from the environment (names as vLLM's)."""

    max_n: int = 16384
    max_stop_strings: int = 4
    max_completion_prompts: int = 1024
    max_bad_words: int = 128


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is logged, and how. `config` is for logging.config.dictConfig and stands in for level, form, prefix and stream."""

    level: str = "info"
    form: Literal["text", "json"] = "text"
    prefix: str = ""
    stream: Literal["stdout", "stderr"] = "stderr"
    configure: bool = True                      # False: logging stays as it is
    config: dict[str, Any] | None = None
    access: bool = True                         # a line for every answered request
    access_skips: frozenset[str] = frozenset()  # but for these paths
    requests: bool = False                      # a line for every generation
    outputs: bool = False                       # a line for every answer
    deltas: bool = True                         # and for every piece of a stream
    max_prompt_chars: int | None = None         # of prompts, and of answers, in such lines
    stats_interval_s: float = 10.0              # 0: no lines of statistics
    remarks: tuple[str, ...] = ()               # said at start


@dataclass(frozen=True, slots=True)
class StructuredOptions:
    """What holds for all structured outputs; `backend` is auto or the name of a grammar compiler of the engine."""

    backend: str = "auto"
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    enable_in_reasoning: bool = False           # they hold from the first token, not after the reasoning


@dataclass(frozen=True, slots=True)
class ParserOptions:
    """Which parsers read answers, by their names or "auto" (by model); None: none. Plugins are Python files that add some."""

    tools: str | None = None                    # only where tool choice is enabled
    reasoning: str | None = None
    plugins: tuple[Path, ...] = ()
    strict_level: Literal["auto", "function", "parameter"] = "auto"
    hides_unused_tools: bool = False            # templates get no tools when none may be called
    reasoning_start: str | None = None          # what begins reasoning besides the parser's markers
    reasoning_cut: str | None = None            # what is written where a budget ends it; None: the parser's marker


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What answers show besides what was asked for."""

    prompt_details: bool = False                # usage says how many of the prompt's tokens were cached
    metrics: bool = False                       # times of a request
    tokens_as_ids: bool = False                 # logprobs show tokens as "token_id:N", unless requests say otherwise
    fingerprint_mode: Literal["full", "hash", "custom", "none"] = "full"
    fingerprint_value: str = ""                 # of the mode custom


@dataclass(frozen=True, slots=True)
class LoraModule:
    """An adapter that is there from the start."""

    name: str
    path: str
    base_model_name: str | None = None
    is_3d_lora_weight: bool = False


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """LoRA adapters; numbers that are None are the engine's."""

    enabled: bool = False
    modules: tuple[LoraModule, ...] = ()
    max_loras: int | None = None                # in one step
    max_lora_rank: int | None = None
    max_cpu_loras: int | None = None            # in memory
    runtime_updates: bool = False               # routes that load and unload


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """What engines are asked to tell for /metrics and the line of statistics, beyond what they always do."""

    kv_sample: float | None = None              # share of KV blocks that are watched; None: no metrics of their lives
    work: bool = False                          # estimates of arithmetic and memory traffic
    graphs: bool = False                        # which recorded graphs steps use


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Everything `fastfront serve` was told, resolved: folders exist, numbers are in range."""

    model: str                                  # as given: alias, folder or hub id
    model_path: Path                            # the folder it resolved to
    served_model_name: tuple[str, ...]          # at least one; the first is the name in answers

    # HTTP
    host: str = "0.0.0.0"
    port: int = 8000
    uds: str | None = None
    root_path: str = ""
    api_keys: tuple[str, ...] = ()
    api_key_scope: KeyScope = "all"
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = False
    tls: TlsOptions | None = None
    middleware: tuple[str, ...] = ()            # import paths, from the innermost
    api_documents: bool = True                  # /docs and /openapi.json
    enable_request_id_headers: bool = False
    max_body_bytes: int = 64 * 1024 * 1024
    max_connections: int = 16384
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    keep_alive_s: float = 120.0
    stream_interval: int = 1                    # tokens per event of a stream, but for its first and last
    sse_keep_alive_interval_s: float = 0.0      # 0: no comment lines
    shutdown_timeout_s: float = 0.0             # 0: running requests are aborted at once

    # threads
    request_threads: int = field(default_factory=default_request_threads)
    lanes: int = field(default_factory=default_lanes)
    streams_per_lane: int = 384

    # engines
    engine: EngineKind = "native"
    engine_python: str | None = None            # None: the engine environment that set-up made
    step_ms: float = 0.0                        # mock engine only
    engine_ready_timeout_s: float = 600.0
    data_parallel_size: int = 1
    local_ranks: range = range(1)               # of the engines started here
    data_parallel_lb: LoadBalancing = "internal"
    steps_together: bool = False                # ranks take each step at the same time: a mixture of experts in vLLM's engines
    data_parallel_address: str = "127.0.0.1"
    data_parallel_rpc_port: int = 29550         # 0: one that the system chooses
    prefix_affinity: bool = False               # prompts that begin alike go to the same engine
    engine_restarts: int = 0                    # how often each local engine is started again
    dtype: str = "auto"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    tensor_parallel_size: int = 1
    kv_cache_memory: str | None = None          # a size such as 2G
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None   # None: as the engine does by itself
    async_scheduling: bool | None = None        # the same
    scheduling_policy: str | None = None
    sleep_mode: bool = False                    # vLLM's engine only; this project's can always sleep
    seed: int | None = None
    speculative: Mapping[str, object] | None = None     # vLLM's configuration of drafts; None: there are none
    draft_metrics: Literal["none", "summary", "detailed"] = "none"  # what answers tell of drafts
    engine_args: tuple[str, ...] = ()           # passed to the engine's command line as they are

    # model and prompts
    hf_token: str | Literal[True] | None = field(default=None, repr=False)  # True: the stored one
    hf_overrides: dict[str, object] = field(default_factory=dict)  # what config.json is to say instead
    max_model_len: int | None = None            # None: what the model's configuration says
    tokenizer: Path | None = None               # None: model_path
    tokenizer_mode: str = "auto"                # auto, hf
    chat_template: str | None = None            # the template's text
    chat_template_content_format: ContentFormat = "auto"
    default_chat_template_kwargs: dict[str, object] = field(default_factory=dict)
    trust_request_chat_template: bool = False
    render_timeout_s: int | None = 30           # of a template that a request brought
    response_role: str = "assistant"
    generation_config: str = "auto"             # auto, vllm (none), or a folder
    override_generation_config: dict[str, object] = field(default_factory=dict)
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"         # what engines started here give
    enable_force_include_usage: bool = False
    answers: AnswerOptions = field(default_factory=AnswerOptions)
    limits: Limits = field(default_factory=Limits)
    any_model_name: bool = False                # requests may name models that are not served
    structured: StructuredOptions = field(default_factory=StructuredOptions)
    parsers: ParserOptions = field(default_factory=ParserOptions)
    lora: LoraOptions = field(default_factory=LoraOptions)

    # logging
    metrics: MetricOptions = field(default_factory=lambda: MetricOptions())
    otlp_traces_endpoint: str | None = None     # address of a collector (server/tracing/settings.py)
    histogram_buckets: dict[str, list[float]] = field(default_factory=dict)  # bounds of vllm:* by family, where they are others
    log: LogOptions = field(default_factory=lambda: LogOptions())

    @property
    def ranks(self) -> range:
        """The ranks that this frontend sends requests to."""
        return range(self.data_parallel_size) if self.data_parallel_lb == "internal" else self.local_ranks

    @property
    def is_head(self) -> bool:
        """Whether ranks of other frontends join here too, because they step together with ours."""
        return self.steps_together and self.data_parallel_lb != "internal" and self.ranks.start == 0

    @property
    def say_local(self) -> range:
        """The engines that say in the handshake that they are local: vLLM's, started without a frontend, do not."""
        return range(0) if self.engine == "vllm" else self.local_ranks
