"""/metrics: native counters of the lanes, read when somebody asks. Nothing is counted in Python per token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.utils import floatToGoString

from fastfront._speedups.histograms import NAMES
from fastfront._speedups.pump import Pump
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.metrics.gc_watch import GcWatch
from fastfront.metrics.tool_calls import ToolCallCounts

TOKEN_HISTOGRAMS = frozenset({"vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:request_params_max_tokens"})
HISTOGRAM_TEXTS = {
    "vllm:time_to_first_token_seconds": "From the request's arrival to its first token.",
    "vllm:inter_token_latency_seconds": "Between an answer's outputs.",
    "vllm:request_time_per_output_token_seconds": "Per token after the first, over whole answers.",
    "vllm:e2e_request_latency_seconds": "From the request's arrival to its end.",
    "vllm:request_prompt_tokens": "Prompt tokens of a request.",
    "vllm:request_generation_tokens": "Tokens generated for a request.",
    "vllm:request_params_max_tokens": "max_tokens asked for.",
    "vllm:request_params_n": "n asked for.",
    "vllm:iteration_tokens_total": "Prompt and generated tokens of an engine step.",
}
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")  # in the order of the wire's finish_reason values


class EngineStats:
    """The newest scheduler_stats of every engine. Written by lanes, read by /metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[int, dict[str, Any]] = {}

    def put(self, engine: int, stats: dict[str, Any]) -> None:
        with self._lock:
            self._latest[engine] = stats

    def forget(self, engine: int) -> None:
        with self._lock:
            self._latest.pop(engine, None)

    def latest(self) -> dict[int, dict[str, Any]]:
        with self._lock:
            return dict(self._latest)


class ServingCollector:
    """Turns the lanes' counters into metric families named as vLLM names them."""

    def __init__(
        self, model_name: str, lanes: list[Lane], balancer: Balancer, stats: EngineStats, gc_watch: GcWatch, max_model_len: int
    ) -> None:
        self._model = model_name
        self._lanes = lanes
        self._balancer = balancer
        self._stats = stats
        self._gc = gc_watch
        self._max_model_len = max_model_len

    def collect(self) -> Iterator[Metric]:
        labels = ["model_name", "engine"]
        latest = self._stats.latest()
        running = GaugeMetricFamily("vllm:num_requests_running", "Requests in the engine's running batch.", labels=labels)
        waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests waiting in the engine.", labels=labels)
        usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "KV cache in use, 1 is all of it.", labels=labels)
        for engine, in_flight in enumerate(self._balancer.in_flight):
            where = [self._model, str(engine)]
            stats = latest.get(engine) if in_flight else None
            queued = _number(stats, "num_waiting_reqs") if stats else 0
            waiting.add_metric(where, queued)
            running.add_metric(where, max(0, in_flight - queued))
            usage.add_metric(where, _number(stats, "kv_cache_usage") if stats else 0.0)
        yield from (running, waiting, usage)
        pumps = [lane.pump for lane in self._lanes]
        where = [self._model, "0"]
        yield _counter("vllm:generation_tokens", "Tokens generated.", labels, where, sum(p.tokens for p in pumps))
        yield _counter(
            "vllm:prompt_tokens", "Prompt tokens of submitted requests.", labels, where, sum(p.prompt_tokens for p in pumps)
        )
        finished = CounterMetricFamily("vllm:request_success", "Finished requests.", labels=[*labels, "finished_reason"])
        for k, reason in enumerate(FINISH_REASONS):
            finished.add_metric([*where, reason], sum(p.requests[k] for p in pumps))
        yield finished
        lane_label = ["lane"]
        yield from self._histograms(labels, where)
        lane_counters: list[tuple[str, str, Callable[[Pump], int]]] = [
            ("fastfront:stream_writes", "Writes handed to the HTTP server.", lambda p: p.sends),
            ("fastfront:overrun_tokens", "Tokens dropped behind a stop string.", lambda p: p.overrun),
            ("fastfront:malformed_outputs", "Engine outputs that could not be read.", lambda p: p.malformed),
        ]
        for name, text, value in lane_counters:
            family = CounterMetricFamily(name, text, labels=lane_label)
            for lane in self._lanes:
                family.add_metric([str(lane.index)], value(lane.pump))
            yield family
        live = GaugeMetricFamily("fastfront:live_streams", "Choices being generated.", labels=lane_label)
        for lane in self._lanes:
            live.add_metric([str(lane.index)], lane.pump.live)
        yield live
        count, total_s, longest_s = self._gc.pauses
        pauses = SummaryMetricFamily("fastfront:gc_pause_seconds", "Stop-the-world garbage collections.", count, total_s)
        yield pauses
        yield GaugeMetricFamily("fastfront:gc_longest_pause_seconds", "The longest of them.", longest_s)

    def _histograms(self, labels: list[str], where: list[str]) -> Iterator[Metric]:
        """What the lanes have counted, added up. Token counts end at the longest sequence, as vLLM's buckets do."""
        read = [lane.pump.histograms() for lane in self._lanes]
        for name in NAMES:
            bounds = read[0][name][0]
            counts = [sum(one[name][1][k] for one in read) for k in range(len(bounds) + 1)]
            family = HistogramMetricFamily(name, HISTOGRAM_TEXTS[name], labels=labels)
            buckets, below = [], 0
            for bound, count in zip(bounds, counts, strict=False):
                below += count
                if name not in TOKEN_HISTOGRAMS or bound <= self._max_model_len:
                    buckets.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
            buckets.append(("+Inf", sum(counts)))
            family.add_metric(where, buckets, sum(one[name][2] for one in read))
            yield family


class Metrics:
    """The server's registry and its text."""

    def __init__(self, collector: ServingCollector, tool_calls: ToolCallCounts) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._registry.register(tool_calls)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    content_type = CONTENT_TYPE_LATEST


def _number(stats: dict[str, Any], key: str) -> float:
    value = stats.get(key, 0)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _counter(name: str, text: str, labels: list[str], where: list[str], value: float) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    family.add_metric(where, value)
    return family
