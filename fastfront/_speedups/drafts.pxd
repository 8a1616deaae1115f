"""What an engine tells of one request's drafts (speculative decoding): the map behind its last output, as answers show it."""
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.msgpack_raw cimport Cursor


# Appends the JSON object, with null for lists that are not told if `nulls`. 0, or -1 with `out` as it was: the map cannot be read, or
# memory is out.
cdef int drafts_put(Buf *out, Cursor *c, bint nulls) noexcept nogil
