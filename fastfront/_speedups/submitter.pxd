"""From a prepared request to a lane (fastfront._speedups.submitter)."""
from fastfront._speedups.call cimport Call
from fastfront._speedups.engine_loads cimport EngineLoads
from fastfront._speedups.inbox cimport Inbox
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.vocabulary cimport Vocabulary


cdef class Submitter:
    cdef readonly list lanes
    cdef readonly EngineLoads loads
    cdef Vocabulary vocabulary
    cdef str fingerprint
    cdef object on_submit
    cdef bint chooses, admits
    cdef size_t streams_per_lane

    cdef int begin(
        self, PreparedCall prepared, object client, object protocol, double arrival_time, list headers, object on_end, bint announced,
    ) except -1
    cdef Inbox lane(self)
    cdef Call make(
        self, PreparedCall prepared, object protocol, list engines, Inbox lane, double arrival_time, list headers, object on_end)
    cdef int watch(self, object client, Inbox lane, Call call) except -1
