"""fastfront:* metrics: how the frontend itself is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily

from fastfront._speedups.histograms import LANE_NAMES
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.lane import Lane
from fastfront.metrics.families import add_counter, add_histogram
from fastfront.metrics.gc_watch import GcWatch

HISTOGRAM_TEXTS = {
    "fastfront:output_lag_seconds": "From an engine's timestamp of a step until the events of all its streams were written.",
    "fastfront:request_intake_seconds": "From a request's arrival until it was ready for a lane: body, checks, template, tokens.",
    "fastfront:lane_wait_seconds": "From then until its lane took it.",
    "fastfront:event_tokens": "Tokens per event of a stream.",
}
LANE_COUNTERS: tuple[tuple[str, str, Callable[[Lane], float]], ...] = (
    ("fastfront:stream_writes", "Writes to clients.", lambda lane: lane.pump.sends),
    ("fastfront:overrun_tokens", "Tokens dropped behind a stop string.", lambda lane: lane.pump.overrun),
    ("fastfront:malformed_outputs", "Engine outputs that could not be read.", lambda lane: lane.pump.malformed),
    ("fastfront:lane_busy_seconds", "Time that the lane was not waiting.", lambda lane: lane.busy_s),
)
LANE_GAUGES: tuple[tuple[str, str, Callable[[Lane], float]], ...] = (
    ("fastfront:live_streams", "Choices being generated.", lambda lane: lane.pump.live),
    ("fastfront:lane_queue", "Requests and errands that wait for the lane.", lambda lane: lane.queued),
)


class LaneCollector:
    """Reads lanes, queues and the garbage collector."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        balancer: Balancer,
        gc_watch: GcWatch,
        queues: Mapping[str, Callable[[], int]],
        created: float,
    ) -> None:
        """`queues`: how many items wait in each, by name."""
        self._lanes = lanes
        self._balancer = balancer
        self._gc = gc_watch
        self._queues = queues
        self._created = created

    def collect(self) -> Iterator[Metric]:
        for name, text, value in LANE_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["lane"])
            for lane in self._lanes:
                add_counter(counter, [str(lane.index)], value(lane), self._created)
            yield counter
        for name, text, value in LANE_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["lane"])
            for lane in self._lanes:
                gauge.add_metric([str(lane.index)], value(lane))
            yield gauge
        read = [lane.pump.counters.lane_histograms() for lane in self._lanes]
        for name in LANE_NAMES:
            family = HistogramMetricFamily(name, HISTOGRAM_TEXTS[name], labels=["lane"])
            for lane, histograms in zip(self._lanes, read, strict=True):
                add_histogram(family, [str(lane.index)], histograms[name], self._created)
            yield family
        yield from self._engines()
        queues = GaugeMetricFamily("fastfront:queue", "Items that wait for another thread.", labels=["queue"])
        for queue, length in self._queues.items():
            queues.add_metric([queue], length())
        yield queues
        yield from self._pauses()

    def _engines(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily("fastfront:engine_in_flight", "Requests that an engine has.", labels=["engine"])
        up = GaugeMetricFamily("fastfront:engine_up", "1 while the engine takes requests.", labels=["engine"])
        for engine, count in zip(self._balancer.ranks, self._balancer.in_flight, strict=True):
            in_flight.add_metric([str(engine)], count)
            up.add_metric([str(engine)], self._balancer.is_alive(engine))
        yield from (in_flight, up)

    def _pauses(self) -> Iterator[Metric]:
        count, total_s, longest_s = self._gc.pauses
        yield SummaryMetricFamily("fastfront:gc_pause_seconds", "Garbage collections, which stop all threads.", count, total_s)
        yield GaugeMetricFamily("fastfront:gc_longest_pause_seconds", "The longest of them.", longest_s)
