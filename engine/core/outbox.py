"""What goes to the frontend: collected by client, one message each, statistics on the first."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterable

from engine.core.messages import COORDINATOR, Dead, Output
from engine.protocol import EngineCoreOutput, EngineCoreOutputs, FinishReason, PrefixCacheStats, SchedulerStats
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from engine.structured.grammars import Grammars


class Outbox:
    """Owned by the busy loop's thread; the output thread reads `messages`."""

    def __init__(
        self,
        messages: queue.SimpleQueue[Output | Dead],
        scheduler: Scheduler,
        grammars: Grammars,
        *,
        index: int,
        clients: int,
        log_stats: bool,
        coordinated: bool,
        clock: Callable[[], float],
    ) -> None:
        """`coordinated`: report load to a coordinator and list finished requests, as data-parallel engines do."""
        self._messages = messages
        self._scheduler = scheduler
        self._grammars = grammars
        self._index = index
        self._log_stats = log_stats
        self._coordinated = coordinated
        self._clock = clock
        self._outputs: list[list[EngineCoreOutput]] = [[] for _ in range(clients)]
        self._finished: list[list[str]] = [[] for _ in range(clients)]
        self.weight_version = "default"
        self._told = (0, 0, 0)
        self._reported = (0, 0)

    def put(self, client: int, output: EngineCoreOutput) -> None:
        """Send this with the next flush."""
        self._outputs[client].append(output)
        if output.finish_reason is not None and (self._coordinated or output.finish_reason == FinishReason.ERROR):
            self._finished[client].append(output.request_id)

    def aborted(self, request: Request) -> None:
        """An aborted request has no output, but a coordinated frontend wants to know when it has left."""
        if self._coordinated:
            self._finished[request.client].append(request.request_id)

    def send(self, client: int, message: EngineCoreOutputs) -> None:
        """Send a message of its own at once."""
        self._messages.put(Output(client, message))

    def flush(self) -> None:
        """One message per client that has something; the first one carries the stats.

        When nobody has anything, but load has changed since the last stats, the first client gets stats alone.
        """
        due = self._log_stats
        now = self._clock()
        for client, outputs in enumerate(self._outputs):
            finished = self._finished[client]
            if outputs or finished:
                self._send(client, outputs, self._take_stats() if due else None, now, finished or None)
                self._outputs[client], self._finished[client] = [], []
                due = False
        if due and self._load() != self._told:
            self._send(0, [], self._take_stats(), now)
        if self._coordinated:
            self._report(now)

    def _send(
        self,
        client: int,
        outputs: list[EngineCoreOutput],
        stats: SchedulerStats | None,
        now: float,
        finished: list[str] | None = None,
    ) -> None:
        version = self.weight_version
        message = EngineCoreOutputs(self._index, outputs, stats, now, finished_requests=finished, weight_version=version)
        self._messages.put(Output(client, message))

    def _report(self, now: float) -> None:
        load = (len(self._scheduler.running), len(self._scheduler.waiting))
        if load != self._reported:
            self._reported = load
            message = EngineCoreOutputs(self._index, [], self._stats(PrefixCacheStats()), now)
            self._messages.put(Output(COORDINATOR, message))

    def _load(self) -> tuple[int, int, int]:
        waiting = len(self._scheduler.waiting)
        held = min(self._scheduler.held_back, waiting)
        return len(self._scheduler.running), waiting - held, len(self._grammars.all_held()) + held

    def _take_stats(self) -> SchedulerStats:
        self._told = self._load()
        stats = self._stats(self._scheduler.take_prefix_stats())
        stats.kv_cache_eviction_events = self._scheduler.cache.take_evictions()
        stats.spec_decoding_stats = self._scheduler.take_draft_stats()
        return stats

    def _stats(self, prefix: PrefixCacheStats) -> SchedulerStats:
        running, waiting, held = self._load()
        return SchedulerStats(
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            num_skipped_waiting_reqs=held,
            kv_cache_usage=self._scheduler.cache.usage,
            prefix_cache_stats=prefix,
            running_lora_adapters=self._by_adapter(self._scheduler.running),
            waiting_lora_adapters=self._by_adapter(self._scheduler.waiting),
        )

    def _by_adapter(self, requests: Iterable[Request]) -> dict[str, int]:
        """How many of them are for each adapter, by name."""
        if not self._scheduler.limits.max_loras:
            return {}
        return Counter(request.adapter.name for request in requests if request.adapter)
