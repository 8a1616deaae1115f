# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""ZMTP 3.1 without sockets."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove, memset

from fastfront._speedups.buffers cimport Buf, array_reserve, buf_free, buf_init, buf_put, buf_reserve


cdef enum State:
    GREETING
    HANDSHAKE
    OPEN
    BROKEN

cdef enum:
    GREETING_BYTES = 64
    AT_MAJOR = 10
    AT_MECHANISM = 12
    MECHANISM_BYTES = 20
    MORE_FLAG = 1
    LONG_FLAG = 2
    COMMAND_FLAG = 4
    READ_BYTES = 128 << 10          # there is always room for so many
    KEPT_BYTES = 4 << 20            # a larger buffer is given back when it is empty
    MAX_COMMAND = 64 << 10
    MAX_PONGS = 64 << 10            # bytes of output beyond which a peer that asks without reading is not answered


cdef int bad(Zmtp *z, const char *fault) noexcept nogil:
    z.state = BROKEN
    z.fault = fault
    return ZMTP_BAD


cdef int zmtp_init(Zmtp *z, bint router) noexcept nogil:
    cdef char greeting[GREETING_BYTES]
    memset(z, 0, sizeof(Zmtp))
    z.router = router
    memset(greeting, 0, GREETING_BYTES)
    greeting[0] = <char>0xFF
    greeting[9] = 0x7F
    greeting[AT_MAJOR] = 3
    greeting[AT_MAJOR + 1] = 1
    memcpy(greeting + AT_MECHANISM, <const char *>b"NULL", 4)
    return buf_put(&z.output, greeting, GREETING_BYTES)


cdef void zmtp_free(Zmtp *z) noexcept nogil:
    buf_free(&z.input)
    buf_free(&z.output)
    free(z.frames)
    z.frames = NULL


cdef bint zmtp_is_open(const Zmtp *z) noexcept nogil:
    return z.state == OPEN


cdef char *zmtp_space(Zmtp *z, size_t *n) noexcept nogil:
    if z.begin and z.input.cap - z.input.len < READ_BYTES:
        memmove(z.input.data, z.input.data + z.begin, z.input.len - z.begin)
        z.input.len -= z.begin
        z.scanned -= z.begin
        z.begin = 0
    if buf_reserve(&z.input, READ_BYTES) < 0:
        return NULL
    n[0] = z.input.cap - z.input.len
    return z.input.data + z.input.len


cdef void zmtp_took(Zmtp *z, size_t n) noexcept nogil:
    z.input.len += n


cdef const unsigned char *zmtp_frame(const Zmtp *z, size_t k) noexcept nogil:
    return <const unsigned char *>z.input.data + z.begin + z.frames[k].at


cdef void zmtp_release(Zmtp *z) noexcept nogil:
    z.whole = False
    z.n_frames = 0
    z.begin = z.scanned
    if z.begin == z.input.len:
        z.begin = z.scanned = z.input.len = 0
        if z.input.cap > KEPT_BYTES:
            buf_free(&z.input)
            buf_init(&z.input)


cdef uint64_t big_endian(const unsigned char *p, int n) noexcept nogil:
    cdef uint64_t v = 0
    cdef int i
    for i in range(n):
        v = (v << 8) | p[i]
    return v


cdef int put_header(Buf *b, uint8_t flags, size_t n) noexcept nogil:
    cdef unsigned char header[9]
    cdef int i
    if n < 256:
        header[0] = flags
        header[1] = <unsigned char>n
        return buf_put(b, <const char *>header, 2)
    header[0] = flags | LONG_FLAG
    for i in range(8):
        header[1 + i] = <unsigned char>(<uint64_t>n >> (56 - 8 * i))
    return buf_put(b, <const char *>header, 9)


cdef int zmtp_put(Zmtp *z, const char *p, size_t n, bint more) noexcept nogil:
    if put_header(&z.output, MORE_FLAG if more else 0, n) < 0:
        return -1
    return buf_put(&z.output, p, n)


cdef int put_command(Zmtp *z, const char *name, size_t n_name, const char *body, size_t n) noexcept nogil:
    cdef char length = <char>n_name
    if put_header(&z.output, COMMAND_FLAG, 1 + n_name + n) < 0:
        return -1
    cdef int r = buf_put(&z.output, &length, 1)
    r |= buf_put(&z.output, name, n_name)
    return r | buf_put(&z.output, body, n)


cdef int zmtp_ping(Zmtp *z) noexcept nogil:
    return put_command(z, b"PING", 4, b"\0\0", 2)          # time to live 0: the peer need not give us up


cdef int greet(Zmtp *z) noexcept nogil:
    """ZMTP_MESSAGE when the greeting is complete and has been answered."""
    cdef const unsigned char *p = <const unsigned char *>z.input.data
    cdef char mechanism[MECHANISM_BYTES]
    cdef int r
    if z.input.len and p[0] != 0xFF:
        return bad(z, b"it does not speak ZeroMQ")
    if z.input.len > 9 and not p[9] & 1:
        return bad(z, b"it does not speak ZeroMQ")
    if z.input.len > AT_MAJOR and p[AT_MAJOR] < 3:
        return bad(z, b"it speaks ZMTP before version 3")
    if z.input.len < GREETING_BYTES:
        return ZMTP_MORE
    memset(mechanism, 0, MECHANISM_BYTES)
    memcpy(mechanism, <const char *>b"NULL", 4)
    if memcmp(p + AT_MECHANISM, mechanism, MECHANISM_BYTES) != 0:
        return bad(z, b"it asks for a security mechanism other than NULL")
    z.scanned = z.begin = GREETING_BYTES
    z.state = HANDSHAKE
    if z.router:
        r = put_command(z, b"READY", 5, b"\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0", 35)
    else:
        r = put_command(z, b"READY", 5, b"\x0bSocket-Type\0\0\0\x04PULL", 20)
    return ZMTP_MEMORY if r < 0 else ZMTP_MESSAGE


cdef bint is_name(const unsigned char *p, size_t n, const char *name, size_t n_name) noexcept nogil:
    """Names of properties ignore case."""
    cdef size_t i
    if n != n_name:
        return False
    for i in range(n):
        if (p[i] | 0x20) != (<unsigned char>name[i] | 0x20):
            return False
    return True


cdef int take_ready(Zmtp *z, const unsigned char *p, size_t size) noexcept nogil:
    """The properties of READY: name and value of each, with their lengths in 1 and 4 bytes."""
    cdef const unsigned char *end = p + size
    cdef const unsigned char *name
    cdef size_t n_name, n
    cdef bint matches = False
    while p < end:
        n_name = p[0]
        if <size_t>(end - p) < 1 + n_name + 4:
            return bad(z, b"its READY is cut short")
        name = p + 1
        n = <size_t>big_endian(name + n_name, 4)
        p = name + n_name + 4
        if <size_t>(end - p) < n:
            return bad(z, b"its READY is cut short")
        if is_name(name, n_name, b"Socket-Type", 11):
            matches = (n == 6 and memcmp(p, <const char *>b"DEALER", 6) == 0) if z.router else (
                n == 4 and memcmp(p, <const char *>b"PUSH", 4) == 0)
        elif is_name(name, n_name, b"Identity", 8):
            if n > sizeof(z.identity):
                return bad(z, b"its identity is too long")
            memcpy(z.identity, p, n)
            z.identity_len = n
        p += n
    if not matches:
        return bad(z, b"its socket is of another type than an engine's")
    z.state = OPEN
    return ZMTP_MORE


cdef int take_command(Zmtp *z, const unsigned char *p, size_t size) noexcept nogil:
    cdef size_t n_name
    if size == 0 or size - 1 < p[0]:
        return bad(z, b"a command without a name")
    n_name = p[0]
    if z.state == HANDSHAKE:
        if n_name == 5 and memcmp(p + 1, <const char *>b"READY", 5) == 0:
            return take_ready(z, p + 6, size - 6)
        return bad(z, b"it does not say READY")
    if n_name == 4 and memcmp(p + 1, <const char *>b"PING", 4) == 0 and size >= 7 and z.output.len < MAX_PONGS:
        if put_command(z, b"PONG", 4, <const char *>p + 7, size - 7) < 0:
            return ZMTP_MEMORY
    return ZMTP_MORE                            # others mean nothing here, PONG least of all: that bytes came was enough


cdef int add_frame(Zmtp *z, size_t at, size_t size) noexcept nogil:
    if array_reserve(<void **>&z.frames, &z.cap_frames, z.n_frames + 1, sizeof(Frame)) < 0:
        return -1
    z.frames[z.n_frames].at = at - z.begin
    z.frames[z.n_frames].size = size
    z.n_frames += 1
    return 0


cdef int zmtp_next(Zmtp *z) noexcept nogil:
    cdef const unsigned char *p
    cdef size_t have, header
    cdef uint64_t size
    cdef uint8_t flags
    cdef int r
    if z.whole:
        return ZMTP_MESSAGE
    if z.state == BROKEN:
        return ZMTP_BAD
    if z.state == GREETING:
        r = greet(z)
        if r != ZMTP_MESSAGE:
            return r
    while True:
        p = <const unsigned char *>z.input.data + z.scanned
        have = z.input.len - z.scanned
        if have < 2:
            return ZMTP_MORE
        flags = p[0]
        if flags & ~(MORE_FLAG | LONG_FLAG | COMMAND_FLAG) or (flags & COMMAND_FLAG and flags & MORE_FLAG):
            return bad(z, b"a frame with unknown flags")
        if z.state != OPEN and not flags & COMMAND_FLAG:
            return bad(z, b"a message before READY")
        header = 9 if flags & LONG_FLAG else 2
        if have < header:
            return ZMTP_MORE
        size = big_endian(p + 1, 8) if flags & LONG_FLAG else p[1]
        if flags & COMMAND_FLAG and size > MAX_COMMAND:
            return bad(z, b"a command that is too long")
        if have - header < size:
            return ZMTP_MORE
        z.scanned += header + <size_t>size
        if flags & COMMAND_FLAG:
            r = take_command(z, p + header, <size_t>size)
            if r < 0:
                return r
            if z.n_frames == 0:
                z.begin = z.scanned
            continue
        if add_frame(z, z.scanned - <size_t>size, <size_t>size) < 0:
            return ZMTP_MEMORY
        if not flags & MORE_FLAG:
            z.whole = True
            return ZMTP_MESSAGE


cdef class ZmtpConnection:
    """One connection for tests: no sockets, bytes in and out. One thread at a time."""
    cdef Zmtp z

    def __cinit__(self, *, bint router):
        if zmtp_init(&self.z, router) < 0:
            raise MemoryError

    def __dealloc__(self):
        zmtp_free(&self.z)

    @property
    def identity(self) -> bytes:
        return PyBytes_FromStringAndSize(<const char *>self.z.identity, self.z.identity_len)

    @property
    def open(self) -> bool:
        return zmtp_is_open(&self.z)

    def feed(self, const unsigned char[::1] data not None) -> list[list[bytes]]:
        """Takes what the peer has sent; returns the messages that are complete. Raises ValueError with what is wrong."""
        cdef size_t at = 0, n = 0, k
        cdef char *p
        cdef int r
        cdef list messages = []
        while at < <size_t>data.shape[0]:
            p = zmtp_space(&self.z, &n)
            if p == NULL:
                raise MemoryError
            n = min(n, <size_t>data.shape[0] - at)
            memcpy(p, &data[at], n)
            zmtp_took(&self.z, n)
            at += n
            while True:
                r = zmtp_next(&self.z)
                if r != ZMTP_MESSAGE:
                    break
                messages.append([
                    PyBytes_FromStringAndSize(<const char *>zmtp_frame(&self.z, k), self.z.frames[k].size)
                    for k in range(self.z.n_frames)
                ])
                zmtp_release(&self.z)
            if r == ZMTP_MEMORY:
                raise MemoryError
            if r == ZMTP_BAD:
                raise ValueError((<bytes>self.z.fault).decode())
        return messages

    def put(self, list frames not None) -> None:
        """A message for the peer."""
        for k, frame in enumerate(frames):
            if zmtp_put(&self.z, <bytes>frame, len(<bytes>frame), k + 1 < len(frames)) < 0:
                raise MemoryError

    def ping(self) -> None:
        zmtp_ping(&self.z)

    def take(self) -> bytes:
        """What is to be written to the peer."""
        out = PyBytes_FromStringAndSize(self.z.output.data, self.z.output.len)
        self.z.output.len = 0
        return out
