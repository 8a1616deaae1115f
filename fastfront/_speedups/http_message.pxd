"""One HTTP/1.1 request at a time, out of the bytes of a connection. The thread that reads a connection owns its Message.

The grammar is llhttp's (in vendor/llhttp/, the parser of Node.js) in its strict mode: lengths that contradict each other, bare line
feeds and the like are errors, so that no proxy in front can be made to see other requests than we do.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from fastfront._speedups.buffers cimport Buf


cdef extern from "vendor/llhttp/llhttp.h" nogil:
    ctypedef struct llhttp_t:
        void *data
        uint64_t content_length
        uint8_t method
        uint8_t http_major
        uint8_t http_minor
        uint8_t upgrade
        uint16_t flags


cdef enum MessageState:
    MESSAGE_MORE            # all bytes are used up, the message goes on
    MESSAGE_COMPLETE        # it ends at `used`; the next one begins there
    MESSAGE_BAD             # not HTTP/1
    MESSAGE_LARGE_HEAD      # its head is beyond HEAD_LIMIT or FIELDS_LIMIT, or what frames its body beyond what that may take
    MESSAGE_MEMORY


cdef enum:
    HEAD_LIMIT = 417792     # bytes of target, names and values
    FIELDS_LIMIT = 256
    FRAMING = 16            # bytes of chunks for each of their body; the smallest take 6. HEAD_LIMIT more, for extensions and trailers


cdef struct Field:          # offsets into `head`
    uint32_t name
    uint32_t name_len
    uint32_t value
    uint32_t value_len


cdef struct Message:
    llhttp_t parser         # llhttp_init has been called
    Buf head                # target, then lower-case names and values
    uint32_t target_len
    Field *fields
    uint32_t n_fields, cap_fields
    Buf body
    bint begun              # its first byte is here, or one in front of it: empty lines
    bint head_complete
    bint complete
    bint keep_alive         # meaningful from head_complete on
    bint sized, chunked     # how the body comes; neither: there is none
    bint expects            # the client waits for "100 Continue"
    bint discard            # body bytes are counted and dropped
    bint large              # why the parser stopped
    bint no_memory
    uint64_t announced      # content-length
    uint64_t dropped        # bytes dropped
    uint64_t carried        # bytes of the body so far, in chunks
    uint64_t framed         # bytes that brought them


cdef void message_init(Message *m) noexcept nogil
cdef void message_free(Message *m) noexcept nogil
# Ready for the next request of the same connection; buffers that have been taken away (set to empty) are made anew.
cdef void message_next(Message *m) noexcept nogil
# Takes n bytes. `used`: how many belong to the message.
cdef MessageState message_feed(Message *m, const char *data, size_t n, size_t *used) noexcept nogil
cdef const char *message_method(const Message *m) noexcept nogil
