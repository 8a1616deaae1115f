"""Histograms counted without Python: one writer at a time, read by whoever asks for metrics.

A reader may see a sum that is one observation ahead of the counts; nothing worse, every field is one machine word.
"""
from libc.stdint cimport uint64_t


cdef enum:
    MAX_BOUNDS = 32


cdef enum EngineHistogram:      # of one engine; per choice where nothing else is said
    HIST_TTFT                   # seconds from arrival to the first token, by the frontend's clock
    HIST_ITL                    # seconds between outputs, by the engine's clock as all that follow
    HIST_TPOT                   # seconds per token after the first
    HIST_E2E                    # seconds from arrival to the end, by the frontend's clock
    HIST_QUEUE                  # seconds from queued to scheduled
    HIST_PREFILL                # seconds from scheduled to the first token
    HIST_DECODE                 # seconds from the first to the last token
    HIST_INFERENCE              # seconds from scheduled to the last token
    HIST_PROMPT                 # prompt tokens
    HIST_COMPUTED               # prompt tokens that were not cached
    HIST_GENERATION             # generated tokens
    HIST_MAX_GENERATION         # generated tokens of the longest choice, per prompt
    HIST_MAX_TOKENS             # max_tokens asked for
    HIST_N                      # choices, per prompt
    HIST_PREEMPTIONS            # how often it was preempted
    HIST_STEP                   # prompt and generated tokens per engine message
    HIST_KV_LIFETIME            # seconds that a KV block had its content, of a sample of blocks as the next two
    HIST_KV_IDLE                # seconds from its last use until it was given away
    HIST_KV_REUSE               # seconds between its uses
    ENGINE_HISTOGRAMS


cdef enum LaneHistogram:        # of one lane
    LANE_LAG                    # seconds from an engine's timestamp until all its step's streams were handed over
    LANE_INTAKE                 # seconds from a request's arrival until it was ready for a lane
    LANE_WAIT                   # seconds from then until the lane took it
    LANE_EVENT_TOKENS           # tokens per event of a stream
    LANE_HISTOGRAMS


cdef struct Histogram:
    uint64_t counts[33]         # per bucket, the last one above all bounds
    double sum
    const double *bounds        # outlive the histogram
    int n_bounds


cdef inline void observe(Histogram *h, double value) noexcept nogil:
    cdef int k = 0
    while k < h.n_bounds and value > h.bounds[k]:
        k += 1
    h.counts[k] += 1
    h.sum += value


cdef void histogram_init(Histogram *h, const double *bounds, int n) noexcept nogil
cdef void engine_histograms_init(Histogram *all) noexcept nogil         # ENGINE_HISTOGRAMS of them
# A family's histograms get other bounds, copied to `own` (MAX_BOUNDS places). Raises KeyError for a family that there is not,
# ValueError for bounds that do not rise or are too many.
cdef int engine_histograms_use(Histogram *all, str family, object bounds, double *own) except -1
cdef void lane_histograms_init(Histogram *all) noexcept nogil           # LANE_HISTOGRAMS of them
cdef tuple histogram_read(const Histogram *h)                           # (bounds, counts per bucket, sum)
cdef dict engine_histograms_read(const Histogram *all)                  # name -> the same
cdef dict lane_histograms_read(const Histogram *all)
