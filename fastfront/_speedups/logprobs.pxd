"""Logprobs of the wire (arrays of ids, values and ranks) as the JSON entries of chat and completion answers.

Pure functions over borrowed memory: the arrays point into the message's frames and are valid while those are held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.msgpack_raw cimport Cursor
from fastfront._speedups.vocabulary cimport Vocabulary


cdef struct Frames:                 # what follows the msgpack frame of a message: large arrays lie there
    const unsigned char **data
    size_t *size
    size_t n


cdef enum ElementKind:
    ELEMENT_I4
    ELEMENT_I8
    ELEMENT_F4
    ELEMENT_F8


cdef struct NumberArray:
    const unsigned char *data       # little-endian, not aligned
    size_t n                        # elements, all within the frame
    int kind                        # ElementKind


cdef struct LogprobRows:            # row r: column 0 is the token itself, then the most likely ones in falling order
    NumberArray ids                 # rows * columns
    NumberArray values              # rows * columns
    NumberArray ranks               # rows
    uint32_t rows
    uint32_t columns


cdef struct Context:                # tokens before the one at hand, newest last: a partial character is read with them
    int64_t ids[4]
    uint32_t n


# `[ids, values, ranks, ...]` of an output. 0, or -1 if it is not that; the cursor then stands anywhere.
cdef int logprobs_parse(Cursor *c, const Frames *frames, LogprobRows *rows) noexcept nogil
cdef int64_t logprobs_id(const LogprobRows *rows, uint32_t row) noexcept nogil      # the row's own token
cdef void context_add(Context *context, int64_t id) noexcept nogil
# The token's text as entries show it, as UTF-8: a partial character is "" until the token that completes it, which shows it
# whole. -1 when memory is out.
cdef int token_text(Vocabulary v, const Context *context, int64_t id, Buf *out) noexcept nogil
# A JSON number; what is not finite or below -9999 becomes -9999.0.
cdef int put_logprob(Buf *out, double value) noexcept nogil
# One element of chat `logprobs.content` with `top` alternatives (-1: all columns); `as_ids`: tokens appear as "token_id:N".
cdef int chat_entry(Buf *out, Vocabulary v, const LogprobRows *rows, uint32_t row, const Context *context, int32_t top, bint as_ids,
                    Buf *scratch) noexcept nogil


cdef struct CompletionLogprobs:     # the four lists of a completion's `logprobs`, without brackets
    Buf offsets
    Buf values
    Buf tokens
    Buf top
    uint32_t offset                 # characters of all tokens so far


cdef void completion_init(CompletionLogprobs *lists) noexcept nogil
cdef void completion_free(CompletionLogprobs *lists) noexcept nogil
cdef void completion_clear(CompletionLogprobs *lists) noexcept nogil      # keeps the offset
# A prompt's first token, which has no logprob.
cdef int completion_first(CompletionLogprobs *lists, Vocabulary v, int64_t id, bint as_ids, Buf *scratch) noexcept nogil
cdef int completion_entry(CompletionLogprobs *lists, Vocabulary v, const LogprobRows *rows, uint32_t row, const Context *context,
                          int32_t top, bint as_ids, Buf *scratch) noexcept nogil
cdef int completion_put(Buf *out, const CompletionLogprobs *lists) noexcept nogil
# `[null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]`: row r describes prompt token r + 1.
cdef int prompt_logprobs_put(Buf *out, Vocabulary v, const LogprobRows *rows, int64_t first_id, int32_t top, Buf *scratch) noexcept nogil
