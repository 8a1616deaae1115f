"""JSON bodies of plain shapes (fastfront._speedups.plain_body)."""

cdef enum Shape:                # what a field's value may be; bits
    SHAPE_NULL = 1
    SHAPE_BOOL = 2
    SHAPE_INT = 4
    SHAPE_FLOAT = 8             # a number; integers become floats
    SHAPE_TEXT = 16
    SHAPE_TEXTS = 32            # a list of texts
    SHAPE_IDS = 64              # a list of integers that are not negative
    SHAPE_FLAGS = 128           # an object of the flags that streams have
    SHAPE_MESSAGES = 256        # a list of objects of texts, one of which may be a list of objects of texts


cdef struct Known:              # a field
    const char *name            # of `names`
    Py_ssize_t size
    Py_ssize_t place            # in `names`
    int shapes


cdef struct Reader:             # where reading is, in one body
    const char *p
    const char *end


cdef class PlainBodies:
    cdef list names             # str, in order of the fields' places
    cdef list texts             # their UTF-8, which `fields` points into
    cdef Known *fields          # open addressing
    cdef size_t mask
    cdef tuple required         # of str
    # The fields of a body; None for one that is not plain.
    cdef dict read_body(self, bytes body)
    cdef Known *find(self, const char *name, Py_ssize_t size) noexcept nogil
    cdef object value(self, Reader *r, int shapes)
    cdef object flags(self, Reader *r)
