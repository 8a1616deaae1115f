# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Reading scheduler_stats."""
from libc.math cimport fabs
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, strlen

from fastfront._speedups.histograms cimport HIST_KV_IDLE, HIST_KV_LIFETIME, HIST_KV_REUSE, Histogram, observe
from fastfront._speedups.msgpack_raw cimport (
    MP_ARRAY, MP_INT, MP_MAP, Cursor, mp_array, mp_float, mp_int, mp_map, mp_peek, mp_skip, mp_str,
)

cdef double USAGE_STEP = 0.01       # of the KV cache: smaller changes are not worth Python's time


cdef inline bint named(const char *key, uint32_t n, const char *name) noexcept nogil:
    return n == strlen(name) and memcmp(key, name, n) == 0


cdef int take(Cursor *c, int64_t *to) noexcept nogil:
    """A gauge; what is no integer leaves it as it is."""
    if mp_peek(c) == MP_INT and mp_int(c, to) == 0:
        return 0
    return mp_skip(c, 1)


cdef int add(Cursor *c, uint64_t *to) noexcept nogil:
    """A counter's increase; what is no integer, or negative, adds nothing."""
    cdef int64_t value = 0
    if take(c, &value) < 0:
        return -1
    if value > 0:
        to[0] += <uint64_t>value
    return 0


cdef int add_float(Cursor *c, double *to) noexcept nogil:
    """The same of numbers of any kind."""
    cdef double value = 0.0
    if mp_float(c, &value) < 0:
        return mp_skip(c, 1)
    if 0.0 < value < 1e300:
        to[0] += value
    return 0


cdef int observe_seconds(Cursor *c, Histogram *h) noexcept nogil:
    """What is no number, or negative, is passed over."""
    cdef double value = -1.0
    if mp_float(c, &value) < 0:
        return mp_skip(c, 1)
    if 0.0 <= value < 1e300:
        observe(h, value)
    return 0


ctypedef int (*Field)(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil


cdef struct CacheTotals:            # `tiers`: where hits by tier are added up; NULL: nowhere
    uint64_t *queries
    uint64_t *hits
    SchedulerStats *tiers


cdef int read_fields(Cursor *c, Field field, void *into) noexcept nogil:
    """Gives `field` every key of a map, with the cursor at its value, which it takes. What is no map is passed over."""
    cdef uint32_t pairs, n, k
    cdef const char *key
    if mp_peek(c) != MP_MAP:
        return mp_skip(c, 1)
    mp_map(c, &pairs)
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0 or field(c, key, n, into) < 0:
            return -1
    return 0


cdef int eviction(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil:
    """Of one block that was given away."""
    cdef Histogram *histograms = <Histogram *>into
    cdef uint32_t gaps, i
    if named(key, n, b"lifetime_seconds"):
        return observe_seconds(c, &histograms[<int>HIST_KV_LIFETIME])
    if named(key, n, b"idle_seconds"):
        return observe_seconds(c, &histograms[<int>HIST_KV_IDLE])
    if not named(key, n, b"reuse_gaps_seconds") or mp_peek(c) != MP_ARRAY:
        return mp_skip(c, 1)
    mp_array(c, &gaps)
    for i in range(gaps):
        if observe_seconds(c, &histograms[<int>HIST_KV_REUSE]) < 0:
            return -1
    return 0


cdef int read_evictions(Cursor *c, Histogram *histograms) noexcept nogil:
    cdef uint32_t count, k
    if mp_peek(c) != MP_ARRAY:
        return mp_skip(c, 1)
    mp_array(c, &count)
    for k in range(count):
        if read_fields(c, eviction, histograms) < 0:
            return -1
    return 0


cdef int work(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil:
    """Of perf_stats."""
    cdef SchedulerStats *s = <SchedulerStats *>into
    if named(key, n, b"num_flops_per_gpu"):
        return add_float(c, &s.flops)
    if named(key, n, b"num_read_bytes_per_gpu"):
        return add_float(c, &s.read_bytes)
    if named(key, n, b"num_write_bytes_per_gpu"):
        return add_float(c, &s.write_bytes)
    return mp_skip(c, 1)


cdef int tier(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil:
    cdef SchedulerStats *s = <SchedulerStats *>into
    if named(key, n, b"host"):
        return add(c, &s.host_hits)
    if named(key, n, b"p2p"):
        return add(c, &s.p2p_hits)
    if named(key, n, b"disk"):
        return add(c, &s.disk_hits)
    return mp_skip(c, 1)


cdef int cache(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil:
    cdef CacheTotals *totals = <CacheTotals *>into
    if named(key, n, b"queries"):
        return add(c, totals.queries)
    if named(key, n, b"hits"):
        return add(c, totals.hits)
    if totals.tiers != NULL and named(key, n, b"hits_by_source"):
        return read_fields(c, tier, totals.tiers)
    return mp_skip(c, 1)


cdef int read_positions(Cursor *c, SchedulerStats *s) noexcept nogil:
    cdef uint32_t count, k
    cdef uint64_t beyond = 0
    if mp_peek(c) != MP_ARRAY:
        return mp_skip(c, 1)
    mp_array(c, &count)
    for k in range(count):
        if add(c, &s.accepted_at[k] if k < MAX_POSITIONS else &beyond) < 0:
            return -1
    s.positions = max(s.positions, min(count, <uint32_t>MAX_POSITIONS))
    return 0


cdef int drafts(Cursor *c, const char *key, uint32_t n, void *into) noexcept nogil:
    cdef SchedulerStats *s = <SchedulerStats *>into
    if named(key, n, b"num_drafts"):
        return add(c, &s.drafts)
    if named(key, n, b"num_draft_tokens"):
        return add(c, &s.draft_tokens)
    if named(key, n, b"num_accepted_tokens"):
        return add(c, &s.accepted_tokens)
    if named(key, n, b"num_accepted_tokens_per_pos"):
        return read_positions(c, s)
    return mp_skip(c, 1)


cdef int scheduler_stats_read(Cursor *c, SchedulerStats *s, Histogram *histograms) noexcept nogil:
    cdef uint32_t pairs, n, k
    cdef const char *key
    cdef int r
    cdef bint graph = False, look_again
    cdef CacheTotals own, external
    own.queries, own.hits, own.tiers = &s.queries, &s.hits, NULL
    external.queries, external.hits, external.tiers = &s.external_queries, &s.external_hits, s
    if mp_map(c, &pairs) < 0:
        return -1
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0:
            return -1
        if named(key, n, b"num_running_reqs"):
            r = take(c, &s.running)
        elif named(key, n, b"num_waiting_reqs"):
            r = take(c, &s.waiting)
        elif named(key, n, b"num_skipped_waiting_reqs"):
            r = take(c, &s.deferred)
        elif named(key, n, b"kv_cache_usage"):
            r = 0 if mp_float(c, &s.kv_usage) == 0 else mp_skip(c, 1)
        elif named(key, n, b"prefix_cache_stats"):
            r = read_fields(c, cache, &own)
        elif named(key, n, b"connector_prefix_cache_stats"):
            r = read_fields(c, cache, &external)
        elif named(key, n, b"spec_decoding_stats"):
            r = read_fields(c, drafts, s)
        elif named(key, n, b"kv_cache_eviction_events"):
            r = read_evictions(c, histograms)
        elif named(key, n, b"perf_stats"):
            r = read_fields(c, work, s)
        else:
            if named(key, n, b"cudagraph_stats"):
                graph = mp_peek(c) == MP_MAP
            r = mp_skip(c, 1)
        if r < 0:
            return -1
    s.messages += 1
    look_again = graph or s.waiting + s.deferred != s.told_waiting or fabs(s.kv_usage - s.told_usage) >= USAGE_STEP
    if look_again:
        s.told_waiting = s.waiting + s.deferred
        s.told_usage = s.kv_usage
    return look_again
