"""What a server counts, and who reads it: /metrics, the log of statistics, headers that tell the load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastfront._speedups.histograms import FAMILIES
from fastfront.config import ServeConfig
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import EngineInfo
from fastfront.engine_client.lane import Lane
from fastfront.metrics.engines import EngineCollector
from fastfront.metrics.gc_watch import GcWatch
from fastfront.metrics.graphs import GraphUses
from fastfront.metrics.lanes import LaneCollector
from fastfront.metrics.registry import Metrics
from fastfront.metrics.sleep import SleepState
from fastfront.metrics.stats_log import Counts, StatsLog, counts
from fastfront.openai.serving import Serving
from fastfront.server.orca import Load


class Figures:
    """Of one server. `lanes` may grow until `metrics` is called; `queues` has the length of what waits, by name."""

    def __init__(self, config: ServeConfig, balancer: Balancer, lanes: Sequence[Lane]) -> None:
        self._config = config
        self._balancer = balancer
        self._lanes = lanes
        self.sleep = SleepState(config.served_model_name[0], config.ranks)
        self.gc_watch = GcWatch()
        self.queues: dict[str, Callable[[], int]] = {}
        self._graphs = GraphUses()

    def put(self, engine: int, stats: dict[str, Any]) -> None:
        """An engine's newest scheduler_stats. On a lane's thread."""
        if self._config.metrics.graphs:
            self._graphs.add(stats.get("cudagraph_stats"))
        waiting, usage = stats.get("num_waiting_reqs"), stats.get("kv_cache_usage")
        if isinstance(waiting, int) and isinstance(usage, (int, float)):
            self._balancer.report(engine, waiting, usage)

    def start_log(self) -> None:
        """The log of statistics, if it is asked for."""
        if self._config.log.stats_interval_s:
            StatsLog(self._counts, self._config.log.stats_interval_s, self._graphs.take).start()

    def metrics(self, serving: Serving, engines: list[EngineInfo]) -> Metrics:
        """All but the http_* metrics, which need the routes."""
        created, pumps = time.time(), [lane.pump for lane in self._lanes]
        own = LaneCollector(self._lanes, self._balancer, self.gc_watch, self.queues, created)
        if not self._config.log.stats_interval_s:
            return Metrics([own])
        model, length = self._config.served_model_name[0], serving.max_model_len
        custom = [name for family in self._config.histogram_buckets for name in FAMILIES[family]]
        of_engines = EngineCollector(
            model, pumps, self._balancer, engines, length, created, custom,
            residency=self._config.metrics.kv_sample is not None,
            draft_tokens=_draft_length(self._config),
        )  # fmt: skip
        return Metrics([of_engines, self.sleep, serving.tool_calls, own])

    def load(self) -> Load:
        now = self._counts()
        return Load(float(now.waiting), now.kv_usage)

    def _counts(self) -> Counts:
        return counts([lane.pump for lane in self._lanes], dict(zip(self._balancer.ranks, self._balancer.in_flight, strict=True)))


def _draft_length(config: ServeConfig) -> int | None:
    """The most tokens of a draft, 0 if engines decide it; None: none are made, as far as is known here."""
    if config.speculative is None:
        return None
    length = config.speculative.get("num_speculative_tokens")
    return length if isinstance(length, int) else 0
