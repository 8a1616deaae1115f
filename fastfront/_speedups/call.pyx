# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Building a Call from a PreparedCall: everything the lane needs later without running Python."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from fastfront._speedups.buffers cimport Buf, buf_byte, buf_free, buf_init, buf_int, buf_put, buf_reserve
from fastfront._speedups.clocks cimport monotonic
from fastfront._speedups.detokenizer cimport detok_free, detok_init, detok_prime
from fastfront._speedups.json_escape cimport json_escape
from fastfront._speedups.logprobs cimport completion_free, context_add
from fastfront._speedups.msgpack cimport mpw_object
from fastfront._speedups.msgpack_raw cimport mpw_array, mpw_bool, mpw_float, mpw_int, mpw_map, mpw_nil, mpw_str
from fastfront._speedups.output cimport FINISH_NONE
from fastfront._speedups.prepared cimport PreparedCall, PreparedPrompt
from fastfront._speedups.stop_matcher cimport stops_free, stops_new, stops_state_free, stops_state_init
from fastfront._speedups.token_ids cimport packed_count, packed_ids
from fastfront._speedups.vocabulary cimport Vocabulary

cdef enum:
    ADD_BYTES = 256             # about what an ADD message takes besides ids
    HEAD_BYTES = 192            # about what an answer has up to its choices
    MOST_INTERVAL = 0x7fffffff  # tokens per event
    PRIME_TOKENS = 8            # a character has at most 4 bytes, so the last 8 prompt ids hold any unfinished one


cdef int check(int result) except -1:
    if result < 0:
        raise MemoryError
    return 0


cdef int put_str(Buf *b, str text) except -1:
    cdef Py_ssize_t n
    cdef const char *s = PyUnicode_AsUTF8AndSize(text, &n)
    return check(buf_put(b, s, n))


cdef int put_escaped(Buf *b, str text) except -1:
    cdef Py_ssize_t n
    cdef const char *s = PyUnicode_AsUTF8AndSize(text, &n)
    return check(json_escape(b, s, n))


cdef int pack_str(Buf *b, str text) except -1:
    cdef Py_ssize_t n
    cdef const char *s = PyUnicode_AsUTF8AndSize(text, &n)
    return check(mpw_str(b, s, <unsigned int>n))


cdef int pack_optional_str(Buf *b, object text) except -1:
    if text is None:
        return check(mpw_nil(b))
    return pack_str(b, text)


cdef int pack_ready(Buf *b, bytes encoded) except -1:
    """What is encoded already; None: nil."""
    if encoded is None:
        return check(mpw_nil(b))
    return check(buf_put(b, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded)))


cdef void call_release(CallC *c) noexcept:
    cdef uint32_t i
    cdef Choice *ch
    if c.choices != NULL:
        for i in range(c.n_choices):
            ch = &c.choices[i]
            detok_free(&ch.detok)
            stops_state_free(&ch.stop)
            buf_free(&ch.text)
            buf_free(&ch.ids)
            buf_free(&ch.echo)
            buf_free(&ch.prompt_ids)
            buf_free(&ch.logprobs)
            completion_free(&ch.lists)
            buf_free(&ch.prompt_logprobs)
            buf_free(&ch.add)
            buf_free(&ch.wire_id)
            buf_free(&ch.drafts)
        free(c.choices)
        c.choices = NULL
    if c.stops != NULL:
        stops_free(c.stops)
        c.stops = NULL
    buf_free(&c.head)
    buf_free(&c.role)
    buf_free(&c.fingerprint)
    buf_free(&c.echo_content)


cdef int pack_add(
    Buf *b, PreparedCall prepared, PreparedPrompt prompt, uint32_t child, double arrival, uint32_t client_index
) except -1:
    """Fields 1..21 of EngineCoreRequest; the request id (field 0) is written when the stream has its slot."""
    cdef dict sampling = prepared.sampling
    cdef object seed = prepared.seed
    cdef const int32_t *ids = packed_ids(prompt.ids)
    cdef Py_ssize_t k, n = packed_count(prompt.ids)
    check(buf_reserve(b, 5 * n + ADD_BYTES))
    check(mpw_array(b, <uint32_t>n))
    for k in range(n):
        check(mpw_int(b, ids[k]))
    check(mpw_nil(b))                                                       # 2 mm_features
    check(mpw_map(b, <uint32_t>(len(sampling) + 1 + (seed is not None))))   # 3 sampling_params
    for key, value in sampling.items():
        pack_str(b, key)
        mpw_object(b, value)
    pack_str(b, "max_tokens")
    check(mpw_int(b, prompt.max_tokens))
    if seed is not None:
        pack_str(b, "seed")
        mpw_object(b, seed + child)
    check(mpw_nil(b))                                                       # 4 pooling_params
    check(mpw_float(b, arrival))                                            # 5
    pack_ready(b, prepared.lora_request)                                    # 6
    pack_optional_str(b, prepared.cache_salt)                               # 7
    mpw_object(b, prepared.data_parallel_rank)                              # 8
    check(mpw_nil(b))                                                       # 9 prompt_embeds
    check(mpw_nil(b))                                                       # 10 prompt_is_token_ids
    check(mpw_int(b, client_index))                                         # 11
    check(mpw_int(b, -1))                                                   # 12 current_wave: an idle rank wakes the others itself
    check(mpw_int(b, prepared.priority))                                    # 13
    check(mpw_nil(b))                                                       # 14 trace_headers
    check(mpw_bool(b, False))                                               # 15 resumable
    pack_str(b, prepared.external_id)                                       # 16
    mpw_object(b, prepared.reasoning_ended)                                 # 17
    mpw_object(b, prepared.reasoning_kwargs)                                # 18
    check(mpw_bool(b, False))                                               # 19 abort_immediately
    check(mpw_nil(b))                                                       # 20 session_id
    return check(mpw_nil(b))                                                # 21 kv_hints


cdef int json_ids(Buf *b, const int32_t *ids, Py_ssize_t n) except -1:
    cdef Py_ssize_t k
    check(buf_byte(b, c'['))
    for k in range(n):
        if k:
            check(buf_byte(b, c','))
        check(buf_int(b, ids[k]))
    return check(buf_byte(b, c']'))


cdef class Call:
    """One request for generation on its way through a lane.

    `engines` gives the engine index of every choice (prompt index * n + i), `client_index` the lane's number on the wire,
    `headers` response headers besides the pump's.
    Raises ValueError for an empty stop string and OverflowError for sampling values beyond 64 bits.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(CallC))
        self.c.owner = <void *>self

    def __init__(self, PreparedCall prepared not None, Vocabulary vocabulary, object protocol, list engines, int client_index, str fingerprint,
                 double arrival_time, object on_end=None, list headers=None):
        self.build(prepared, vocabulary, protocol, engines, client_index, fingerprint, arrival_time, on_end, headers)

    cdef int build(
        self, PreparedCall prepared, Vocabulary vocabulary, object protocol, list engines, int client_index, str fingerprint,
        double arrival_time, object on_end, list headers) except -1:
        cdef CallC *c = &self.c
        cdef uint32_t n = <uint32_t>prepared.n, i, j
        cdef list prompts = prepared.prompts
        cdef const int32_t *ids
        cdef PreparedPrompt prompt
        cdef Choice *ch
        cdef int64_t prime[PRIME_TOKENS]
        cdef Py_ssize_t k, start, n_ids
        cdef str kind
        self.vocabulary = vocabulary
        self.protocol = protocol
        self.on_end = on_end
        self.headers = headers
        self.sink = prepared.sink
        c.has_sink = prepared.sink is not None
        self.external_id = prepared.external_id
        self.adapter = None if prepared.lora_request is None else prepared.model
        self.arrival_time = arrival_time
        c.chat = prepared.kind == "chat"
        c.stream = prepared.stream
        c.include_usage = prepared.include_usage
        c.continuous_usage = prepared.continuous_usage and prepared.include_usage
        c.return_ids = prepared.return_token_ids
        c.prompt_details = prepared.prompt_details
        c.metrics = prepared.metrics and n == 1 and len(prompts) == 1
        c.interval = <uint32_t>min(prepared.stream_interval, MOST_INTERVAL)
        c.include_stop = prepared.include_stop_str_in_output
        c.hide_output = prepared.hide_output
        c.wants_logprobs = prepared.logprobs is not None
        c.top = prepared.logprobs if c.wants_logprobs else 0
        c.prompt_top = prepared.prompt_logprobs if prepared.prompt_logprobs is not None else 0
        c.echo_logprobs = prepared.echo_logprobs
        c.tokens_as_ids = prepared.tokens_as_ids
        if c.choices != NULL:
            raise RuntimeError("a Call is built once")
        c.n_choices = <uint32_t>len(prompts) * n
        c.remaining = c.n_choices
        c.n = n
        self.passages = [None] * c.n_choices if c.has_sink else None
        c.choices = <Choice *>calloc(c.n_choices, sizeof(Choice))
        if c.choices == NULL:
            raise MemoryError
        put_escaped(&c.role, prepared.role)
        put_escaped(&c.fingerprint, fingerprint)
        put_str(&c.echo_content, prepared.echo_content)
        if c.chat:
            kind = "chat.completion.chunk" if c.stream else "chat.completion"
        else:
            kind = "text_completion"
        check(buf_reserve(&c.head, HEAD_BYTES))
        put_str(&c.head, 'data: {"id":"' if c.stream else '{"id":"')
        put_escaped(&c.head, prepared.external_id)
        put_str(&c.head, '","object":"' + kind + '","created":')
        check(buf_int(&c.head, prepared.created))
        put_str(&c.head, ',"model":"')
        put_escaped(&c.head, prepared.model)
        put_str(&c.head, '","choices":[')
        if prepared.stop:
            c.stops = stops_new(prepared.stop)
        for i in range(<uint32_t>len(prompts)):
            prompt = prompts[i]
            ids = packed_ids(prompt.ids)
            n_ids = packed_count(prompt.ids)
            c.prompt_tokens += <uint64_t>n_ids
            start = max(0, n_ids - PRIME_TOKENS)
            for k in range(start, n_ids):
                prime[k - start] = ids[k]
            for j in range(n):
                ch = &c.choices[i * n + j]
                ch.call = c
                ch.index = i * n + j
                ch.engine = engines[ch.index]
                ch.finish = FINISH_NONE
                ch.prompt_tokens = <uint32_t>n_ids
                ch.min_tokens = prepared.min_tokens
                ch.max_tokens = prompt.max_tokens
                detok_init(&ch.detok, vocabulary, prepared.skip_special_tokens, True)
                detok_prime(vocabulary, &ch.detok, prime, n_ids - start)
                if c.stops != NULL:
                    check(stops_state_init(c.stops, &ch.stop))
                ch.first_prompt_id = ids[0] if n_ids else -1
                if c.wants_logprobs:
                    for k in range(n_ids - start):
                        context_add(&ch.context, prime[k])
                put_str(&ch.echo, prompt.echo_text)
                if c.return_ids or (c.stream and not c.chat and prompt.echo_text):
                    json_ids(&ch.prompt_ids, ids, n_ids)
                pack_add(&ch.add, prepared, prompt, j, arrival_time, client_index)
        c.ready_at = monotonic()
        return 0

    def __dealloc__(self):
        call_release(&self.c)

    @property
    def choices(self) -> int:
        """How many choices the answer has."""
        return self.c.n_choices

    @property
    def stream(self) -> bool:
        return self.c.stream

    @property
    def started(self) -> bool:
        """Part of the answer has been produced, so an error can no longer be a status line."""
        return self.c.started

    @property
    def ended(self) -> bool:
        return self.c.ended

    @property
    def usage(self) -> tuple:
        """(prompt tokens, completion tokens of the finished choices)."""
        return self.c.prompt_tokens, self.c.completion_tokens

    @property
    def awaits_token(self) -> bool:
        """Whether a choice has no token yet. Any thread, as of just now; meaningful from `attach` until its end."""
        return self.c.tokenless > 0

    @property
    def has_token(self) -> bool:
        """Whether a choice that has tokens is being generated. As above."""
        return self.c.remaining > self.c.tokenless

    @property
    def first_token_s(self):
        """Seconds from the request's arrival until the first choice's first token came; None before."""
        cdef Choice *ch = self.c.choices
        return max(0.0, ch.first_here_at - self.c.arrived_at) if ch != NULL and ch.first_here_at > 0 else None

    @property
    def phases(self) -> tuple:
        """Seconds that the first choice spent in (queue, prefill, decode) by its engine's clock; None for what is not known.

        Meaningful from its last token until the end of on_end.
        """
        cdef Choice *ch = self.c.choices
        if ch == NULL:
            return None, None, None
        return (
            max(0.0, ch.scheduled_at - ch.queued_at) if ch.queued_at > 0 and ch.scheduled_at > 0 else None,
            max(0.0, ch.first_at - ch.scheduled_at) if ch.scheduled_at > 0 and ch.first_at > 0 else None,
            max(0.0, ch.token_at - ch.first_at) if ch.first_at > 0 else None,
        )
