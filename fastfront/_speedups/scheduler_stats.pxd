"""scheduler_stats of the wire: gauges replace, counters add up."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from fastfront._speedups.histograms cimport Histogram
from fastfront._speedups.msgpack_raw cimport Cursor


cdef enum:
    MAX_POSITIONS = 32              # of draft tokens; what is beyond is not told apart


cdef struct SchedulerStats:
    uint64_t messages               # how many have come
    double at                       # when the newest came (the frontend's monotonic s)
    int64_t running                 # requests of the engine, as of then
    int64_t waiting                 # for room
    int64_t deferred                # for something else, such as a grammar
    double kv_usage                 # 0 to 1
    uint64_t queries, hits          # prompt tokens looked up in the prefix cache, and found
    uint64_t external_queries, external_hits        # the same through a KV connector,
    uint64_t host_hits, p2p_hits, disk_hits         # as far as it has told where it found them
    uint64_t drafts, draft_tokens, accepted_tokens  # of speculative decoding
    uint64_t accepted_at[32]        # accepted tokens by place in their draft
    uint32_t positions              # of those, as many as the engine has told of
    double flops, read_bytes, write_bytes           # estimated, of a device; whole numbers, too large for integers in the long run
    int64_t told_waiting            # waiting and deferred, and kv_usage, when Python was last told
    double told_usage


# Reads a scheduler_stats map into `s`, and what became of KV blocks into `histograms`, the engine's; unknown keys are passed over.
# 0; 1 if Python should look at it too: the load has changed, or it tells of a recorded graph; -1 if it is malformed: the cursor then stands anywhere.
cdef int scheduler_stats_read(Cursor *c, SchedulerStats *s, Histogram *histograms) noexcept nogil
