"""JSON string escaping of UTF-8 text, as compact encoders do it: only what must be escaped is, the rest stays UTF-8."""
from fastfront._speedups.buffers cimport Buf


# Appends `n` bytes of valid UTF-8 escaped for the inside of a JSON string (no quotes added). Control characters as \b \t \n \f \r
# or \u00xx. 0, or -1 when memory is out.
cdef int json_escape(Buf *b, const char *s, size_t n) noexcept nogil
