# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Counting what goes through a lane. Meanings as vLLM's v1/metrics has them."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from fastfront._speedups.buffers cimport array_reserve
from fastfront._speedups.call cimport CallC, Choice
from fastfront._speedups.histograms cimport (
    HIST_COMPUTED, HIST_DECODE, HIST_E2E, HIST_GENERATION, HIST_INFERENCE, HIST_ITL, HIST_MAX_GENERATION, HIST_MAX_TOKENS, HIST_N,
    HIST_PREEMPTIONS, HIST_PREFILL, HIST_PROMPT, HIST_QUEUE, HIST_STEP, HIST_TPOT, HIST_TTFT, LANE_INTAKE, LANE_WAIT, MAX_BOUNDS,
    Histogram, engine_histograms_init, engine_histograms_read, engine_histograms_use, lane_histograms_init, lane_histograms_read, observe,
)
from fastfront._speedups.output cimport Progress


cdef inline double span(double since, double until) noexcept nogil:
    return until - since if until > since else 0.0


cdef void observe_end(Histogram *h, Choice *ch, double now) noexcept nogil:
    cdef CallC *c = ch.call
    cdef Choice *head = &c.choices[ch.index - ch.index % c.n]
    observe(&h[<int>HIST_E2E], span(c.arrived_at, now))
    if ch.scheduled_at > 0 and ch.queued_at > 0:
        observe(&h[<int>HIST_QUEUE], span(ch.queued_at, ch.scheduled_at))
    if ch.scheduled_at > 0 and ch.first_at > 0:
        observe(&h[<int>HIST_PREFILL], span(ch.scheduled_at, ch.first_at))
        observe(&h[<int>HIST_INFERENCE], span(ch.scheduled_at, ch.token_at))
    if ch.first_at > 0:
        observe(&h[<int>HIST_DECODE], span(ch.first_at, ch.token_at))
    if ch.completion_tokens > 1:
        observe(&h[<int>HIST_TPOT], span(ch.first_at, ch.token_at) / (ch.completion_tokens - 1))
    observe(&h[<int>HIST_PROMPT], ch.prompt_tokens)
    observe(&h[<int>HIST_COMPUTED], ch.prompt_tokens - min(ch.cached_tokens, ch.prompt_tokens))
    observe(&h[<int>HIST_GENERATION], ch.completion_tokens)
    observe(&h[<int>HIST_MAX_TOKENS], ch.max_tokens)
    observe(&h[<int>HIST_PREEMPTIONS], ch.preemptions)
    head.siblings_ended += 1
    head.longest = max(head.longest, ch.completion_tokens)
    if head.siblings_ended == c.n:
        observe(&h[<int>HIST_N], c.n)
        observe(&h[<int>HIST_MAX_GENERATION], head.longest)


cdef class Counters:
    """`engines`: how many there are; `buckets`: bounds of histograms by family (histograms.FAMILIES) that are not vLLM's."""

    def __cinit__(self, int engines, object buckets=None):
        cdef int k, at
        if engines <= 0:
            raise ValueError("no engines")
        self.engines = <EngineCounters *>calloc(engines, sizeof(EngineCounters))
        if self.engines == NULL:
            raise MemoryError
        self.n_engines = engines
        for k in range(engines):
            engine_histograms_init(self.engines[k].histograms)
        if buckets:
            self.bounds = <double *>calloc(len(buckets) * MAX_BOUNDS, sizeof(double))
            if self.bounds == NULL:
                raise MemoryError
            for at, family in enumerate(buckets):
                for k in range(engines):
                    engine_histograms_use(self.engines[k].histograms, family, buckets[family], self.bounds + at * MAX_BOUNDS)
        lane_histograms_init(self.lane)

    def __dealloc__(self):
        free(self.engines)
        free(self.bounds)
        free(self.arrivals)

    cdef EngineCounters *of(self, int64_t engine) noexcept nogil:
        return &self.engines[engine if 0 <= engine < self.n_engines else self.n_engines - 1]

    cdef void submitted(self, const CallC *c) noexcept nogil:
        cdef uint32_t i
        observe(&self.lane[<int>LANE_INTAKE], span(c.arrived_at, c.ready_at))
        observe(&self.lane[<int>LANE_WAIT], span(c.ready_at, c.sent_at))
        for i in range(c.n_choices):
            self.of(c.choices[i].engine).prompt_tokens += c.choices[i].prompt_tokens

    cdef void progress(self, Choice *ch, const Progress *p) noexcept nogil:
        cdef EngineCounters *e
        if p.queued_at > 0:
            ch.queued_at = p.queued_at
        if p.scheduled_at > 0 and ch.scheduled_at == 0:         # again after a preemption: the first time counts
            ch.scheduled_at = p.scheduled_at
        if p.preemptions == 0 and not p.has_prefill:
            return
        e = self.of(ch.engine)
        ch.preemptions += p.preemptions
        e.preemptions += p.preemptions
        if p.has_prefill:
            ch.cached_tokens = p.cached
            ch.created_tokens = p.created
            e.computed_tokens += p.computed
            e.cached_tokens += p.local_cached
            e.external_tokens += p.external_cached

    cdef int arrival(self, Choice *ch, bint first, bint more, bint ended) noexcept nogil:
        cdef Arrival *a
        if array_reserve(<void **>&self.arrivals, &self.cap_arrivals, self.n_arrivals + 1, sizeof(Arrival)) < 0:
            return -1
        a = &self.arrivals[self.n_arrivals]
        self.n_arrivals += 1
        a.choice = ch
        a.first = first
        a.more = more
        a.ended = ended
        return 0

    cdef void settle(self, int64_t engine, uint64_t tokens, double at, double now) noexcept nogil:
        cdef size_t i
        cdef Arrival *a
        cdef Choice *ch
        cdef Histogram *h
        for i in range(self.n_arrivals):
            a = &self.arrivals[i]
            ch = a.choice
            h = self.of(ch.engine).histograms
            if a.first:
                ch.first_at = at
                ch.first_here_at = now
                tokens += ch.prompt_tokens - min(ch.cached_tokens, ch.prompt_tokens)
                observe(&h[<int>HIST_TTFT], span(ch.call.arrived_at, now))
            elif a.more:
                observe(&h[<int>HIST_ITL], span(ch.token_at, at))
            if a.first or a.more:
                ch.token_at = at
            if a.ended:
                observe_end(h, ch, now)
        self.n_arrivals = 0
        if tokens:
            observe(&self.of(engine).histograms[<int>HIST_STEP], <double>tokens)

    @property
    def total_tokens(self) -> int:
        cdef int k
        return sum([self.engines[k].tokens for k in range(self.n_engines)])

    @property
    def total_prompt_tokens(self) -> int:
        cdef int k
        return sum([self.engines[k].prompt_tokens for k in range(self.n_engines)])

    # ---- for whoever asks --------------------------------------------------------------------------------------------

    def read(self, int engine):
        """Name -> number, of one engine."""
        cdef EngineCounters *e
        cdef int k
        cdef uint32_t i
        if not 0 <= engine < self.n_engines:
            raise IndexError(f"no engine {engine}")
        e = &self.engines[engine]
        return {
            "tokens": e.tokens,
            "prompt_tokens": e.prompt_tokens,
            "computed_tokens": e.computed_tokens,
            "cached_tokens": e.cached_tokens,
            "external_tokens": e.external_tokens,
            "preemptions": e.preemptions,
            "requests": [e.requests[k] for k in range(5)],
            "messages": e.stats.messages,
            "at": e.stats.at,
            "running": e.stats.running,
            "waiting": e.stats.waiting,
            "deferred": e.stats.deferred,
            "kv_usage": e.stats.kv_usage,
            "queries": e.stats.queries,
            "hits": e.stats.hits,
            "external_queries": e.stats.external_queries,
            "external_hits": e.stats.external_hits,
            "host_hits": e.stats.host_hits,
            "p2p_hits": e.stats.p2p_hits,
            "disk_hits": e.stats.disk_hits,
            "drafts": e.stats.drafts,
            "draft_tokens": e.stats.draft_tokens,
            "accepted_tokens": e.stats.accepted_tokens,
            "flops": e.stats.flops,
            "read_bytes": e.stats.read_bytes,
            "write_bytes": e.stats.write_bytes,
            "accepted_at": [e.stats.accepted_at[i] for i in range(e.stats.positions)],
        }

    def histograms(self, int engine):
        """Name -> (upper bounds, counts per bucket with one more above all bounds, sum), of one engine."""
        if not 0 <= engine < self.n_engines:
            raise IndexError(f"no engine {engine}")
        return engine_histograms_read(self.engines[engine].histograms)

    def lane_histograms(self):
        """The same of the lane itself."""
        return lane_histograms_read(self.lane)
