"""Linux's epoll, and what the HTTP server's events carry."""
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data:
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    unsigned EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR, EPOLLET


cdef extern from *:
    """
    #define KEY_LISTEN 0xFFFFFFFFFFFFFFFFull    /* the event of the listening socket */
    #define KEY_QUIT 0xFFFFFFFFFFFFFFFEull      /* of the end; others: a Conn's generation and index */
    """
    const uint64_t KEY_LISTEN, KEY_QUIT
