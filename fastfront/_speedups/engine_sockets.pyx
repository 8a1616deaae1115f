# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""A ROUTER and a PULL of the wire on one epoll, read and written by the lane's own thread: no thread stands between an engine's
message and the streams it drives. What ZeroMQ's library would do for its users is here: ZMTP, heartbeats over TCP, identities."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from fastfront._speedups.buffers cimport array_reserve
from fastfront._speedups.clocks cimport monotonic
from fastfront._speedups.epoll cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll_create1,
    epoll_ctl, epoll_event, epoll_wait,
)
from fastfront._speedups.zmtp cimport (
    ZMTP_BAD, ZMTP_MEMORY, ZMTP_MESSAGE, zmtp_frame, zmtp_free, zmtp_init, zmtp_is_open, zmtp_next, zmtp_ping, zmtp_put,
    zmtp_release, zmtp_space, zmtp_took,
)


cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned, int)
    int eventfd_write(int, uint64_t)
    int EFD_NONBLOCK, EFD_CLOEXEC


cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        pass
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int accept4(int, sockaddr *, unsigned *, int)
    int setsockopt(int, int, int, const void *, unsigned)
    int MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_NONBLOCK, SOCK_CLOEXEC


cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY


cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP


cdef extern from "<unistd.h>" nogil:
    int close(int)


cdef enum:
    KEY_WAKE = 1            # of epoll's events; others are Peers' addresses
    KEY_INPUT = 2
    KEY_OUTPUT = 3
    EVENTS = 64
    READ_BYTES = 256 << 10  # at most from one connection, before others and what is to be submitted have their turn

cdef const char *OUT_OF_MEMORY = b"memory is out"
cdef double HANDSHAKE_S = 30.0      # within which a connection has to say who it is
cdef double BEAT_S = 5.0            # at most between two looks at the clock


cdef void append(PeerList *queue, Peer *peer) noexcept nogil:
    peer.next = NULL
    if queue.last == NULL:
        queue.first = peer
    else:
        queue.last.next = peer
    queue.last = peer


cdef void pop(PeerList *queue) noexcept nogil:
    queue.first = queue.first.next
    if queue.first == NULL:
        queue.last = NULL


cdef void peer_free(Peer *peer) noexcept nogil:
    zmtp_free(&peer.zmtp)
    free(peer)


cdef void queue_free(PeerList *queue) noexcept nogil:
    """Empties a list, and frees those that are closed."""
    cdef Peer *peer
    while queue.first != NULL:
        peer = queue.first
        pop(queue)
        if peer.fd < 0:
            peer_free(peer)


cdef class EngineSockets:
    """Takes over two sockets that listen: `input_fd`, where engines get what they are asked, and `output_fd`, where they answer.

    `engines` bounds the ranks that `send` reaches. With `tcp`, connections that are silent for `silence_s` seconds are given up, and
    asked every `heartbeat_s`.
    """

    def __cinit__(self):
        self.epoll_fd = self.input_fd = self.output_fd = self.wake_fd = -1

    def __init__(self, int input_fd, int output_fd, int engines, *, bint tcp, double heartbeat_s=5.0, double silence_s=30.0):
        if self.epoll_fd >= 0:
            raise RuntimeError("EngineSockets are made once")
        self.engines = engines
        self.tcp = tcp
        self.heartbeat_s = heartbeat_s
        self.silence_s = silence_s
        self.by_engine = <Peer **>calloc(max(1, engines), sizeof(Peer *))
        if self.by_engine == NULL:
            raise MemoryError
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        self.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        self.input_fd = input_fd
        self.output_fd = output_fd
        if (self.epoll_fd < 0 or self.wake_fd < 0 or self.watch(self.wake_fd, KEY_WAKE) < 0
                or self.watch(input_fd, KEY_INPUT) < 0 or self.watch(output_fd, KEY_OUTPUT) < 0):
            raise OSError(errno, "a lane's epoll cannot be made")
        self.now = self.woke_at = monotonic()
        self.beat_at = self.now + min(BEAT_S, heartbeat_s)

    def __dealloc__(self):
        self.shut()
        free(self.peers)
        free(self.by_engine)

    def close(self):
        """Closes every connection and both listening sockets. What has not been written is lost."""
        self.shut()

    def fileno(self) -> int:
        """Readable when `wait` would find something."""
        return self.epoll_fd

    def wake(self) -> None:
        """Ends the owner's wait. Any thread."""
        self.wake_owner()

    def wait(self, int timeout_ms):
        """Waits for anything to happen, and reads what has come."""
        with nogil:
            self.flush_native()
            self.wait_native(timeout_ms)

    @property
    def connected(self) -> list:
        """The engines that requests can be sent to."""
        return [engine for engine in range(self.engines) if self.by_engine[engine] != NULL]

    def send(self, int engine, bytes kind not None, bytes payload not None) -> bool:
        """A message of two frames for an engine, written with the next wait. False: it is not connected."""
        cdef Peer *peer = self.by_engine[engine] if 0 <= engine < self.engines else NULL
        if peer == NULL:
            return False
        if zmtp_put(&peer.zmtp, kind, len(kind), True) < 0 or zmtp_put(&peer.zmtp, payload, len(payload), False) < 0:
            raise MemoryError
        self.unsent = True
        return True

    @property
    def has_news(self) -> bool:
        """Whether take_inputs or take_dropped would find something."""
        return self.dropped.first != NULL or self.inputs.first != NULL

    def take_inputs(self) -> list:
        """What engines have said on their inputs, in the order it came: [identity, frame, ...] of each."""
        cdef Peer *peer
        cdef size_t k
        cdef list found = []
        while True:
            peer = self.front(&self.inputs)
            if peer == NULL:
                return found
            frames = [PyBytes_FromStringAndSize(<const char *>peer.zmtp.identity, peer.zmtp.identity_len)]
            for k in range(peer.zmtp.n_frames):
                frames.append(PyBytes_FromStringAndSize(<const char *>zmtp_frame(&peer.zmtp, k), peer.zmtp.frames[k].size))
            found.append(frames)
            zmtp_release(&peer.zmtp)

    def take_dropped(self) -> list:
        """Connections that have gone since: (engine, reason) of each. The engine is -1 for an output, and for what is no engine;
        the reason is None when it was the peer that closed a connection in order."""
        cdef Peer *peer
        cdef list found = []
        while self.dropped.first != NULL:
            peer = self.dropped.first
            pop(&self.dropped)
            engine = peer.engine if peer.is_input else -1
            if engine < 0 or self.by_engine[engine] == NULL:        # else it is back already
                found.append((engine, None if peer.reason == NULL else (<bytes>peer.reason).decode()))
            peer_free(peer)
        return found

    # ---- without Python --------------------------------------------------------------------------------------------------

    cdef void wake_owner(self) noexcept nogil:
        eventfd_write(self.wake_fd, 1)

    cdef void shut(self) noexcept nogil:
        queue_free(&self.outputs)
        queue_free(&self.inputs)
        queue_free(&self.dropped)
        while self.n_peers:
            self.n_peers -= 1
            close(self.peers[self.n_peers].fd)
            peer_free(self.peers[self.n_peers])
        if self.by_engine != NULL:
            memset(self.by_engine, 0, self.engines * sizeof(Peer *))
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
            close(self.wake_fd)
            close(self.input_fd)
            close(self.output_fd)
        self.epoll_fd = self.input_fd = self.output_fd = self.wake_fd = -1

    cdef int watch(self, int fd, uint64_t key) noexcept nogil:
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLET if key == KEY_WAKE else EPOLLIN
        event.data.u64 = key
        return epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event)

    cdef bint calls(self) noexcept nogil:
        return self.woken or self.dropped.first != NULL or self.inputs.first != NULL

    cdef void wait_native(self, int timeout_ms) noexcept nogil:
        cdef epoll_event events[EVENTS]
        cdef uint64_t key
        cdef Peer *peer
        cdef int n, k
        cdef int limit = <int>(max(0.0, self.beat_at - self.now) * 1000) + 1
        self.woken = False
        if timeout_ms < 0 or timeout_ms > limit:
            timeout_ms = limit
        self.busy_s += monotonic() - self.woke_at
        n = epoll_wait(self.epoll_fd, events, EVENTS, timeout_ms)
        self.now = self.woke_at = monotonic()
        for k in range(n):
            key = events[k].data.u64
            if key == KEY_WAKE:
                self.woken = True               # an edge each time it is written to: there is nothing to be read
            elif key == KEY_INPUT or key == KEY_OUTPUT:
                self.accept_all(key == KEY_INPUT)
            else:
                peer = <Peer *>key
                if peer.fd >= 0 and events[k].events & EPOLLOUT and self.write(peer) < 0:
                    self.drop(peer, NULL)
                if peer.fd >= 0 and events[k].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
                    self.read(peer)
        if self.now >= self.beat_at:
            self.beat()

    cdef void accept_all(self, bint is_input) noexcept nogil:
        cdef int listener = self.input_fd if is_input else self.output_fd
        cdef int fd, one = 1
        cdef Peer *peer
        cdef epoll_event event
        while True:
            fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd < 0:
                if errno == EINTR or errno == ECONNABORTED:
                    continue
                if errno != EAGAIN and not self.deaf:           # no descriptors are left: not before the next beat
                    self.deaf = True
                    epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, self.input_fd, NULL)
                    epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, self.output_fd, NULL)
                return
            if self.tcp:
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(int))
            if array_reserve(<void **>&self.peers, &self.cap_peers, self.n_peers + 1, sizeof(Peer *)) < 0:
                close(fd)
                return
            peer = <Peer *>calloc(1, sizeof(Peer))
            if peer == NULL or zmtp_init(&peer.zmtp, is_input) < 0:
                free(peer)
                close(fd)
                return
            peer.fd = fd
            peer.is_input = is_input
            peer.engine = -1
            peer.heard_at = peer.asked_at = peer.since = self.now
            peer.place = self.n_peers
            self.peers[self.n_peers] = peer
            self.n_peers += 1
            event.events = EPOLLIN | EPOLLRDHUP
            event.data.u64 = <uint64_t>peer
            if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 or self.write(peer) < 0:
                self.drop(peer, NULL)

    cdef void read(self, Peer *peer) noexcept nogil:
        cdef size_t room = 0
        cdef ssize_t n
        cdef char *p = zmtp_space(&peer.zmtp, &room)
        if p == NULL:
            self.drop(peer, OUT_OF_MEMORY)
            return
        n = recv(peer.fd, p, min(room, READ_BYTES), MSG_DONTWAIT)
        if n > 0:
            zmtp_took(&peer.zmtp, n)
            peer.heard_at = self.now
        elif n == 0 or (errno != EINTR and errno != EAGAIN):
            peer.closing = True
        if self.parse(peer):
            if not peer.queued:
                peer.queued = True
                append(&self.inputs if peer.is_input else &self.outputs, peer)
        elif peer.fd >= 0 and peer.closing:
            self.drop(peer, NULL)

    cdef bint parse(self, Peer *peer) noexcept nogil:
        """Whether it has a whole message. Drops a connection that breaks the protocol."""
        cdef bint was_open = zmtp_is_open(&peer.zmtp)
        cdef int r = zmtp_next(&peer.zmtp)
        if r == ZMTP_BAD or r == ZMTP_MEMORY:
            self.drop(peer, peer.zmtp.fault if r == ZMTP_BAD else OUT_OF_MEMORY)
            return False
        if not was_open and zmtp_is_open(&peer.zmtp) and peer.is_input:
            self.join(peer)
        if peer.zmtp.output.len and self.write(peer) < 0:       # READY, PONG
            peer.closing = True
        return r == ZMTP_MESSAGE

    cdef void join(self, Peer *peer) noexcept nogil:
        """An engine has said who it is: requests go to its newest connection."""
        cdef Peer *old
        if peer.zmtp.identity_len != 2:
            return
        peer.engine = peer.zmtp.identity[0] | (peer.zmtp.identity[1] << 8)
        if peer.engine >= self.engines:
            peer.engine = -1
            return
        old = self.by_engine[peer.engine]
        self.by_engine[peer.engine] = peer
        if old != NULL:
            self.drop(old, NULL)

    cdef int write(self, Peer *peer) noexcept nogil:
        """Writes what the connection takes. -1: it is broken."""
        cdef size_t at = 0
        cdef ssize_t n
        cdef epoll_event event
        cdef bint wanted
        while at < peer.zmtp.output.len:
            n = send(peer.fd, peer.zmtp.output.data + at, peer.zmtp.output.len - at, MSG_DONTWAIT | MSG_NOSIGNAL)
            if n >= 0:
                at += n
            elif errno == EAGAIN:
                break
            elif errno != EINTR:
                return -1
        peer.zmtp.output.len -= at
        if at and peer.zmtp.output.len:
            memmove(peer.zmtp.output.data, peer.zmtp.output.data + at, peer.zmtp.output.len)
        wanted = peer.zmtp.output.len != 0
        if wanted != peer.writing:
            peer.writing = wanted
            event.events = EPOLLIN | EPOLLRDHUP | (EPOLLOUT if wanted else 0)
            event.data.u64 = <uint64_t>peer
            return epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, peer.fd, &event)
        return 0

    cdef void flush_native(self) noexcept nogil:
        """Writes what `send` was given."""
        cdef int engine
        cdef Peer *peer
        if not self.unsent:
            return
        self.unsent = False
        for engine in range(self.engines):
            peer = self.by_engine[engine]
            if peer != NULL and peer.zmtp.output.len and not peer.writing and self.write(peer) < 0:
                self.drop(peer, NULL)

    cdef void drop(self, Peer *peer, const char *reason) noexcept nogil:
        """Closes a connection; its Peer stays until take_dropped, as events of the same wait may name it."""
        cdef Peer *last
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, peer.fd, NULL)      # closing is not enough while a child that is being started has it
        close(peer.fd)
        peer.fd = -1
        peer.reason = reason
        self.n_peers -= 1
        last = self.peers[self.n_peers]
        last.place = peer.place
        self.peers[peer.place] = last
        if peer.engine >= 0 and peer.is_input and self.by_engine[peer.engine] == peer:
            self.by_engine[peer.engine] = NULL
        if not peer.queued:
            append(&self.dropped, peer)         # else `front` does when it comes to it

    cdef Peer *front(self, PeerList *queue) noexcept nogil:
        """The first of a list that has a whole message; those without leave it."""
        cdef Peer *peer
        while queue.first != NULL:
            peer = queue.first
            if peer.fd >= 0 and self.parse(peer):
                return peer
            pop(queue)
            peer.queued = False
            if peer.fd < 0:
                append(&self.dropped, peer)
            elif peer.closing:
                self.drop(peer, NULL)
        return NULL

    cdef Peer *next_output(self) noexcept nogil:
        return self.front(&self.outputs)

    cdef void beat(self) noexcept nogil:
        """Gives up connections that do not say who they are, or are silent; asks the others. Takes connections again."""
        cdef size_t i = 0
        cdef Peer *peer
        self.beat_at = self.now + min(BEAT_S, self.heartbeat_s)
        if self.deaf:
            self.deaf = False
            self.watch(self.input_fd, KEY_INPUT)
            self.watch(self.output_fd, KEY_OUTPUT)
        while i < self.n_peers:
            peer = self.peers[i]
            if not zmtp_is_open(&peer.zmtp):
                if self.now - peer.since > HANDSHAKE_S:
                    self.drop(peer, b"it did not say who it is")
                    continue
            elif self.tcp and self.now - peer.heard_at > self.silence_s:
                self.drop(peer, b"it has been silent for too long")
                continue
            elif self.tcp and self.now - peer.asked_at >= self.heartbeat_s and not peer.writing:
                peer.asked_at = self.now
                if zmtp_ping(&peer.zmtp) < 0 or self.write(peer) < 0:
                    self.drop(peer, NULL)
                    continue
            i += 1
