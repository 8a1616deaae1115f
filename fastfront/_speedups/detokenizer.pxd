"""Incremental detokenizer: token ids in, whole UTF-8 characters out.

Contract: over any ids and any split into calls, the outputs joined equal `tokenizer.decode(ids, skip_special_tokens)` once
detok_flush has run; no output ends inside a character and none holds a U+FFFD that later bytes could still turn into text.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from fastfront._speedups.buffers cimport Buf
from fastfront._speedups.vocabulary cimport Vocabulary


cdef struct Detok:                # one per stream, owned by the stream's lane thread; plain data for the three native kinds
    uint8_t pending[4]            # VOCAB_BYTE_LEVEL: bytes of an unfinished character
    uint8_t n_pending
    uint8_t primed                # how many of the unfinished bytes (pending or run) came from the prompt
    bint first                    # no token has been decoded yet: leading space rules apply
    bint skip_special
    Buf run                       # VOCAB_METASPACE: bytes of the byte-fallback run that has not ended
    void *slow                    # VOCAB_SLOW: owned reference to a SlowDetokenizer, else NULL


# continues=True: the output follows a prompt, so the first token keeps its leading space.
cdef int detok_init(Detok *d, Vocabulary v, bint skip_special, bint continues) except -1
cdef void detok_free(Detok *d) noexcept          # with the thread state held
# Appends the text that `id` completes. 0, or -1 when memory is out. Ids outside the vocabulary decode to nothing.
# For VOCAB_SLOW it takes the thread state itself; an error inside the tokenizer resets this stream's window and goes on.
cdef int detok_feed(Vocabulary v, Detok *d, int64_t id, Buf *out) noexcept nogil
# End of the sequence: appends what decode() would still give (U+FFFD for unfinished bytes). keep_partial=False drops
# unfinished characters instead, as vLLM does.
cdef int detok_flush(Vocabulary v, Detok *d, bint keep_partial, Buf *out) noexcept nogil
# Before the first detok_feed: `ids` are the end of the prompt. Their text is dropped; an unfinished character at their
# end goes on in the output (if the output does not finish it, the prompt's bytes leave no trace). `first` stays as it is.
# 0, or -1 when memory is out.
cdef int detok_prime(Vocabulary v, Detok *d, const int64_t *ids, size_t n) noexcept nogil
# Bytes of one token alone (its true bytes, whatever they are), for logprobs and token strings. NULL and 0 if unknown or slow.
cdef const char *token_bytes(Vocabulary v, int64_t id, uint32_t *n) noexcept nogil
