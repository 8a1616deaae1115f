# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Which engine has the least to do: exact counts of what is in flight, weighed by what engines say of their queues."""
from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

cdef double WAITING_WEIGHT = 4.0        # a request that waits in an engine against one that runs
cdef double PRESSURE_WEIGHT = 6.0       # per waiting request, times how far the KV cache is beyond half full (as vLLM weighs it)
cdef double AFFINITY_FACTOR = 1.5, AFFINITY_SLACK = 4.0     # an engine with the prefix is taken up to this load over the least one


cdef class EngineLoads:
    """Counts requests in flight per engine, of the ranks from `first` to before `stop`. Any thread.

    What an engine reports only adds weight to what is known to be in flight: an old report can neither hide a request sent since
    nor keep one that has ended.
    """

    def __cinit__(self, *_arguments, **_named):
        self.engines = NULL

    def __init__(self, int first, int stop):
        cdef int k
        if self.engines != NULL or not 0 <= first < stop:
            raise RuntimeError("EngineLoads are made once, for an engine at least")
        self.engines = <EngineLoad *>calloc(stop, sizeof(EngineLoad))
        if self.engines == NULL:
            raise MemoryError
        self.first = self.next = first
        self.stop = stop
        for k in range(first, stop):
            self.engines[k].alive = True

    def __dealloc__(self):
        free(self.engines)

    def choose(self, int count, object rank=None, int known=-1) -> list:
        """Engines for `count` new requests, each the one with the least to do; ties rotate. [] when none is alive.

        A `rank` pins them all to that engine ([] if it is gone). The engine `known` (-1: none) is taken while its load is bearable.
        """
        return self.chosen(count, rank, known)

    cdef list chosen(self, int count, object rank, int known):
        cdef int k, chosen
        cdef int pinned = self.first if self.stop - self.first == 1 else -1 if rank is None else self.checked(rank)
        cdef list found = []
        if pinned >= 0:
            with self.lock:
                if not self.engines[pinned].alive:
                    count = 0
                self.engines[pinned].in_flight += count
            return [pinned] * count
        for k in range(count):
            with self.lock:
                chosen = self.take(known)
            if chosen < 0:
                self.give_back(found)
                return []
            found.append(chosen)
        return found

    cdef int take(self, int known) noexcept nogil:
        cdef int best = self.least()
        if best < 0:
            return -1
        if known >= 0 and self.engines[known].alive and (
                self.load_of(known) <= AFFINITY_FACTOR * self.load_of(best) + AFFINITY_SLACK):
            best = known
        else:
            self.next = best + 1 if best + 1 < self.stop else self.first
        self.engines[best].in_flight += 1
        return best

    cdef int least(self) noexcept nogil:
        cdef int k, engine = self.next, best = -1
        cdef double load, lowest = 0
        for k in range(self.first, self.stop):
            if self.engines[engine].alive:
                load = self.load_of(engine)
                if best < 0 or load < lowest:
                    best = engine
                    lowest = load
            engine = engine + 1 if engine + 1 < self.stop else self.first
        return best

    cdef double load_of(self, int engine) noexcept nogil:
        cdef EngineLoad *e = &self.engines[engine]
        cdef int64_t waiting = min(e.waiting, e.in_flight)
        if waiting <= 0:
            return e.in_flight
        return e.in_flight + waiting * (WAITING_WEIGHT - 1.0 + PRESSURE_WEIGHT * max(0.0, e.kv_usage - 0.5))

    def load(self, int engine) -> float:
        """What an engine has to do: requests in flight, those that wait in it counted several times."""
        cdef double load
        self.checked(engine)
        with self.lock:
            load = self.load_of(engine)
        return load

    def report(self, int engine, double waiting, double kv_usage) -> None:
        """What an engine says: requests that wait in it, and how much of its KV cache is in use (0 to 1)."""
        if not self.first <= engine < self.stop:
            return
        if not isfinite(waiting) or waiting < 0:
            waiting = 0
        kv_usage = 0 if not kv_usage > 0 else min(kv_usage, 1.0)       # 0 for NaN, with which no load could be compared
        with self.lock:
            self.engines[engine].waiting = <int64_t>min(waiting, 1e18)
            self.engines[engine].kv_usage = kv_usage

    def finished(self, list engines not None) -> None:
        """One request less on each engine listed."""
        self.give_back(engines)

    cdef int give_back(self, list engines) except -1:
        cdef int engine
        for engine in engines:
            if self.first <= engine < self.stop:
                with self.lock:
                    self.engines[engine].in_flight -= 1
        return 0

    def set_alive(self, int engine, bint alive) -> bool:
        """Whether the engine was alive. One that is lost has told nothing any more."""
        cdef bint before
        self.checked(engine)
        with self.lock:
            before = self.engines[engine].alive
            self.engines[engine].alive = alive
            if not alive:
                self.engines[engine].waiting = 0
                self.engines[engine].kv_usage = 0
        return before

    def is_alive(self, int engine) -> bool:
        return self.engines[self.checked(engine)].alive

    @property
    def size(self) -> int:
        """How many engines there are, lost ones included."""
        return self.stop - self.first

    @property
    def in_flight(self) -> list:
        """The requests of every engine, by rank."""
        return [self.engines[engine].in_flight for engine in range(self.first, self.stop)]

    cdef int checked(self, int engine) except -1:
        if not self.first <= engine < self.stop:
            raise IndexError(f"no engine {engine}")
        return engine
