"""vllm:* metrics: one set of series for every engine, from what the lanes have counted natively."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fastfront._speedups.histograms import ENGINE_NAMES, FAMILIES
from fastfront._speedups.pump import Pump
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import EngineInfo
from fastfront.metrics.families import Counts, add_counter, add_histogram
from fastfront.metrics.loads import engine_load

if TYPE_CHECKING:
    from fastfront._speedups.counters import EngineCounts

TOKEN_HISTOGRAMS = frozenset(
    {
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_prefill_kv_computed_tokens",
    }
)
HISTOGRAM_TEXTS = {
    "vllm:time_to_first_token_seconds": "From the request's arrival to its first token.",
    "vllm:inter_token_latency_seconds": "Between an answer's outputs.",
    "vllm:request_time_per_output_token_seconds": "Per token after the first, over whole answers.",
    "vllm:e2e_request_latency_seconds": "From the request's arrival to its end.",
    "vllm:request_queue_time_seconds": "Waiting in the engine.",
    "vllm:request_prefill_time_seconds": "From being scheduled to the first token.",
    "vllm:request_decode_time_seconds": "From the first token to the last.",
    "vllm:request_inference_time_seconds": "From being scheduled to the last token.",
    "vllm:request_prompt_tokens": "Prompt tokens of a request.",
    "vllm:request_prefill_kv_computed_tokens": "Prompt tokens of a request that were not in a cache.",
    "vllm:request_generation_tokens": "Tokens generated for a request.",
    "vllm:request_max_num_generation_tokens": "Tokens generated for the longest answer of a request.",
    "vllm:request_params_max_tokens": "max_tokens asked for.",
    "vllm:request_params_n": "n asked for.",
    "vllm:request_num_preemptions": "How often a request was preempted.",
    "vllm:iteration_tokens_total": "Computed prompt tokens and generated tokens of an engine step.",
    "vllm:kv_block_lifetime_seconds": "From a KV block's first use until it is given to something else. Of a sample of blocks.",
    "vllm:kv_block_idle_before_evict_seconds": "From a KV block's last use until then.",
    "vllm:kv_block_reuse_gap_seconds": "Between the last uses of a KV block, where it is found again.",
}
RESIDENCY = frozenset(FAMILIES["kv_cache_residency"])
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")  # in the order of the wire's finish_reason values
CACHE_FACTS = (
    "block_size", "num_gpu_blocks", "mamba_block_size", "kv_cache_size_tokens", "kv_cache_max_concurrency",
)  # fmt: skip
LABELS = ["model_name", "engine"]
Count = Literal[
    "tokens", "prompt_tokens", "computed_tokens", "cached_tokens", "external_tokens", "preemptions", "queries", "hits",
    "external_queries", "external_hits", "drafts", "draft_tokens", "accepted_tokens", "flops", "read_bytes", "write_bytes",
    "host_hits", "p2p_hits", "disk_hits",
]  # fmt: skip
COUNTERS: tuple[tuple[str, str, Count], ...] = (
    ("vllm:num_preemptions", "Times that a request was preempted.", "preemptions"),
    ("vllm:prompt_tokens", "Prompt tokens of submitted requests.", "prompt_tokens"),
    ("vllm:generation_tokens", "Tokens generated.", "tokens"),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", "queries"),
    ("vllm:prefix_cache_hits", "Prompt tokens found there.", "hits"),
    ("vllm:external_prefix_cache_queries", "Prompt tokens looked up through a KV connector.", "external_queries"),
    ("vllm:external_prefix_cache_hits", "Prompt tokens found there.", "external_hits"),
    ("vllm:estimated_flops_per_gpu", "Floating-point operations of a device, with --enable-mfu-metrics.", "flops"),
    ("vllm:estimated_read_bytes_per_gpu", "Bytes it read from its memory.", "read_bytes"),
    ("vllm:estimated_write_bytes_per_gpu", "Bytes it wrote there.", "write_bytes"),
)
DRAFT_COUNTERS: tuple[tuple[str, str, Count], ...] = (
    ("vllm:spec_decode_num_drafts", "Drafts of speculative decoding.", "drafts"),
    ("vllm:spec_decode_num_draft_tokens", "Their tokens.", "draft_tokens"),
    ("vllm:spec_decode_num_accepted_tokens", "Those accepted.", "accepted_tokens"),
)
SOURCES: tuple[tuple[str, Count], ...] = (
    ("local_compute", "computed_tokens"),
    ("local_cache_hit", "cached_tokens"),
    ("external_kv_transfer", "external_tokens"),
)
TIERS: tuple[tuple[str, Count], ...] = (("host", "host_hits"), ("p2p", "p2p_hits"), ("disk", "disk_hits"))


class EngineCollector:
    """Reads the lanes' counters of every engine."""

    def __init__(
        self,
        model_name: str,
        pumps: Sequence[Pump],
        balancer: Balancer,
        engines: Sequence[EngineInfo],
        max_model_len: int,
        created: float,
        custom: Iterable[str] = (),
        residency: bool = False,
        draft_tokens: int | None = None,
    ) -> None:
        """`custom` are the histograms with bounds of the operator's. `residency`: engines tell of KV blocks' lives.

        `draft_tokens` is the most that a draft has, 0 if that is not known; None: no engine is known to make any.
        """
        self._model = model_name
        self._pumps = pumps
        self._balancer = balancer
        self._engines = engines
        self._max_model_len = max_model_len
        self._created = created
        self._ending = TOKEN_HISTOGRAMS.difference(custom)
        self._histogram_names = [name for name in ENGINE_NAMES if residency or name not in RESIDENCY]
        self._draft_tokens = draft_tokens

    def collect(self) -> Iterator[Metric]:
        read = [[pump.counters.read(engine.index) for pump in self._pumps] for engine in self._engines]
        yield from self._loads(read)
        for name, text, key in COUNTERS:
            yield self._counter(name, text, key, read)
        for name in ("vllm:mm_cache_queries", "vllm:mm_cache_hits"):
            yield self._none(name)
        yield from self._prompt_sources(read)
        finished = CounterMetricFamily("vllm:request_success", "Finished requests.", labels=[*LABELS, "finished_reason"])
        for engine, counts in enumerate(read):
            for k, reason in enumerate(FINISH_REASONS):
                value = sum(lane["requests"][k] for lane in counts)
                add_counter(finished, [*self._where(engine), reason], value, self._created)
        yield finished
        yield from self._histograms()
        yield from self._drafts(read)
        yield self._cache_facts()
        yield from self._adapters()

    def _where(self, place: int) -> list[str]:
        """Labels of the engine at that place of the list, whatever its rank."""
        return [self._model, str(self._engines[place].index)]

    def _counter(self, name: str, text: str, key: Count, read: list[list[EngineCounts]]) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        for engine, counts in enumerate(read):
            add_counter(family, self._where(engine), sum(lane[key] for lane in counts), self._created)
        return family

    def _none(self, name: str) -> Metric:
        """vLLM's counters of its cache of media, for dashboards that ask for them: there are no media."""
        family = CounterMetricFamily(name, "Media looked up, or found, in a cache: none are served.", labels=LABELS)
        for engine in range(len(self._engines)):
            add_counter(family, self._where(engine), 0, self._created)
        return family

    def _loads(self, read: list[list[EngineCounts]]) -> Iterator[Metric]:
        running = GaugeMetricFamily("vllm:num_requests_running", "Requests in the engine's running batch.", labels=LABELS)
        waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests waiting in the engine.", labels=LABELS)
        reasons = GaugeMetricFamily("vllm:num_requests_waiting_by_reason", "The same by reason.", labels=[*LABELS, "reason"])
        usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "KV cache in use, 1 is all of it.", labels=LABELS)
        for engine, in_flight in enumerate(self._balancer.in_flight):
            load, where = engine_load(in_flight, read[engine]), self._where(engine)
            running.add_metric(where, load.running)
            waiting.add_metric(where, load.waiting + load.deferred)
            reasons.add_metric([*where, "capacity"], load.waiting)
            reasons.add_metric([*where, "deferred"], load.deferred)
            usage.add_metric(where, load.kv_usage)
        yield from (running, waiting, reasons, usage)

    def _prompt_sources(self, read: list[list[EngineCounts]]) -> Iterator[Metric]:
        sources = CounterMetricFamily(
            "vllm:prompt_tokens_by_source", "Prompt tokens by where their KV came from.", labels=[*LABELS, "source"]
        )
        cached = CounterMetricFamily("vllm:prompt_tokens_cached", "Prompt tokens that were in a cache.", labels=LABELS)
        caches = CounterMetricFamily("vllm:prompt_tokens_cached_by_source", "Those by cache.", labels=[*LABELS, "source"])
        for engine, counts in enumerate(read):
            found = {source: sum(lane[key] for lane in counts) for source, key in SOURCES}
            for source, value in found.items():
                add_counter(sources, [*self._where(engine), source], value, self._created)
            value = found["local_cache_hit"] + found["external_kv_transfer"]
            add_counter(cached, self._where(engine), value, self._created)
            tiers = {tier: sum(lane[key] for lane in counts) for tier, key in TIERS}
            tiers["external_unspecified"] = max(0, found["external_kv_transfer"] - sum(tiers.values()))
            for tier, value in {"device": found["local_cache_hit"], **tiers}.items():
                add_counter(caches, [*self._where(engine), tier], value, self._created)
        yield from (sources, cached, caches)

    def _histograms(self) -> Iterator[Metric]:
        """What the lanes have counted, added up. Token counts end at the longest sequence, as vLLM's buckets do."""
        read = [[pump.counters.histograms(engine.index) for pump in self._pumps] for engine in self._engines]
        for name in self._histogram_names:
            family = HistogramMetricFamily(name, HISTOGRAM_TEXTS[name], labels=LABELS)
            most = self._max_model_len if name in self._ending else float("inf")
            for engine, lanes in enumerate(read):
                add_histogram(family, self._where(engine), added([lane[name] for lane in lanes]), self._created, most)
            yield family

    def _drafts(self, read: list[list[EngineCounts]]) -> Iterator[Metric]:
        """Speculative decoding, where it is known to be on, or once there is some."""
        if self._draft_tokens is None and not any(lane["drafts"] for counts in read for lane in counts):
            return
        for name, text, key in DRAFT_COUNTERS:
            yield self._counter(name, text, key, read)
        family = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Those by place in their draft.", labels=[*LABELS, "position"]
        )
        for engine, counts in enumerate(read):
            for position in range(max(self._draft_tokens or 0, *(len(lane["accepted_at"]) for lane in counts))):
                value = sum(lane["accepted_at"][position] for lane in counts if position < len(lane["accepted_at"]))
                add_counter(family, [*self._where(engine), str(position)], value, self._created)
        yield family

    def _cache_facts(self) -> Metric:
        family = GaugeMetricFamily("vllm:cache_config_info", "The engines' KV caches.", labels=["engine", *CACHE_FACTS])
        for engine in self._engines:
            family.add_metric([str(engine.index), *(str(engine.limits.get(fact)) for fact in CACHE_FACTS)], 1)
        return family

    def _adapters(self) -> Iterator[Metric]:
        """Where engines serve LoRA adapters: those that requests here wait for, or have tokens of."""
        serving = [engine.limits for engine in self._engines if engine.limits.get("supports_lora")]
        if not serving:
            return
        family = GaugeMetricFamily(
            "vllm:lora_requests_info", "Now, by adapters in use: requests wait for their first token, or have some.",
            labels=["max_lora", "waiting_lora_adapters", "running_lora_adapters"],
        )  # fmt: skip
        lanes = [pump.adapters() for pump in self._pumps]
        waiting, running = (",".join(sorted(set[str]().union(*names))) for names in zip(*lanes, strict=True))
        family.add_metric([str(max(limits.get("max_loras", 0) for limits in serving)), waiting, running], time.time())
        yield family


def added(read: Sequence[Counts]) -> Counts:
    """Several lanes' counts as one."""
    bounds = read[0][0]
    return bounds, [sum(one[1][k] for one in read) for k in range(len(bounds) + 1)], sum(one[2] for one in read)
