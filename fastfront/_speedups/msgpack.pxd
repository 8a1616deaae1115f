"""Msgpack of Python values (fastfront._speedups.msgpack)."""
from fastfront._speedups.buffers cimport Buf

# Any plain Python value (None, bool, int, float, str, bytes, list, tuple, dict, set as array; depth <= 64) is appended.
# Raises TypeError, ValueError (depth), OverflowError (integer beyond 64 bits) or MemoryError.
cdef int mpw_object(Buf *b, object value) except -1
