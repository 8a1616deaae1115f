"""What a lane counts: of every engine, and of itself. One writer, the lane; anybody reads (see histograms.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.call cimport CallC, Choice
from fastfront._speedups.histograms cimport Histogram
from fastfront._speedups.output cimport Progress
from fastfront._speedups.scheduler_stats cimport SchedulerStats


cdef struct EngineCounters:
    Histogram histograms[19]        # by EngineHistogram
    uint64_t tokens                 # generated for live choices
    uint64_t prompt_tokens          # of requests that were submitted
    uint64_t computed_tokens        # prompt tokens that the engine computed,
    uint64_t cached_tokens          # had in its cache,
    uint64_t external_tokens        # or got from a KV connector
    uint64_t preemptions
    uint64_t requests[5]            # finished choices by Finish
    SchedulerStats stats            # newest gauges, counters added up


cdef struct Arrival:                # one output of the message at hand; what it means is known once the message's time is
    Choice *choice                  # valid until the message's events are sent
    bint first                      # it has its first tokens
    bint more                       # it has further tokens
    bint ended                      # it is complete


cdef class Counters:
    cdef EngineCounters *engines
    cdef double *bounds             # of histograms with bounds of the operator's
    cdef readonly int n_engines
    cdef Histogram lane[4]          # by LaneHistogram
    cdef Arrival *arrivals
    cdef size_t n_arrivals, cap_arrivals

    # Of an engine's index; one that there is not counts as the last that there is.
    cdef EngineCounters *of(self, int64_t engine) noexcept nogil
    # A lane has taken a call.
    cdef void submitted(self, const CallC *c) noexcept nogil
    # An output's events and prefill stats.
    cdef void progress(self, Choice *ch, const Progress *p) noexcept nogil
    # Notes an output. 0, or -1 when memory is out.
    cdef int arrival(self, Choice *ch, bint first, bint more, bint ended) noexcept nogil
    # The message at hand is through: `at` is the engine's time of it, `now` the frontend's; `tokens` is what it brought.
    cdef void settle(self, int64_t engine, uint64_t tokens, double at, double now) noexcept nogil
