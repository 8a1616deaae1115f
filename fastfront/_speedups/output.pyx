# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Reading engine outputs."""
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memset

from fastfront._speedups.logprobs cimport Frames, LogprobRows, logprobs_parse
from fastfront._speedups.msgpack_raw cimport (
    MP_INT, MP_NIL, MP_STR, Cursor, mp_array, mp_float, mp_int, mp_map, mp_nil, mp_peek, mp_skip, mp_str,
)

cdef enum:
    AFTER_STOP_REASON = 7       # elements up to stop_reason
    ERROR_PLACE = 18            # of the `error` map (vLLM 0.33)
    AFTER_EVENTS_SKIPPED = 3    # kv_transfer_params, ec_transfer_params, trace_headers
    EVENT_QUEUED = 1
    EVENT_SCHEDULED = 2
    EVENT_PREEMPTED = 3


cdef int read_rows(Cursor *c, const Frames *frames, LogprobRows *rows, bint *there) noexcept nogil:
    there[0] = mp_peek(c) != MP_NIL
    if not there[0]:
        return 0 if mp_nil(c) else -1
    return logprobs_parse(c, frames, rows)


cdef int read_error(Cursor *c, Output *o) noexcept nogil:
    """`{code, message, ...}`; other keys are passed over."""
    cdef uint32_t pairs, n, m, k
    cdef const char *key
    cdef const char *value
    if mp_map(c, &pairs) < 0:
        return -1
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0:
            return -1
        if mp_peek(c) != MP_STR:
            if mp_skip(c, 1) < 0:
                return -1
            continue
        if mp_str(c, &value, &m) < 0:
            return -1
        if n == 4 and memcmp(key, b"code", 4) == 0:
            if m == 16 and memcmp(value, b"validation_error", 16) == 0:
                o.code = ERROR_VALIDATION
            elif m == 13 and memcmp(value, b"engine_paused", 13) == 0:
                o.code = ERROR_PAUSED
        elif n == 7 and memcmp(key, b"message", 7) == 0:
            o.message = value
            o.message_len = m
    return 0


cdef int output_read(Cursor *c, const Frames *frames, Output *o) noexcept nogil:
    cdef uint32_t n, k
    cdef const char *text
    cdef int64_t finish = FINISH_NONE
    memset(o, 0, sizeof(Output))
    o.finish = FINISH_NONE
    if mp_array(c, &n) < 0 or n < 2 or mp_str(c, &o.id, &o.id_len) < 0:
        o.id = NULL
        return -1
    if mp_array(c, &o.n_ids) < 0:
        return -1
    o.ids = c[0]
    if mp_skip(c, o.n_ids) < 0:
        return -1
    o.ids.end = c.p
    if n > 2 and read_rows(c, frames, &o.logprobs, &o.has_logprobs) < 0:
        return -1
    if n > 3 and read_rows(c, frames, &o.prompt_logprobs, &o.has_prompt_logprobs) < 0:
        return -1
    if n > 4 and mp_skip(c, 1) < 0:
        return -1
    if n > 5 and not mp_nil(c):
        if mp_int(c, &finish) < 0 or finish < 0 or finish > FINISH_REPETITION:
            return -1
        o.finish = <int>finish
    if n > 6 and not mp_nil(c):
        if mp_peek(c) == MP_INT and mp_int(c, &o.stop_token) == 0:
            o.reason = REASON_TOKEN
        elif mp_str(c, &text, &k) == 0:
            o.reason = REASON_REPETITION if finish == FINISH_REPETITION else REASON_NULL
        else:
            return -1
    o.rest = c[0]
    o.n_rest = n - AFTER_STOP_REASON if n > AFTER_STOP_REASON else 0
    if finish == FINISH_ERROR and n > ERROR_PLACE:
        if mp_skip(c, ERROR_PLACE - AFTER_STOP_REASON) < 0:
            return -1
        if not mp_nil(c) and read_error(c, o) < 0:
            o.code = ERROR_INTERNAL
    return 0


cdef int read_event(Cursor *c, Progress *p) noexcept nogil:
    """`{type, timestamp}`; other keys are passed over."""
    cdef uint32_t pairs, n, k
    cdef const char *key
    cdef int64_t kind = 0
    cdef double timestamp = 0
    cdef int r
    if mp_map(c, &pairs) < 0:
        return -1
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0:
            return -1
        if n == 4 and memcmp(key, b"type", 4) == 0:
            r = mp_int(c, &kind)
        elif n == 9 and memcmp(key, b"timestamp", 9) == 0:
            r = mp_float(c, &timestamp)
        else:
            r = mp_skip(c, 1)
        if r < 0:
            return -1
    if kind == EVENT_QUEUED:
        p.queued_at = timestamp
    elif kind == EVENT_SCHEDULED and p.scheduled_at == 0:
        p.scheduled_at = timestamp
    elif kind == EVENT_PREEMPTED:
        p.preemptions += 1
    return 0


cdef int read_count(Cursor *c, uint32_t *count) noexcept nogil:
    cdef int64_t value
    if mp_int(c, &value) < 0 or value < 0 or value > <int64_t>0xFFFFFFFF:
        return -1
    count[0] = <uint32_t>value
    return 0


cdef int read_prefill(Cursor *c, Progress *p) noexcept nogil:
    cdef uint32_t pairs, n, k
    cdef const char *key
    cdef int r
    if mp_map(c, &pairs) < 0:
        return -1
    for k in range(pairs):
        if mp_str(c, &key, &n) < 0:
            return -1
        if n == 19 and memcmp(key, b"num_computed_tokens", 19) == 0:
            r = read_count(c, &p.computed)
        elif n == 17 and memcmp(key, b"num_cached_tokens", 17) == 0:
            r = read_count(c, &p.cached)
        elif n == 23 and memcmp(key, b"num_local_cached_tokens", 23) == 0:
            r = read_count(c, &p.local_cached)
        elif n == 26 and memcmp(key, b"num_external_cached_tokens", 26) == 0:
            r = read_count(c, &p.external_cached)
        elif n == 25 and memcmp(key, b"num_cache_creation_tokens", 25) == 0:
            r = read_count(c, &p.created)
        else:
            r = mp_skip(c, 1)
        if r < 0:
            return -1
    p.has_prefill = True
    return 0


cdef bint output_progress(const Output *o, Progress *p) noexcept nogil:
    cdef Cursor c = o.rest
    cdef uint32_t events = 0, k
    cdef int r = 0
    memset(p, 0, sizeof(Progress))
    if o.n_rest == 0:
        return False
    if not mp_nil(&c):
        r = mp_array(&c, &events)
        for k in range(events):
            if r == 0:
                r = read_event(&c, p)
    if r == 0 and o.n_rest > AFTER_EVENTS_SKIPPED + 1:
        r = mp_skip(&c, AFTER_EVENTS_SKIPPED)
        if r == 0 and not mp_nil(&c):
            r = read_prefill(&c, p)
    if r < 0:
        memset(p, 0, sizeof(Progress))
        return False
    return events > 0 or p.has_prefill
