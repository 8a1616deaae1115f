"""The engine-core wire protocol as an engine sees it: msgpack structures, decoding that never raises, encoding.

Everything here is value in, value out: no socket and no clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

ADD = b"\x00"
ABORT = b"\x01"
START_DP_WAVE = b"\x02"
UTILITY = b"\x03"

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""Raw frame on every output socket: this engine will never answer again."""

RAW_BYTES = 3
"""Ext type code of array bytes carried inline."""


class FinishReason(enum.IntEnum):
    """Why a request ended; the integer goes on the wire."""

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3
    REPETITION = 4


class EventType(enum.IntEnum):
    """Kinds of per-request events."""

    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request; only the keys that an engine acts on, others are ignored.

    After `decode_add`: `stop_token_ids` and `all_stop_token_ids` are lists, the latter includes the former,
    and seed -1 has become None.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop_token_ids: list[int] | None = None
    eos_token_id: int | None = msgspec.field(name="_eos_token_id", default=None)
    all_stop_token_ids: list[int] = msgspec.field(name="_all_stop_token_ids", default_factory=list)
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words_token_ids: list[list[int]] | None = msgspec.field(name="_bad_words_token_ids", default=None)
    structured_outputs: dict[str, Any] | None = None
    repetition_detection: dict[str, Any] | None = None
    thinking_token_budget: int | None = None
    skip_reading_prefix_cache: bool | None = None
    extra_args: dict[str, Any] | None = None


class LoraRequest(msgspec.Struct, array_like=True):
    """An adapter as requests and `add_lora` name it: an array of 6, trailing elements may be missing.

    `load_inplace`: what is loaded under the number is replaced. `is_3d_lora_weight` is about experts only.
    """

    lora_name: str
    lora_int_id: Annotated[int, msgspec.Meta(ge=1)]
    lora_path: Annotated[str, msgspec.Meta(min_length=1)]
    base_model_name: str | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


class EngineCoreRequest(msgspec.Struct, array_like=True):
    """Payload of an ADD message: an array of 22, trailing elements may be missing."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: Any
    sampling_params: SamplingParams | None
    pooling_params: Any
    arrival_time: float
    lora_request: LoraRequest | None
    cache_salt: str | None
    data_parallel_rank: int | None
    prompt_embeds: Any = None
    prompt_is_token_ids: Any = None
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: Any = None
    abort_immediately: bool = False
    session_id: str | None = None
    kv_hints: Any = None


@dataclass(frozen=True, slots=True)
class RequestFault:
    """An ADD that cannot be served. `request_id` is None when not even the id could be read."""

    request_id: str | None
    message: str


class UtilityCall(msgspec.Struct, array_like=True):
    """Payload of a UTILITY message; `call_id` is an opaque uint64."""

    client_index: int
    call_id: int
    method: str
    args: list[Any] = []


class Event(msgspec.Struct):
    """One per-request event; `timestamp` is seconds of the engine's monotonic clock."""

    type: int
    timestamp: float


class PrefillStats(msgspec.Struct):
    """Where the prompt's tokens came from; sent with the first output of a request."""

    num_prompt_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int = 0
    num_local_cached_tokens: int = 0
    num_external_cached_tokens: int = 0
    num_cache_creation_tokens: int = 0


class EngineCoreOutput(msgspec.Struct, array_like=True):
    """What one step brought for one request: an array of 18."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    new_prompt_logprobs_tensors: Any = None
    pooling_output: Any = None
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: list[Event] | None = None
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None
    trace_headers: dict[str, str] | None = None
    prefill_stats: PrefillStats | None = None
    routed_experts: Any = None
    num_nans_in_logits: int = 0
    mm_cache_miss_hashes: list[str] | None = None
    new_sampling_mask: Any = None
    spec_decode_metrics: Any = None
    prompt_token_id_logprobs: Any = None


class OutputError(msgspec.Struct):
    """Reason of finish 3: "validation_error" is the client's fault, "engine_paused" may be retried."""

    code: str
    message: str
    retryable: bool = False


class FailedOutput(EngineCoreOutput, array_like=True):
    """An output with the error map as 19th element, which older frontends ignore."""

    error: OutputError | None = None


class PrefixCacheStats(msgspec.Struct):
    """Prefix cache counters since the last message."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0
    hits_by_source: dict[str, int] = {}


class KvFetchStages(msgspec.Struct):
    """Requests waiting for remote KV, by stage; always zero here."""

    waiting_to_start: int = 0
    in_progress: int = 0
    completed_waiting: int = 0


class EvictionEvent(msgspec.Struct):
    """What became of a KV block that was handed on, in seconds."""

    lifetime_seconds: float
    idle_seconds: float
    reuse_gaps_seconds: list[float]


class SchedulerStats(msgspec.Struct):
    """State of the scheduler after a step; all 18 keys are always written because strict frontends require them."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    num_kv_fetch_reqs_by_stage: KvFetchStages = msgspec.field(default_factory=KvFetchStages)
    step_counter: int = 0
    current_wave: int = 0
    kv_cache_usage: float = 0.0
    iteration_details: Any = None
    prefix_cache_stats: PrefixCacheStats = msgspec.field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: Any = None
    kv_cache_eviction_events: list[EvictionEvent] = []
    spec_decoding_stats: Any = None
    kv_connector_stats: Any = None
    ec_connector_stats: Any = None
    waiting_lora_adapters: dict[str, int] = {}
    running_lora_adapters: dict[str, int] = {}
    cudagraph_stats: Any = None
    perf_stats: Any = None


class EngineCoreOutputs(msgspec.Struct, array_like=True):
    """One message to one frontend client: an array of 9.

    Either outputs, stats and finished_requests, or a utility reply: never both and never nothing.
    """

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: Any = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None
    weight_version: str | None = None


class ReadyPayload(msgspec.Struct, kw_only=True):
    """First message on each input socket: what this engine can take."""

    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    instance_id: str
    dp_stats_address: str | None = None
    vllm_version: str = "0.32.0"
    world_size: int = 1
    data_parallel_size: int = 1
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    data_parallel_rank: int = 0
    supports_lora: bool = False
    max_loras: int = 0
    mamba_block_size: int | None = None
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    kv_events_config: Any = None
    weight_transfer_backend: str | None = None
    enable_sleep_mode: bool = False
    supports_draft_weight_updates: bool = False
    effective_attention_block_size: int | None = None


class Addresses(msgspec.Struct):
    """Sockets to connect to; index = client index."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class InitMessage(msgspec.Struct):
    """Answer to HELLO.

    The last two are not part of the wire: a frontend that answers ZMTP's PINGs says how often it may be asked, and after which
    silence it is gone. Not every frontend does, and some hang up on a PING.
    """

    addresses: Addresses
    parallel_config: dict[str, Any]
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    silence_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class Status(msgspec.Struct, omit_defaults=True):
    """HELLO and READY of the handshake."""

    status: str
    local: bool
    headless: bool
    parallel_config_hash: str | None = None


class _AnyLength(msgspec.Struct, array_like=True):
    request_id: str


class Codec:
    """Encoders and decoders of one thread; not to be shared between threads."""

    __slots__ = ("_abort", "_add", "_encoder", "_id", "_init", "_utility")

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._add = msgspec.msgpack.Decoder(EngineCoreRequest)
        self._id = msgspec.msgpack.Decoder(_AnyLength)
        self._abort = msgspec.msgpack.Decoder(list[str])
        self._utility = msgspec.msgpack.Decoder(UtilityCall)
        self._init = msgspec.msgpack.Decoder(InitMessage)

    def decode_init(self, frame: bytes) -> InitMessage:
        """Raise msgspec.MsgspecError for anything that is not an init message."""
        return self._init.decode(frame)

    def decode_add(self, frame: bytes) -> EngineCoreRequest | RequestFault:
        """Decode an ADD; whatever is wrong with it becomes a RequestFault, never an exception."""
        try:
            request = self._add.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return RequestFault(self.request_id_of(frame), f"malformed request: {error}")
        params = request.sampling_params
        if params is not None:
            if params.stop_token_ids is None:
                params.stop_token_ids = []
            elif params.stop_token_ids:
                params.all_stop_token_ids = list({*params.all_stop_token_ids, *params.stop_token_ids})
            if params.seed == -1:
                params.seed = None
        return request

    def request_id_of(self, frame: bytes) -> str | None:
        """The request id of an ADD that is otherwise broken, also of a truncated one; None if it cannot be read."""
        try:
            return self._id.decode(frame).request_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _leading_string(frame)

    def decode_plain(self, frame: bytes) -> Any:
        """The plain value of any message; raises msgspec.MsgspecError."""
        return msgspec.msgpack.decode(frame, strict=False)

    def decode_abort(self, frame: bytes) -> list[str] | None:
        """Ids to abort, or None for a malformed message."""
        try:
            return self._abort.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def decode_utility(self, frame: bytes) -> UtilityCall | None:
        """The call, or None for a malformed message."""
        try:
            return self._utility.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def encode(self, message: Any) -> bytes:
        """Encode one structure of this module."""
        return self._encoder.encode(message)

    def encode_into(self, message: Any, buffer: bytearray) -> None:
        """The same in place of what `buffer` holds."""
        self._encoder.encode_into(message, buffer)


def utility_reply(call: UtilityCall, result: Any, timestamp: float, engine_index: int) -> EngineCoreOutputs:
    """A successful reply."""
    output = [call.call_id, None, [None, result]]
    return EngineCoreOutputs(engine_index=engine_index, timestamp=timestamp, utility_output=output)


def utility_failure(call: UtilityCall, message: str, timestamp: float, engine_index: int) -> EngineCoreOutputs:
    """A failed reply; `message` says why."""
    output = [call.call_id, f"Call to {call.method} method failed: {message}", None]
    return EngineCoreOutputs(engine_index=engine_index, timestamp=timestamp, utility_output=output)


def array(dtype: str, shape: list[int], data: bytes) -> list[Any]:
    """An array or tensor on the wire: little-endian, C-contiguous `data`, always inline."""
    return [dtype, shape, msgspec.msgpack.Ext(RAW_BYTES, data)]


def _leading_string(frame: bytes) -> str | None:
    """First element of a possibly truncated array if it is a complete str."""
    head = frame[:1]
    if not head:
        return None
    if 0x90 <= head[0] <= 0x9F:
        at = 1
    elif head[0] == 0xDC:
        at = 3
    elif head[0] == 0xDD:
        at = 5
    else:
        return None
    if len(frame) <= at:
        return None
    kind = frame[at]
    if 0xA0 <= kind <= 0xBF:
        length, start = kind & 0x1F, at + 1
    elif 0xD9 <= kind <= 0xDB:
        width = 1 << (kind - 0xD9)
        length, start = int.from_bytes(frame[at + 1 : at + 1 + width], "big"), at + 1 + width
    else:
        return None
    if length == 0 or len(frame) < start + length:
        return None
    try:
        return frame[start : start + length].decode()
    except UnicodeDecodeError:
        return None
