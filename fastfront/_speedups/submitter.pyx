# cython: language_level=3, freethreading_compatible=True
"""From a prepared request to a lane that has its call: the way that all requests for generation go."""
from fastfront._speedups.call cimport Call
from fastfront._speedups.engine_loads cimport EngineLoads
from fastfront._speedups.http_request cimport HttpRequest
from fastfront._speedups.inbox cimport Inbox, Leaving
from fastfront._speedups.prepared cimport PreparedCall
from fastfront._speedups.vocabulary cimport Vocabulary

from functools import partial

from fastfront.errors import EngineDeadError


cdef class Submitter:
    """Shared by all request threads; immutable. What not all requests need is its subclass's.

    `on_submit` sees every request before it starts, on the request's thread. With `chooses` engines are picked by `_pick(prepared)`, with
    `admits` by `_admitted(prepared)`, which raises ApiError if there is too much to do; else it is the loads that choose.
    `_again(prepared, client, lane, headers, call)` makes a call anew whose engine was lost.
    """

    def __init__(
        self, list lanes not None, EngineLoads loads not None, Vocabulary vocabulary, str fingerprint not None, object on_submit, *,
        size_t streams_per_lane, bint chooses, bint admits,
    ):
        self.lanes = lanes
        self.loads = loads
        self.vocabulary = vocabulary
        self.fingerprint = fingerprint
        self.on_submit = on_submit
        self.streams_per_lane = streams_per_lane
        self.chooses = chooses
        self.admits = admits

    def submit(
        self, PreparedCall prepared not None, object client not None, object protocol, double arrival_time, list headers=None,
        object on_end=None, bint announced=False,
    ) -> None:
        """Starts the request; `protocol` takes the answer.

        From here on the lane answers it, with `headers` besides its own, and calls `on_end` at its end. `announced`: it is one
        step of many, and `on_submit` has seen the whole.
        Raises EngineDeadError when no engine can take it, ApiError when there is too much to do.
        """
        self.begin(prepared, client, protocol, arrival_time, headers, on_end, announced)

    cdef int begin(
        self, PreparedCall prepared, object client, object protocol, double arrival_time, list headers, object on_end, bint announced,
    ) except -1:
        cdef list engines
        cdef Inbox lane
        cdef Call call
        if self.on_submit is not None and not announced:
            self.on_submit(prepared)
        if self.admits and not announced:
            engines = self._admitted(prepared)
        elif self.chooses:
            engines = self._pick(prepared)
        else:
            engines = self.loads.chosen(<int>(len(prepared.prompts) * prepared.n), prepared.data_parallel_rank, -1)
        if not engines:
            raise EngineDeadError("no engine is running")
        lane = self.lane()
        try:
            call = self.make(prepared, protocol, engines, lane, arrival_time, headers, on_end)
        except BaseException:
            self.loads.give_back(engines)
            raise
        if self.loads.stop - self.loads.first > 1 and prepared.data_parallel_rank is None:
            call.again = partial(self._again, prepared, client, lane, headers)
        lane.put(call)
        return self.watch(client, lane, call)

    def call_for(
        self, PreparedCall prepared not None, object client not None, object protocol, list engines not None, Inbox lane not None,
        double arrival_time, list headers, object on_end,
    ) -> Call:
        """A call that the lane attaches before it looks at its inbox again."""
        cdef Call call = self.make(prepared, protocol, engines, lane, arrival_time, headers, on_end)
        self.watch(client, lane, call)
        return call

    cdef Call make(
        self, PreparedCall prepared, object protocol, list engines, Inbox lane, double arrival_time, list headers, object on_end):
        cdef Call call = Call.__new__(Call)
        call.build(prepared, self.vocabulary, protocol, engines, lane.index, self.fingerprint, arrival_time, on_end, headers)
        return call

    cdef Inbox lane(self):
        """The first lane that has few streams, else the one with the fewest.

        Streams of one lane share wake-ups and messages, which is what few of them cost most by.
        """
        cdef Inbox lane, best = None
        cdef size_t load, least = 0
        for lane in self.lanes:
            load = lane.load_now()
            if load < self.streams_per_lane:
                return lane
            if best is None or load < least:
                best = lane
                least = load
        return best

    cdef int watch(self, object client, Inbox lane, Call call) except -1:
        """The lane has the call, or attaches it before it looks at its inbox again: it cancels no calls that it does not know."""
        cdef Leaving leaving = Leaving.__new__(Leaving)
        leaving.lane = lane
        leaving.call = call
        if (<HttpRequest>client).watch(leaving) if type(client) is HttpRequest else client.watch(leaving):
            leaving()
        return 0
