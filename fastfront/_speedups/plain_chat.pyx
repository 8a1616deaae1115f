# cython: language_level=3, freethreading_compatible=True
"""Chats of nothing but texts, which most are: told from others at little cost, and put into a template's fixed text."""
from cpython.dict cimport PyDict_Size
from libc.stdint cimport int64_t
from libc.time cimport time

cdef extern from "Python.h":
    str PyUnicode_Join(object, object)


def plain_chat(list messages not None):
    """(roles, texts) of a chat whose messages all have a role out of system, user and assistant, a text as content or as one part
    of type text, and nothing else; roles by their first letters. None for any other."""
    return read_plain_chat(messages)


cdef tuple read_plain_chat(list messages):
    cdef list texts = [], parts
    cdef object message, content, role, part
    cdef str roles = ""
    for message in messages:
        if type(message) is not dict or PyDict_Size(message) != 2 or "role" not in <dict>message or "content" not in <dict>message:
            return None
        role = (<dict>message)["role"]
        if type(role) is not str:
            return None
        if role == "user":
            roles += "u"
        elif role == "assistant":
            roles += "a"
        elif role == "system":
            roles += "s"
        else:
            return None
        content = (<dict>message)["content"]
        if type(content) is list:
            parts = <list>content
            if len(parts) != 1:
                return None
            part = parts[0]
            if type(part) is not dict or PyDict_Size(part) != 2 or "type" not in <dict>part or "text" not in <dict>part:
                return None
            if (<dict>part)["type"] != "text":
                return None
            content = (<dict>part)["text"]
        if type(content) is not str:
            return None
        texts.append(content)
    return roles, texts


cdef class Guards:
    """What texts must not be for a template's fixed text to hold: `inside`, `starts`, `ends` are texts that they must not have
    there; with `stripped` they must not have white space around them, with `filled` not be empty. Immutable."""
    def __init__(self, tuple inside not None, tuple starts not None, tuple ends not None, bint stripped, bint filled):
        self.inside = inside
        self.starts = starts
        self.ends = ends
        self.stripped = stripped
        self.filled = filled

    def pass_all(self, list texts not None) -> bool:
        """Whether none of the texts is one that it must not be."""
        return self.passes(texts)

    cdef bint passes(self, list texts) except -1:
        cdef str text, found
        cdef Py_ssize_t n
        for text in texts:
            n = len(text)
            if n == 0 and self.filled:
                return False
            if self.stripped:
                if n and (text[0].isspace() or text[n - 1].isspace()):
                    return False
            for found in self.inside:
                if found in text:
                    return False
            if self.starts and text.startswith(self.starts):
                return False
            if self.ends and text.endswith(self.ends):
                return False
        return True


cdef class Form:
    """What a template prints for chats of the same roles: texts of its own, and places of messages whose texts stand there.

    It holds for texts that pass `guards`, from `begun` until `until` (seconds of the system's clock); 0: for ever. Immutable.
    """

    def __init__(self, tuple parts not None, Guards guards not None, int64_t begun, int64_t until):
        self.guards = guards
        self.begun = begun
        self.until = until
        self.parts = parts

    cdef bint is_expired(self) noexcept:
        return self.until != 0 and not self.begun <= time(NULL) < self.until

    @property
    def expired(self) -> bool:
        return self.is_expired()

    def fill(self, list texts not None):
        """The prompt of a chat of these texts, one for each role; None if it does not hold for them."""
        cdef list out = []
        if not self.guards.passes(texts) or self.is_expired():
            return None
        for part in self.parts:
            out.append(part if type(part) is str else texts[part])
        return PyUnicode_Join("", out)
