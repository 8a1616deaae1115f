"""Packed token ids: bytes of 32-bit integers in the machine's order."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t


# Valid as long as the bytes are.
cdef inline const int32_t *packed_ids(bytes packed):
    return <const int32_t *>PyBytes_AS_STRING(packed)


cdef inline Py_ssize_t packed_count(bytes packed):
    return PyBytes_GET_SIZE(packed) // <Py_ssize_t>sizeof(int32_t)
