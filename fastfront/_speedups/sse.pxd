"""The text of answers: SSE events and whole JSON bodies, in vLLM's shapes and key order. All append to `out`; -1: memory is out."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.call cimport CallC, Choice


# Chat: the role chunk of one choice (and its echo chunk).
cdef int sse_role(Buf *out, const CallC *c, const Choice *ch) noexcept nogil
# One delta of a choice: `n` bytes of UTF-8 text, ids as JSON digits, and its finish if ch.finished. `last`: no usage chunk follows.
cdef int sse_delta(Buf *out, const CallC *c, Choice *ch, const char *text, size_t n) noexcept nogil
# After the last choice: usage chunk if asked for, and [DONE].
cdef int sse_end(Buf *out, const CallC *c) noexcept nogil
# Whether the answer ends with metrics.
cdef bint has_metrics(const CallC *c) noexcept nogil
# Times of a call with one choice by its engine's clock, and its drafts, as a JSON object; `nulls`: with null for what is not known.
cdef int put_metrics(Buf *out, const CallC *c, bint nulls) noexcept nogil
# A usage object, without its closing brace.
cdef int put_usage(Buf *out, uint64_t prompt, uint64_t completion) noexcept nogil
# The whole answer of a call that does not stream.
cdef int json_body(Buf *out, const CallC *c) noexcept nogil
