"""The bytes every token id decodes to. Built once per tokenizer, immutable after, shared by all threads."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from fastfront._speedups.prefetch cimport prefetch


cdef enum VocabKind:
    VOCAB_BYTE_LEVEL = 0    # bytes of all tokens joined, then UTF-8 with replacement (GPT-2 style BPE)
    VOCAB_METASPACE = 1     # SentencePiece: text pieces, byte-fallback pieces decoded run by run
    VOCAB_WORDPIECE = 2     # text depends on whether a token is the first
    VOCAB_SLOW = 3          # any other decoder: through `tokenizers`, needs Python


cdef enum TokenFlag:
    TOKEN_KNOWN = 1         # id is in the vocabulary (holes decode to nothing)
    TOKEN_SPECIAL = 2       # left out when skip_special_tokens
    TOKEN_BYTE = 4          # byte-fallback piece; its one byte is the text
    TOKEN_WHOLE = 8         # the text is made of whole UTF-8 characters


cdef class Vocabulary:
    cdef readonly VocabKind kind
    cdef readonly int64_t size          # ids are 0..size-1
    cdef char *blob                     # all texts one after the other
    cdef uint32_t *at                   # size + 1 offsets into blob: text of a token that is not first
    cdef uint8_t *flags                 # size TokenFlag sets
    cdef char *first_blob               # text of a token that is first in its sequence; NULL when it never differs
    cdef uint32_t *first_at
    cdef bint strip                     # the first character of the whole output is dropped if it is a space
    cdef readonly object tokenizer      # tokenizers.Tokenizer, used by VOCAB_SLOW only


# Asks the memory for what is known of a token whose text will be wanted, and a little later, with that at hand, for its text.
cdef inline void prefetch_token(Vocabulary v, int64_t id) noexcept nogil:
    if 0 <= id < v.size:
        prefetch(v.flags + id, 1)
        prefetch(v.at + id, 1)


cdef inline void prefetch_text(Vocabulary v, int64_t id) noexcept nogil:
    if 0 <= id < v.size and v.blob != NULL:
        prefetch(v.blob + v.at[id], 1)
