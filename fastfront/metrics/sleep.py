"""Whether engines sleep."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

STATES = ("awake", "weights_offloaded", "discard_all")  # by level


class SleepState:
    """What this server has last made the engines do; all of them together. Any thread."""

    def __init__(self, model_name: str, engines: range) -> None:
        self._model = model_name
        self._engines = engines
        self._level = 0

    def set(self, level: int) -> None:
        self._level = level

    def collect(self) -> Iterator[Metric]:
        labels = ["model_name", "engine", "sleep_state"]
        family = GaugeMetricFamily("vllm:engine_sleep_state", "1 for the state that engines are in.", labels=labels)
        level = self._level
        for engine in self._engines:
            for k, state in enumerate(STATES):
                family.add_metric([self._model, str(engine), state], k == level)
        yield family
