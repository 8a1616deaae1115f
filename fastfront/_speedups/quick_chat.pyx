# cython: language_level=3, freethreading_compatible=True
"""Usual chat requests, made ready in one go.

Most requests have well-known fields, texts for messages and nothing out of bounds. `QuickChats` makes of such a request what
`fastfront.openai.chat.prepare_chat_fields` makes of it, and leaves all others, and all errors, to that.
"""
from libc.stdint cimport int64_t

from fastfront._speedups.plain_chat cimport read_plain_chat
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.quick_fields cimport INPUT, Quick, QuickFields, Values


cdef class QuickChats(Quick):
    """What one server's chats have in common besides `fields`. Immutable; any thread.

    `fill(roles, texts, add_generation_prompt)` gives the prompt of a plain chat or None, `encode(text)` its ids, packed.
    """
    cdef object fill, encode
    cdef str billing_header

    def __init__(
        self, QuickFields fields not None, *, object fill not None, object encode not None, str billing_header not None,
    ):
        self.fields = fields
        self.fill = fill
        self.encode = encode
        self.billing_header = billing_header

    cdef PreparedCall make(self, dict fields, object header):
        cdef Values values
        cdef int64_t requested = self.fields.read(fields, values)
        if requested < 0:
            return None
        text = self.prompt_text(<list><object>values[<int>INPUT])
        if text is None or not self.fields.fits(text, requested):
            return None
        return self.fields.call(values, header, self.encode(text), requested)

    cdef str prompt_text(self, list messages):
        """None: not a plain chat."""
        cdef str roles, text
        cdef list texts
        plain = read_plain_chat(messages)
        if plain is None:
            return None
        roles, texts = plain
        if "s" in roles:
            for text in texts:
                if text.startswith(self.billing_header):
                    return None
        return self.fill(roles, texts, True)
