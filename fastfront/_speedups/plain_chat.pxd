"""Chats of nothing but texts."""


# (roles, texts) of a plain chat, or None; see plain_chat.
cdef tuple read_plain_chat(list messages)


cdef class Guards:
    cdef readonly tuple inside, starts, ends
    cdef readonly bint stripped, filled
