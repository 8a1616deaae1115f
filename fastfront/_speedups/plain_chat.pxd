"""Chats of nothing but texts."""
from libc.stdint cimport int64_t


# (roles, texts) of a plain chat, or None; see plain_chat.
cdef tuple read_plain_chat(list messages)


cdef class Guards:
    cdef readonly tuple inside, starts, ends
    cdef readonly bint stripped, filled
    cdef bint passes(self, list texts) except -1


cdef class Form:
    cdef readonly Guards guards
    cdef readonly int64_t begun, until
    cdef readonly tuple parts
    cdef bint is_expired(self) noexcept
