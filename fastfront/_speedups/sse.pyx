# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""SSE events and JSON bodies of generations."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_int, buf_put
from fastfront._speedups.call cimport CallC, Choice
from fastfront._speedups.json_escape cimport json_escape
from fastfront._speedups.logprobs cimport completion_clear, completion_put
from fastfront._speedups.output cimport (
    FINISH_ABORT, FINISH_ERROR, FINISH_LENGTH, FINISH_REPETITION, FINISH_STOP, REASON_REPETITION, REASON_STRING, REASON_TOKEN,
)


cdef inline int lit(Buf *b, const char *s) noexcept nogil:
    return buf_put(b, s, strlen(s))


cdef inline int put(Buf *b, const Buf *piece) noexcept nogil:
    return buf_put(b, piece.data, piece.len)


cdef inline const char *finish_name(int finish) noexcept nogil:
    if finish == FINISH_STOP:
        return b'"stop"'
    if finish == FINISH_LENGTH:
        return b'"length"'
    if finish == FINISH_ABORT:
        return b'"abort"'
    if finish == FINISH_REPETITION:
        return b'"repetition"'
    if finish == FINISH_ERROR:
        return b'"error"'
    return b"null"


cdef int put_stop_reason(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    cdef int r = 0
    if ch.reason == REASON_TOKEN:
        return buf_int(out, ch.stop_token)
    if ch.reason == REASON_STRING:
        r |= buf_byte(out, c'"')
        r |= json_escape(out, c.stops.text + c.stops.offset[ch.stop_index], c.stops.length[ch.stop_index])
        return r | buf_byte(out, c'"')
    if ch.reason == REASON_REPETITION:
        return lit(out, b'"repetition_detected"')
    return lit(out, b"null")


cdef int put_ids(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    cdef int r = 0
    if not c.return_ids:
        return lit(out, b"null")
    r |= buf_byte(out, c'[')
    r |= put(out, &ch.ids)
    return r | buf_byte(out, c']')


cdef int put_or_null(Buf *out, const Buf *piece) noexcept nogil:
    return put(out, piece) if piece.len else lit(out, b"null")


cdef int put_logprobs(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    cdef int r = 0
    if c.chat and ch.logprobs.len:
        r |= lit(out, b'{"content":[')
        r |= put(out, &ch.logprobs)
        return r | lit(out, b"]}")
    if not c.chat and ch.lists.offsets.len:
        return completion_put(out, &ch.lists)
    return lit(out, b"null")


cdef int put_usage(Buf *out, uint64_t prompt, uint64_t completion) noexcept nogil:
    cdef int r = lit(out, b'{"prompt_tokens":')
    r |= buf_int(out, <long long>prompt)
    r |= lit(out, b',"total_tokens":')
    r |= buf_int(out, <long long>(prompt + completion))
    r |= lit(out, b',"completion_tokens":')
    return r | buf_int(out, <long long>completion)


cdef int put_count(Buf *out, const char *name, uint64_t count) noexcept nogil:
    return -1 if lit(out, name) < 0 else buf_int(out, <long long>count)


cdef int put_prompt_details(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    """The member `prompt_tokens_details`, of one choice's prompt. Streams leave out what is null."""
    cdef int r = put_count(out, b',"prompt_tokens_details":{"cached_tokens":', ch.cached_tokens)
    if c.chat:
        r |= put_count(out, b',"created_cache_tokens":', ch.created_tokens)
    elif not c.stream:
        r |= lit(out, b',"created_cache_tokens":null')
    if not c.stream:
        r |= lit(out, b',"multimodal_tokens":null')
    return r | buf_byte(out, c'}')


cdef int put_time(Buf *out, const char *name, bint known, double value, bint nulls) noexcept nogil:
    cdef char digits[40]
    cdef int n
    if not known and not nulls:
        return 0
    if out.data[out.len - 1] != c'{' and buf_byte(out, c',') < 0:
        return -1
    if lit(out, name) < 0:
        return -1
    if not known:
        return lit(out, b"null")
    n = snprintf(digits, sizeof(digits), b"%.6f", value)
    return buf_put(out, digits, n)


cdef bint has_metrics(const CallC *c) noexcept nogil:
    return c.metrics or c.choices[0].drafts.len


cdef int put_metrics(Buf *out, const CallC *c, bint nulls) noexcept nogil:
    cdef const Choice *ch = c.choices
    cdef double last = ch.known_at if ch.known_at > 0 else ch.token_at
    cdef double first = ch.first_at if ch.first_at > 0 else last
    cdef double queued = ch.queued_at, scheduled = ch.scheduled_at
    cdef uint32_t n = ch.completion_tokens
    cdef int r = buf_byte(out, c'{')
    cdef bint timed = c.metrics, begun = timed and scheduled > 0 and first > 0
    r |= put_time(out, b'"time_to_first_token_ms":', begun, (first - scheduled) * 1000, nulls)
    r |= put_time(out, b'"generation_time_ms":', timed and first > 0, (last - first) * 1000, nulls)
    r |= put_time(out, b'"queue_time_ms":', timed and queued > 0 and scheduled > 0, (scheduled - queued) * 1000, nulls)
    r |= put_time(out, b'"mean_itl_ms":', timed and first > 0 and n > 1, (last - first) * 1000 / (n - 1) if n > 1 else 0, nulls)
    begun = begun and last > scheduled
    r |= put_time(out, b'"tokens_per_second":', begun, n / (last - scheduled) if begun else 0, nulls)
    if nulls or ch.drafts.len:
        if out.data[out.len - 1] != c'{':
            r |= buf_byte(out, c',')
        r |= lit(out, b'"speculative_decoding":')
        r |= put_or_null(out, &ch.drafts)
    return r | buf_byte(out, c'}')


cdef int chunk_end(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    """What follows the choices of a chunk that carries a choice."""
    cdef int r = 0
    if ch.finished and not c.include_usage and c.fingerprint.len:
        r |= lit(out, b',"system_fingerprint":"')
        r |= put(out, &c.fingerprint)
        r |= buf_byte(out, c'"')
    if c.continuous_usage:
        r |= lit(out, b',"usage":')
        r |= put_usage(out, ch.prompt_tokens, ch.completion_tokens if ch.sent_first else 0)
        r |= buf_byte(out, c'}')
    return r | lit(out, b"}\n\n")


cdef int sse_role(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    cdef int r = put(out, &c.head)
    r |= lit(out, b'{"index":')
    r |= buf_int(out, ch.index)
    r |= lit(out, b',"delta":{"role":"')
    r |= put(out, &c.role)
    r |= lit(out, b'","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":')
    r |= put_or_null(out, &ch.prompt_ids)
    r |= lit(out, b',"prompt_text":null')
    if c.continuous_usage:
        r |= lit(out, b',"usage":')
        r |= put_usage(out, ch.prompt_tokens, 0)
        r |= buf_byte(out, c'}')
    r |= lit(out, b"}\n\n")
    if c.echo_content.len:
        r |= put(out, &c.head)
        r |= lit(out, b'{"index":')
        r |= buf_int(out, ch.index)
        r |= lit(out, b',"delta":{"content":"')
        r |= json_escape(out, c.echo_content.data, c.echo_content.len)
        r |= lit(out, b'"},"logprobs":null,"finish_reason":null}]')
        if c.continuous_usage:
            r |= lit(out, b',"usage":')
            r |= put_usage(out, ch.prompt_tokens, 0)
            r |= buf_byte(out, c'}')
        r |= lit(out, b"}\n\n")
    return r


cdef int sse_delta(Buf *out, const CallC *c, Choice *ch, const char *text, size_t n) noexcept nogil:
    cdef int r = put(out, &c.head)
    r |= lit(out, b'{"index":')
    r |= buf_int(out, ch.index)
    if c.chat:
        r |= lit(out, b',"delta":{"content":"')
        r |= json_escape(out, text, n)
        r |= lit(out, b'"},"logprobs":')
        r |= put_logprobs(out, c, ch)
        r |= lit(out, b',"finish_reason":')
        if ch.finished:
            r |= lit(out, finish_name(ch.finish))
            r |= lit(out, b',"stop_reason":')
            r |= put_stop_reason(out, c, ch)
            r |= lit(out, b',"token_ids":')
        else:
            r |= lit(out, b'null,"token_ids":')
        r |= put_ids(out, c, ch)
        r |= lit(out, b"}]")
    else:
        r |= lit(out, b',"text":"')
        if not ch.sent_first:
            r |= json_escape(out, ch.echo.data, ch.echo.len)
        r |= json_escape(out, text, n)
        r |= lit(out, b'","logprobs":')
        r |= put_logprobs(out, c, ch)
        r |= lit(out, b',"finish_reason":')
        r |= lit(out, finish_name(ch.finish))
        r |= lit(out, b',"stop_reason":')
        r |= put_stop_reason(out, c, ch)
        r |= lit(out, b',"prompt_token_ids":')
        if ch.sent_first:
            r |= lit(out, b"null")
        else:
            r |= put_or_null(out, &ch.prompt_ids)
        r |= lit(out, b',"token_ids":')
        r |= put_ids(out, c, ch)
        r |= lit(out, b"}]")
    ch.sent_first = True
    ch.ids.len = 0
    ch.logprobs.len = 0
    completion_clear(&ch.lists)
    return r | chunk_end(out, c, ch)


cdef int sse_end(Buf *out, const CallC *c) noexcept nogil:
    cdef int r = 0
    if c.include_usage:
        r |= put(out, &c.head)
        r |= lit(out, b'],"usage":')
        r |= put_usage(out, c.prompt_tokens, c.completion_tokens)
        if c.prompt_details:
            r |= put_prompt_details(out, c, c.choices)
        r |= buf_byte(out, c'}')
        if c.fingerprint.len:
            r |= lit(out, b',"system_fingerprint":"')
            r |= put(out, &c.fingerprint)
            r |= buf_byte(out, c'"')
        if has_metrics(c):
            r |= lit(out, b',"metrics":')
            r |= put_metrics(out, c, False)
        r |= lit(out, b"}\n\n")
    return r | lit(out, b"data: [DONE]\n\n")


cdef int json_choice(Buf *out, const CallC *c, const Choice *ch) noexcept nogil:
    cdef int r = lit(out, b'{"index":')
    r |= buf_int(out, ch.index)
    if c.chat:
        r |= lit(out, b',"message":{"role":"')
        r |= put(out, &c.role)
        r |= lit(out, b'","content":"')
        r |= json_escape(out, c.echo_content.data, c.echo_content.len)
        r |= json_escape(out, ch.text.data, ch.text.len)
        r |= lit(out, b'","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":')
    else:
        r |= lit(out, b',"text":"')
        r |= json_escape(out, ch.echo.data, ch.echo.len)
        r |= json_escape(out, ch.text.data, ch.text.len)
        r |= lit(out, b'","logprobs":')
    r |= put_logprobs(out, c, ch)
    r |= lit(out, b',"finish_reason":')
    r |= lit(out, finish_name(ch.finish))
    r |= lit(out, b',"stop_reason":')
    r |= put_stop_reason(out, c, ch)
    r |= lit(out, b',"token_ids":')
    r |= put_ids(out, c, ch)
    if not c.chat:
        r |= lit(out, b',"prompt_logprobs":')
        r |= put_or_null(out, &ch.prompt_logprobs)
        r |= lit(out, b',"prompt_token_ids":')
        r |= put_or_null(out, &ch.prompt_ids)
    return r | lit(out, b',"routed_experts":null}')


cdef int json_body(Buf *out, const CallC *c) noexcept nogil:
    cdef uint32_t i
    cdef int r = put(out, &c.head)
    for i in range(c.n_choices):
        if i:
            r |= buf_byte(out, c',')
        r |= json_choice(out, c, &c.choices[i])
    r |= lit(out, b'],"service_tier":null,"system_fingerprint":')
    if c.fingerprint.len:
        r |= buf_byte(out, c'"')
        r |= put(out, &c.fingerprint)
        r |= buf_byte(out, c'"')
    else:
        r |= lit(out, b"null")
    r |= lit(out, b',"usage":')
    r |= put_usage(out, c.prompt_tokens, c.completion_tokens)
    if c.prompt_details:
        r |= put_prompt_details(out, c, &c.choices[c.n_choices - 1])
    else:
        r |= lit(out, b',"prompt_tokens_details":null')
    r |= lit(out, b',"completion_tokens_details":null}')
    if c.chat:
        r |= lit(out, b',"prompt_logprobs":')
        r |= put_or_null(out, &c.choices[0].prompt_logprobs)
        r |= lit(out, b',"prompt_token_ids":')
        r |= put_or_null(out, &c.choices[0].prompt_ids)
        r |= lit(out, b',"prompt_text":null')
    r |= lit(out, b',"kv_transfer_params":null,"ec_transfer_params":null,"metrics":')
    r |= put_metrics(out, c, True) if has_metrics(c) else lit(out, b"null")
    return r | buf_byte(out, c'}')
