# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""llhttp's callbacks: they put what it finds into a Message."""
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_put


cdef extern from "vendor/llhttp/llhttp.h" nogil:
    ctypedef int (*llhttp_cb)(llhttp_t *) noexcept
    ctypedef int (*llhttp_data_cb)(llhttp_t *, const char *, size_t) noexcept
    ctypedef struct llhttp_settings_t:
        llhttp_data_cb on_url
        llhttp_data_cb on_header_field
        llhttp_data_cb on_header_value
        llhttp_cb on_header_field_complete
        llhttp_cb on_header_value_complete
        llhttp_cb on_headers_complete
        llhttp_data_cb on_body
        llhttp_cb on_message_complete
    ctypedef enum llhttp_errno_t:
        HPE_OK
        HPE_PAUSED
        HPE_USER
    ctypedef enum llhttp_type_t:
        HTTP_REQUEST
    ctypedef enum llhttp_method_t:
        pass
    int F_CHUNKED
    int F_CONTENT_LENGTH
    void llhttp_settings_init(llhttp_settings_t *)
    void llhttp_init(llhttp_t *, llhttp_type_t, const llhttp_settings_t *)
    llhttp_errno_t llhttp_execute(llhttp_t *, const char *, size_t)
    const char *llhttp_get_error_pos(const llhttp_t *)
    void llhttp_resume(llhttp_t *)
    int llhttp_should_keep_alive(const llhttp_t *)
    const char *llhttp_method_name(llhttp_method_t)


cdef llhttp_settings_t SETTINGS         # written once, below; read by all threads


cdef inline Message *message_of(llhttp_t *parser) noexcept nogil:
    return <Message *>parser.data


cdef int put_head(Message *m, const char *at, size_t n) noexcept nogil:
    if m.head.len + n > HEAD_LIMIT:
        m.large = True
        return HPE_USER
    if buf_put(&m.head, at, n) < 0:
        m.no_memory = True
        return HPE_USER
    return 0


cdef int on_url(llhttp_t *parser, const char *at, size_t n) noexcept nogil:
    cdef Message *m = message_of(parser)
    m.target_len += <uint32_t>n
    return put_head(m, at, n)


cdef int on_header_field(llhttp_t *parser, const char *at, size_t n) noexcept nogil:
    cdef Message *m = message_of(parser)
    cdef Field *f
    cdef size_t k
    cdef void *p
    cdef char c
    if m.head_complete:
        return 0                        # trailers say nothing that is asked for
    if m.n_fields == m.cap_fields:
        if m.cap_fields == FIELDS_LIMIT:
            m.large = True
            return HPE_USER
        p = realloc(m.fields, (m.cap_fields + 32) * sizeof(Field))
        if p == NULL:
            m.no_memory = True
            return HPE_USER
        m.fields = <Field *>p
        memset(m.fields + m.cap_fields, 0, 32 * sizeof(Field))
        m.cap_fields += 32
    f = &m.fields[m.n_fields]
    if f.name_len == 0:
        f.name = <uint32_t>m.head.len
    f.name_len += <uint32_t>n
    if put_head(m, at, n) != 0:
        return HPE_USER
    for k in range(m.head.len - n, m.head.len):
        c = m.head.data[k]
        if c'A' <= c <= c'Z':
            m.head.data[k] = c + 32
    return 0


cdef int on_header_value(llhttp_t *parser, const char *at, size_t n) noexcept nogil:
    cdef Message *m = message_of(parser)
    cdef Field *f
    if m.head_complete:
        return 0
    f = &m.fields[m.n_fields]
    if f.value_len == 0:
        f.value = <uint32_t>m.head.len
    f.value_len += <uint32_t>n
    return put_head(m, at, n)


cdef int on_header_value_complete(llhttp_t *parser) noexcept nogil:
    cdef Message *m = message_of(parser)
    cdef Field *f
    if m.head_complete:
        return 0
    f = &m.fields[m.n_fields]
    while f.value_len and (m.head.data[f.value + f.value_len - 1] == c' ' or m.head.data[f.value + f.value_len - 1] == c'\t'):
        f.value_len -= 1
    if f.name_len == 6 and is_text(m, f.name, f.name_len, b"expect") and is_text(m, f.value, f.value_len, b"100-continue"):
        m.expects = True
    if f.name_len == 17 and is_text(m, f.name, f.name_len, b"transfer-encoding") and not is_text(m, f.value, f.value_len, b"chunked"):
        return HPE_USER                 # no other coding is undone here
    m.n_fields += 1
    return 0


cdef bint is_text(const Message *m, uint32_t at, uint32_t n, const char *lower) noexcept nogil:
    """Whether head[at:at+n], in lower case, is a text."""
    cdef uint32_t k
    cdef char c
    for k in range(n):
        c = m.head.data[at + k]
        if c'A' <= c <= c'Z':
            c += 32
        if lower[k] != c:               # a shorter `lower` ends in NUL, which no header has
            return False
    return lower[n] == 0


cdef int on_headers_complete(llhttp_t *parser) noexcept nogil:
    cdef Message *m = message_of(parser)
    if m.target_len == 0 or parser.http_major != 1:
        return -1                       # HTTP/0.9, or a CONNECT to nowhere
    m.head_complete = True
    m.keep_alive = llhttp_should_keep_alive(parser) != 0
    m.chunked = (parser.flags & F_CHUNKED) != 0
    if parser.http_minor == 0:
        if m.chunked:
            return -1                   # a proxy of that time would not see where the body ends
        m.expects = False
    m.sized = (parser.flags & F_CONTENT_LENGTH) != 0
    m.announced = parser.content_length if m.sized else 0
    parser.upgrade = 0                  # offers of other protocols are ignored
    return 0


cdef int on_body(llhttp_t *parser, const char *at, size_t n) noexcept nogil:
    cdef Message *m = message_of(parser)
    m.carried += n
    if m.discard:
        m.dropped += n
        return 0
    if buf_put(&m.body, at, n) < 0:
        m.no_memory = True
        return HPE_USER
    return 0


cdef int on_message_complete(llhttp_t *parser) noexcept nogil:
    message_of(parser).complete = True
    return HPE_PAUSED


cdef void message_init(Message *m) noexcept nogil:
    memset(m, 0, sizeof(Message))
    llhttp_init(&m.parser, HTTP_REQUEST, &SETTINGS)
    m.parser.data = m


cdef void message_free(Message *m) noexcept nogil:
    buf_free(&m.head)
    buf_free(&m.body)
    free(m.fields)
    m.fields = NULL
    m.n_fields = 0
    m.cap_fields = 0


cdef void message_next(Message *m) noexcept nogil:
    m.head.len = 0
    m.body.len = 0
    m.target_len = 0
    if m.fields != NULL:
        memset(m.fields, 0, m.cap_fields * sizeof(Field))
    m.n_fields = 0
    m.begun = False
    m.head_complete = False
    m.complete = False
    m.sized = False
    m.chunked = False
    m.expects = False
    m.discard = False
    m.announced = 0
    m.dropped = 0
    m.carried = 0
    m.framed = 0
    llhttp_resume(&m.parser)


cdef MessageState message_feed(Message *m, const char *data, size_t n, size_t *used) noexcept nogil:
    cdef llhttp_errno_t error = llhttp_execute(&m.parser, data, n)
    m.begun = True
    if error == HPE_OK:
        used[0] = n
        if m.chunked:
            m.framed += n
            if m.framed > HEAD_LIMIT + FRAMING * m.carried:
                return MESSAGE_LARGE_HEAD
        return MESSAGE_MORE
    used[0] = llhttp_get_error_pos(&m.parser) - data
    if error == HPE_PAUSED and m.complete:
        return MESSAGE_COMPLETE
    if m.no_memory:
        return MESSAGE_MEMORY
    return MESSAGE_LARGE_HEAD if m.large else MESSAGE_BAD


cdef const char *message_method(const Message *m) noexcept nogil:
    return llhttp_method_name(<llhttp_method_t>m.parser.method)


llhttp_settings_init(&SETTINGS)
SETTINGS.on_url = on_url
SETTINGS.on_header_field = on_header_field
SETTINGS.on_header_value = on_header_value
SETTINGS.on_header_value_complete = on_header_value_complete
SETTINGS.on_headers_complete = on_headers_complete
SETTINGS.on_body = on_body
SETTINGS.on_message_complete = on_message_complete


def parse_requests(list pieces not None):
    """What a connection that receives these pieces has asked for: a list of (method, target, {name: value}, body, keep_alive),
    and how it ended: "more", "bad", "large" or "closed" (the last request asked for that). For tests and fuzzing."""
    cdef Message m
    cdef MessageState state
    cdef size_t used = 0
    cdef bytes data
    cdef list found = []
    cdef Field *f
    cdef uint32_t k
    message_init(&m)
    try:
        for data in pieces:
            while data:
                state = message_feed(&m, data, len(data), &used)
                data = data[used:]
                if state == MESSAGE_MEMORY:
                    raise MemoryError
                if state == MESSAGE_BAD:
                    return found, "bad"
                if state == MESSAGE_LARGE_HEAD:
                    return found, "large"
                if state == MESSAGE_COMPLETE:
                    names = {}
                    for k in range(m.n_fields):
                        f = &m.fields[k]
                        name = m.head.data[f.name:f.name + f.name_len]
                        names.setdefault(name.decode("latin-1"), m.head.data[f.value:f.value + f.value_len].decode("latin-1"))
                    found.append((message_method(&m).decode(), m.head.data[:m.target_len].decode("latin-1"), names,
                                  m.body.data[:m.body.len] if m.body.len else b"", bool(m.keep_alive)))
                    if not m.keep_alive:
                        return found, "closed"
                    message_next(&m)
        return found, "more"
    finally:
        message_free(&m)
