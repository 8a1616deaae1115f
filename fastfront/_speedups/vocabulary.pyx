# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Building the table of token texts; see the .pxd for what it holds."""
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from fastfront._speedups.buffers cimport Buf, buf_free, buf_init, buf_put, buf_reserve
from fastfront._speedups.utf8 cimport utf8_whole

from fastfront._speedups.decoders import has_byte_runs, plan_for

cdef enum:
    BYTE_CHARS = 324        # the byte alphabet ends at U+0143
    MAX_SIZE = 1 << 24      # a table has room for every id below the highest one


cdef void _byte_alphabet(int *byte_of) noexcept:
    """byte_of[character] in the alphabet that byte-level BPE spells its tokens in, -1 for characters outside it."""
    cdef int c
    cdef int extra = 256
    for c in range(BYTE_CHARS):
        byte_of[c] = -1
    for c in range(256):
        if 33 <= c <= 126 or 161 <= c <= 172 or 174 <= c <= 255:
            byte_of[c] = c
        else:
            byte_of[extra] = c
            extra += 1


cdef int _spelled_bytes(Buf *blob, str token, const int *byte_of) except -1:
    """Appends the bytes that `token` spells, or its own UTF-8 if any character is outside the byte alphabet."""
    cdef size_t start = blob.len
    cdef Py_ssize_t n
    cdef const char *utf8
    cdef Py_UCS4 c
    if buf_reserve(blob, len(token)) < 0:
        raise MemoryError
    for c in token:
        if c >= BYTE_CHARS or byte_of[c] < 0:
            blob.len = start
            utf8 = PyUnicode_AsUTF8AndSize(token, &n)
            if buf_put(blob, utf8, n) < 0:
                raise MemoryError
            return 0
        blob.data[blob.len] = <char>byte_of[c]
        blob.len += 1
    return 0


cdef int _hex(char c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
        return c - 55
    return -1


cdef int _byte_piece(const char *s, Py_ssize_t n) noexcept nogil:
    """The byte that a piece like <0x0A> stands for, or -1. `tokenizers` reads <0x+A>, too, so it counts."""
    cdef int high
    cdef int low
    if n != 6 or s[0] != 60 or s[1] != 48 or s[2] != 120 or s[5] != 62:
        return -1
    high = 0 if s[3] == 43 else _hex(s[3])
    low = _hex(s[4])
    return -1 if high < 0 or low < 0 else high * 16 + low


cdef list _all_tokens(object tokenizer):
    """Token of every id as decoding sees it (an added token in its normalized form), None where there is none."""
    cdef Py_ssize_t count = tokenizer.get_vocab_size(with_added_tokens=True)
    cdef object id_to_token = tokenizer.id_to_token
    cdef Py_ssize_t i
    cdef list tokens = [id_to_token(i) for i in range(count)]
    if None in tokens or id_to_token(count) is not None:
        # Ids with holes, or more ids than names: only the whole map says where they end.
        top = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        top = max(top, max(tokenizer.get_added_tokens_decoder(), default=-1))
        if top >= MAX_SIZE:
            raise ValueError(f"token id {top} is out of proportion")
        tokens = [id_to_token(i) for i in range(top + 1)]
        while (token := id_to_token(len(tokens))) is not None:
            tokens.append(token)
    return tokens


cdef class Vocabulary:
    """Texts of all token ids. Immutable once `from_tokenizer` has returned: any thread may read it."""

    def __init__(self):
        raise TypeError("use Vocabulary.from_tokenizer")

    def __dealloc__(self):
        free(self.blob)
        free(self.at)
        free(self.flags)
        free(self.first_blob)
        free(self.first_at)

    @staticmethod
    def from_tokenizer(tokenizer) -> Vocabulary:
        """Reads a `tokenizers.Tokenizer`. If native decoding does not agree with it, the slow kind is taken.

        Raises ValueError for ids of 2**24 and more.
        """
        cdef list tokens = _all_tokens(tokenizer)
        cdef Vocabulary v
        special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        plan = plan_for(tokenizer)
        if plan is not None:
            # Late: the detokenizer module itself needs this one.
            from fastfront._speedups.detokenizer import agrees

            v = _native(plan, tokens, special)
            if agrees(v, tokenizer):
                return v
        return _slow(tokenizer, tokens, special)

    @property
    def kind_name(self) -> str:
        """"byte_level", "metaspace", "wordpiece" or "slow"."""
        return ("byte_level", "metaspace", "wordpiece", "slow")[<int>self.kind]

    @property
    def memory(self) -> int:
        """Bytes held in tables."""
        cdef Py_ssize_t total = self.size
        if self.at is not NULL:
            total += self.at[self.size] + 4 * (self.size + 1)
        if self.first_at is not NULL:
            total += self.first_at[self.size] + 4 * (self.size + 1)
        return total

    def flags_of(self, int64_t id) -> int:
        """TokenFlag set of an id, 0 outside the vocabulary."""
        return self.flags[id] if 0 <= id < self.size else 0

    def token_bytes(self, int64_t id) -> bytes:
        """True bytes of one token (as it stands inside a text); empty if unknown. Slow kind: of its decoded text."""
        if not 0 <= id < self.size or not self.flags[id] & TOKEN_KNOWN:
            return b""
        if self.kind == VOCAB_SLOW:
            return self.tokenizer.decode([id], skip_special_tokens=False).encode()
        return self.blob[self.at[id]:self.at[id + 1]]


cdef int _mark_tokens(Vocabulary v, list tokens, set special) except -1:
    """Sets size and flags KNOWN and SPECIAL."""
    cdef Py_ssize_t i
    cdef object token
    v.size = len(tokens)
    v.flags = <uint8_t *>calloc(v.size + 1, 1)
    if v.flags is NULL:
        raise MemoryError
    for i in range(v.size):
        token = tokens[i]
        if token is not None:
            v.flags[i] = TOKEN_KNOWN
            if token in special:
                v.flags[i] |= TOKEN_SPECIAL
    return 0


cdef Vocabulary _slow(object tokenizer, list tokens, set special):
    cdef Vocabulary v = Vocabulary.__new__(Vocabulary)
    cdef Py_ssize_t i
    cdef Py_ssize_t n
    cdef const char *s
    v.kind = VOCAB_SLOW
    v.tokenizer = tokenizer
    _mark_tokens(v, tokens, special)
    if has_byte_runs(tokenizer):
        for i in range(v.size):
            if v.flags[i] & TOKEN_KNOWN:
                s = PyUnicode_AsUTF8AndSize(tokens[i], &n)
                if _byte_piece(s, n) >= 0:
                    v.flags[i] |= TOKEN_BYTE
    return v


cdef Vocabulary _native(object plan, list tokens, set special):
    cdef Vocabulary v = Vocabulary.__new__(Vocabulary)
    cdef object first
    _mark_tokens(v, tokens, special)
    v.strip = plan.strip
    if plan.kind == "byte_level":
        v.kind = VOCAB_BYTE_LEVEL
        _fill(v, tokens, True, False)
        return v
    v.kind = VOCAB_WORDPIECE if plan.kind == "words" else VOCAB_METASPACE
    first = plan.first_texts(tokens)
    if first is not None:
        _fill(v, first, False, False)
        v.first_blob = v.blob
        v.first_at = v.at
        v.blob = NULL
        v.at = NULL
    _fill(v, plan.texts(tokens), False, plan.byte_runs)
    return v


cdef int _fill(Vocabulary v, list texts, bint spelled, bint byte_runs) except -1:
    """Fills blob and at from `texts` (`spelled`: in the byte alphabet), and the flags BYTE and WHOLE."""
    cdef Buf blob
    cdef int byte_of[BYTE_CHARS]
    cdef Py_ssize_t i
    cdef Py_ssize_t n
    cdef const char *s
    cdef char byte
    cdef int value
    cdef bint partial
    cdef object text
    buf_init(&blob)
    _byte_alphabet(byte_of)
    try:
        v.at = <uint32_t *>malloc((v.size + 1) * sizeof(uint32_t))
        if v.at is NULL or buf_reserve(&blob, 8 * v.size + 1) < 0:
            raise MemoryError
        for i in range(v.size):
            v.at[i] = <uint32_t>blob.len
            text = texts[i]
            if text is None:
                continue
            if spelled:
                _spelled_bytes(&blob, text, byte_of)
            else:
                s = PyUnicode_AsUTF8AndSize(text, &n)
                value = _byte_piece(s, n) if byte_runs else -1
                if value >= 0:
                    v.flags[i] |= TOKEN_BYTE
                    byte = <char>value
                    s = &byte
                    n = 1
                if buf_put(&blob, s, n) < 0:
                    raise MemoryError
            if blob.len > 0xFFFFFFFF:
                raise ValueError("token texts longer than 4 GiB together")
            n = blob.len - v.at[i]
            if <Py_ssize_t>utf8_whole(<const uint8_t *>blob.data + v.at[i], n, &partial) == n:
                v.flags[i] |= TOKEN_WHOLE
        v.at[v.size] = <uint32_t>blob.len
        v.blob = <char *>malloc(blob.len + 1)
        if v.blob is NULL:
            raise MemoryError
        memcpy(v.blob, blob.data, blob.len)
    finally:
        buf_free(&blob)
    return 0
