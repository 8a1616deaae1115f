#define _GNU_SOURCE
#include "worker.h"

#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"

const char *const FAILURE_NAMES[FAIL_STATUS] = {
    "connect_refused", "connect_timeout", "connect_no_port", "connect_other", "reset",
    "closed_early",    "bad_response",    "error_event",     "no_done",       "timeout",
};

enum {
    EVENTS = 512,
    RECEIVE = 256 << 10,
    TICK_NS = 5000000,         // delayed starts are looked at that often
    SLOW_NS = 100000000,       // slow readers read that often
    SCAN_NS = 250000000,       // timeouts are looked at that often
    RETRY_NS = 50000000,       // closed loop: pause behind a failure
    LEAVE_NS = 1000000000,     // clients that do not stream leave within that time
    IDLE_MS = 20,
};

// Common words of one token in most vocabularies.
static const char FOUR_LETTERS[64][5] = {
    "with", "that", "this", "from", "they", "have", "were", "when", "will", "each", "them", "then", "many", "some", "more", "like",
    "into", "time", "look", "make", "than", "been", "call", "find", "long", "down", "come", "made", "part", "over", "take", "only",
    "work", "know", "year", "live", "back", "give", "most", "very", "just", "form", "help", "line", "turn", "much", "mean", "move",
    "same", "tell", "want", "show", "also", "play", "home", "read", "hand", "port", "even", "land", "here", "must", "high", "such",
};

// The loop's own state. Used by its thread only.
typedef struct {
    plan *plan;
    figures *figures;
    int index, poll, timer;
    int count; // connections
    connection *connections;
    request *requests; // the plan's, or with `vary_at` copies of them
    int *free_list, free_count; // open loop: indexes of connections without a request
    uint64_t *backlog;          // open loop: due times that wait for a connection; a ring of size backlog_room
    size_t backlog_room, backlog_first, backlog_count;
    int active, delayed, slow_active, leaving; // `leaving`: requests with a `leave_at`
    int to_start;        // closed loop: connections that have not begun
    uint64_t began, due; // `due`: when the next arrival (open) or start (closed) is to happen; 0: none
    uint64_t armed;
    uint64_t next_tick, next_slow, next_scan;
    size_t next_request;
    uint64_t random;
    char *buffer;
} loop;

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// splitmix64
static uint64_t draw(loop *l)
{
    uint64_t z = l->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double draw_unit(loop *l) // in (0, 1]
{
    return (double)((draw(l) >> 11) + 1) * 0x1p-53;
}

static int phase_now(const loop *l)
{
    return atomic_load_explicit(&l->plan->phase, memory_order_acquire);
}

// May one more request begin? Sets whether it counts.
static bool ticket(loop *l, bool *counted)
{
    int now = phase_now(l);
    *counted = now == PHASE_MEASURING;
    if (now == PHASE_WARMUP)
        return true;
    if (now != PHASE_MEASURING)
        return false;
    return l->plan->limit == 0 || atomic_fetch_add_explicit(&l->plan->tickets, 1, memory_order_relaxed) < l->plan->limit;
}

static void hang_up(connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->reused = false;
}

static void begin(loop *l, connection *c, uint64_t at, bool counted);

// An idle connection takes up the next request there is.
static void take_up(loop *l, connection *c)
{
    bool counted;
    c->state = IDLE;
    if (!l->plan->open) {
        if (ticket(l, &counted))
            begin(l, c, now_ns(), counted);
    } else if (l->backlog_count && phase_now(l) < PHASE_DRAINING) {
        uint64_t at = l->backlog[l->backlog_first];
        l->backlog_first = (l->backlog_first + 1) % l->backlog_room;
        l->backlog_count--;
        begin(l, c, at & ~(uint64_t)1, at & 1); // it got its ticket when it came
    } else {
        l->free_list[l->free_count++] = (int)(c - l->connections);
    }
}

// The connection has no request any more; it begins the next one, after a `pause` or at once.
static void go_on(loop *l, connection *c, bool pause)
{
    l->active--;
    l->slow_active -= c->slow;
    l->leaving -= c->leave_at != 0;
    atomic_store_explicit(&l->figures->live, (uint64_t)l->active, memory_order_relaxed);
    if (pause) {
        c->state = DELAYED;
        c->wake = now_ns() + RETRY_NS;
        l->delayed++;
    } else {
        take_up(l, c);
    }
}

static void fail(loop *l, connection *c, failure why)
{
    figures *f = l->figures;
    atomic_store_explicit(&f->failed_seen, f->failed_seen + 1, memory_order_relaxed);
    if (c->counted) {
        f->failed++;
        f->failures[why]++;
        if (why == FAIL_STATUS)
            f->statuses[c->response.status]++;
    }
    hang_up(c);
    go_on(l, c, true);
}

static void send_rest(loop *l, connection *c);
static void leave(loop *l, connection *c);

static void open_connection(loop *l, connection *c)
{
    const plan *p = l->plan;
    int one = 1, small = 4096;
    c->connect_began = now_ns();
    c->state = CONNECTING;
    c->fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) {
        fail(l, c, FAIL_CONNECT_OTHER);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->slow)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(c->fd, (const struct sockaddr *)&p->address, p->address_length) < 0 && errno != EINPROGRESS) {
        fail(l, c, errno == ECONNREFUSED ? FAIL_CONNECT_REFUSED : errno == EADDRNOTAVAIL ? FAIL_CONNECT_NO_PORT : FAIL_CONNECT_OTHER);
        return;
    }
    // Edges of both directions, so that nothing has to be modified later. An established connection reports itself writable.
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u64 = (uint64_t)++c->generation << 32 | (uint32_t)(c - l->connections)};
    if (epoll_ctl(l->poll, EPOLL_CTL_ADD, c->fd, &wanted) < 0)
        fail(l, c, FAIL_CONNECT_OTHER);
}

// The next request's bytes. With `vary_at` they are changed in place: should an earlier request with this body not have been
// sent to its end, then the rest of it gets the new words, which are of the same length.
static const request *next_request(loop *l)
{
    plan *p = l->plan;
    request *r = &l->requests[l->next_request];
    if (++l->next_request == p->request_count)
        l->next_request = 0;
    if (p->vary_at) {
        uint64_t words = draw(l);
        char *at = r->bytes + r->head + p->vary_at;
        for (int i = 0; i < VARIED_WORDS; i++, words >>= 6)
            memcpy(at + 5 * i, FOUR_LETTERS[words & 63], 4);
    }
    return r;
}

// `at`: when the request was due; the clock of its latencies starts there.
static void begin(loop *l, connection *c, uint64_t at, bool counted)
{
    plan *p = l->plan;
    connection_expect(c, next_request(l), at);
    c->counted = counted;
    c->leaves = p->disconnect_share > 0 && draw_unit(l) <= p->disconnect_share;
    c->leave_after = c->leaves && p->stream ? (uint32_t)(draw(l) % p->tokens) : 0;
    c->leave_at = c->leaves && !p->stream ? at + draw(l) % LEAVE_NS : 0;
    l->leaving += c->leave_at != 0;
    l->active++;
    l->slow_active += c->slow;
    atomic_store_explicit(&l->figures->live, (uint64_t)l->active, memory_order_relaxed);
    if (counted) {
        l->figures->started++;
        histogram_add(&l->figures->lag, now_ns() - at);
    }
    if (c->fd < 0) {
        open_connection(l, c);
    } else {
        c->reused = true;
        send_rest(l, c);
    }
}

// A connection that was kept open has ended before the answer began: as any client does, send the request again on a new one.
static bool try_again(loop *l, connection *c)
{
    if (!c->reused || c->response.begun)
        return false;
    l->figures->reconnects++;
    hang_up(c);
    c->sent = 0;
    open_connection(l, c);
    return true;
}

static void send_rest(loop *l, connection *c)
{
    c->state = SENDING;
    while (c->sent < c->request->length) {
        ssize_t n = send(c->fd, c->request->bytes + c->sent, c->request->length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            if (!try_again(l, c))
                fail(l, c, FAIL_RESET);
            return;
        }
        c->sent += (size_t)n;
    }
    c->state = READING;
    if (c->leaves && c->leave_after == 0 && c->leave_at == 0)
        leave(l, c);
}

static void connected(loop *l, connection *c)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        failure why = error == ECONNREFUSED ? FAIL_CONNECT_REFUSED : error == ETIMEDOUT ? FAIL_CONNECT_TIMEOUT : FAIL_CONNECT_OTHER;
        fail(l, c, why);
        return;
    }
    if (c->counted)
        histogram_add(&l->figures->connect, now_ns() - c->connect_began);
    send_rest(l, c);
}

static void leave(loop *l, connection *c)
{
    l->figures->disconnected += c->counted;
    hang_up(c);
    go_on(l, c, false);
}

static void complete(loop *l, connection *c, bool in_phase, uint64_t now)
{
    failure why;
    if (!connection_complete(c, l->plan, l->figures, in_phase, now, &why)) {
        fail(l, c, why);
        return;
    }
    if (!l->plan->keep_alive || c->response.closes || c->sent < c->request->length)
        hang_up(c);
    go_on(l, c, false);
}

static void ended(loop *l, connection *c, bool reset)
{
    if (!reset && response_end(&c->response) == RESPONSE_DONE)
        complete(l, c, phase_now(l) == PHASE_MEASURING, now_ns());
    else if (!try_again(l, c))
        fail(l, c, reset ? FAIL_RESET : FAIL_CLOSED_EARLY);
}

// Reads what has come, `most` bytes at once and no more than that if `once`.
static void receive(loop *l, connection *c, size_t most, bool once, bool hung_up)
{
    for (;;) {
        ssize_t n = recv(c->fd, l->buffer, most, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            ended(l, c, n < 0);
            return;
        }
        bool in_phase = phase_now(l) == PHASE_MEASURING;
        uint64_t now = now_ns();
        if (in_phase) {
            l->figures->reads++;
            l->figures->bytes += (uint64_t)n;
        }
        failure why;
        switch (connection_take(c, l->plan, l->figures, in_phase, now, l->buffer, (size_t)n, &why)) {
        case READ_ON:
            break;
        case READ_COMPLETE:
            complete(l, c, in_phase, now);
            return;
        case READ_FAILED:
            fail(l, c, why);
            return;
        case READ_LEAVE:
            leave(l, c);
            return;
        }
        // Less than was asked for: there is no more, and what comes later gives another edge.
        if (once || ((size_t)n < most && !hung_up))
            return;
    }
}

static void react(loop *l, connection *c, uint32_t events)
{
    bool hung_up = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if (c->fd < 0)
        return;
    if (c->state == CONNECTING && events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        connected(l, c);
    else if (c->state == SENDING && events & EPOLLOUT)
        send_rest(l, c);
    if (c->state == SENDING || c->state == READING) {
        if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) && !c->slow)
            receive(l, c, RECEIVE, false, hung_up);
    } else if (c->state == IDLE && hung_up) {
        hang_up(c);
    }
}

// --- what is due

static void arrive(loop *l, uint64_t at)
{
    bool counted;
    if (!ticket(l, &counted)) {
        l->due = 0;
        return;
    }
    if (l->free_count) {
        begin(l, &l->connections[l->free_list[--l->free_count]], at, counted);
        return;
    }
    if (l->backlog_count == l->backlog_room) {
        size_t room = l->backlog_room * 2;
        uint64_t *grown = malloc(room * sizeof *grown);
        if (!grown)
            abort();
        for (size_t i = 0; i < l->backlog_count; i++)
            grown[i] = l->backlog[(l->backlog_first + i) % l->backlog_room];
        free(l->backlog);
        l->backlog = grown;
        l->backlog_room = room;
        l->backlog_first = 0;
    }
    l->backlog[(l->backlog_first + l->backlog_count++) % l->backlog_room] = (at & ~(uint64_t)1) | counted;
    if (l->backlog_count > l->figures->backlog_max)
        l->figures->backlog_max = l->backlog_count;
}

static void start_due(loop *l, uint64_t now)
{
    plan *p = l->plan;
    while (l->due && l->due <= now) {
        if (p->open) {
            uint64_t at = l->due;
            l->due = at + (uint64_t)(-log(draw_unit(l)) * 1e9 * p->workers / p->rate);
            arrive(l, at);
            continue;
        }
        connection *c = &l->connections[l->count - l->to_start];
        bool counted;
        if (ticket(l, &counted))
            begin(l, c, l->due, counted);
        l->to_start--;
        uint64_t place = (uint64_t)(l->count - l->to_start) * (uint64_t)p->workers + (uint64_t)l->index;
        l->due = l->to_start ? l->began + p->ramp_ns * place / (uint64_t)p->streams : 0;
    }
}

static void tick(loop *l, uint64_t now)
{
    plan *p = l->plan;
    if (l->delayed) {
        for (int i = 0; i < l->count; i++) {
            connection *c = &l->connections[i];
            if (c->state != DELAYED || c->wake > now)
                continue;
            l->delayed--;
            take_up(l, c);
        }
    }
    if (l->leaving) {
        for (int i = 0; i < l->count; i++) {
            connection *c = &l->connections[i];
            if (c->leave_at && c->leave_at <= now && (c->state == CONNECTING || c->state == SENDING || c->state == READING))
                leave(l, c);
        }
    }
    if (l->slow_active && now >= l->next_slow) {
        l->next_slow = now + SLOW_NS;
        for (int i = 0; i < l->count; i++)
            if (l->connections[i].slow && l->connections[i].state == READING)
                receive(l, &l->connections[i], p->slow_bytes, true, false);
    }
    if (now < l->next_scan)
        return;
    l->next_scan = now + SCAN_NS;
    for (int i = 0; i < l->count; i++) {
        connection *c = &l->connections[i];
        if (c->state == CONNECTING && now > c->connect_began + p->connect_timeout_ns)
            fail(l, c, FAIL_CONNECT_TIMEOUT);
        else if ((c->state == SENDING || c->state == READING) && !c->slow && now > c->scheduled + p->timeout_ns)
            fail(l, c, FAIL_TIMEOUT);
    }
}

static void arm(loop *l)
{
    if (l->due == l->armed)
        return;
    l->armed = l->due;
    struct itimerspec at = {.it_value = {(time_t)(l->due / 1000000000u), (long)(l->due % 1000000000u)}};
    timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void run(loop *l)
{
    struct epoll_event events[EVENTS];
    for (;;) {
        int now_in = phase_now(l);
        if (now_in >= PHASE_DRAINING) {
            l->due = 0;
            l->to_start = 0;
        }
        // Slow readers are not waited for.
        int awaited = now_in == PHASE_DRAINING ? l->active - l->slow_active : l->active;
        if (now_in == PHASE_STOP || (awaited == 0 && l->delayed == 0 && l->due == 0 && l->to_start == 0))
            return;
        arm(l);
        bool ticking = l->delayed || l->slow_active || l->leaving;
        int n = epoll_wait(l->poll, events, EVENTS, ticking ? TICK_NS / 1000000 : IDLE_MS);
        for (int i = 0; i < n; i++) {
            connection *c = &l->connections[(uint32_t)events[i].data.u64];
            if (events[i].data.u64 == UINT64_MAX) {
                uint64_t expirations;
                (void)!read(l->timer, &expirations, sizeof expirations);
                l->armed = 0;
            } else if (events[i].data.u64 >> 32 == c->generation) { // else of a connection that has been replaced since
                react(l, c, events[i].events);
            }
            // Arrivals do not wait behind a burst of answers.
            if (l->due && (i & 31) == 31)
                start_due(l, now_ns());
        }
        uint64_t now = now_ns();
        start_due(l, now);
        if (now >= l->next_tick) {
            l->next_tick = now + TICK_NS;
            tick(l, now);
        }
    }
}

static bool copy_requests(loop *l)
{
    const plan *p = l->plan;
    if (!p->vary_at) {
        l->requests = p->requests;
        return true;
    }
    l->requests = calloc(p->request_count, sizeof *l->requests);
    for (size_t i = 0; l->requests && i < p->request_count; i++) {
        l->requests[i] = p->requests[i];
        if (!(l->requests[i].bytes = malloc(p->requests[i].length)))
            return false;
        memcpy(l->requests[i].bytes, p->requests[i].bytes, p->requests[i].length);
    }
    return l->requests != NULL;
}

static bool prepare(loop *l, worker *w)
{
    plan *p = w->plan;
    *l = (loop){.plan = p, .figures = &w->figures, .index = w->index, .poll = -1, .timer = -1};
    l->random = p->seed * 1000003u + (uint64_t)w->index;
    l->count = p->streams / p->workers + (w->index < p->streams % p->workers);
    l->next_request = p->request_count * (size_t)w->index / (size_t)p->workers;
    l->backlog_room = 1024;
    l->connections = calloc((size_t)l->count + 1, sizeof *l->connections);
    l->free_list = calloc((size_t)l->count + 1, sizeof *l->free_list);
    l->backlog = calloc(l->backlog_room, sizeof *l->backlog);
    l->buffer = malloc(RECEIVE);
    l->poll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!l->connections || !l->free_list || !l->backlog || !l->buffer || l->poll < 0 || l->timer < 0 || !copy_requests(l))
        return false;
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (epoll_ctl(l->poll, EPOLL_CTL_ADD, l->timer, &wanted) < 0)
        return false;
    int slow = (int)(p->slow_share * l->count + 0.5);
    for (int i = 0; i < l->count; i++) {
        l->connections[i].fd = -1;
        // Spread over all: those that start first are not the slow ones.
        l->connections[i].slow = (i + 1) * slow / l->count != i * slow / l->count;
        // The last one is handed out first.
        l->free_list[l->free_count++] = l->count - 1 - i;
    }
    l->began = now_ns();
    l->next_scan = l->began + SCAN_NS;
    if (p->open) {
        l->due = l->began + (uint64_t)(-log(draw_unit(l)) * 1e9 * p->workers / p->rate);
    } else {
        l->to_start = l->count;
        l->due = l->count ? l->began + p->ramp_ns * (uint64_t)l->index / (uint64_t)p->streams : 0;
    }
    return true;
}

static void finish(loop *l)
{
    figures *f = l->figures;
    f->ended_at = now_ns();
    for (int i = 0; l->connections && i < l->count; i++) {
        connection *c = &l->connections[i];
        if (c->counted && (c->state == CONNECTING || c->state == SENDING || c->state == READING))
            f->unfinished++;
        hang_up(c);
        free(c->pending);
    }
    for (size_t i = 0; i < l->backlog_count; i++) {
        uint64_t counted = l->backlog[(l->backlog_first + i) % l->backlog_room] & 1;
        f->started += counted;
        f->unfinished += counted;
    }
    atomic_store_explicit(&f->live, 0, memory_order_relaxed);
    if (l->plan->vary_at && l->requests) {
        for (size_t i = 0; i < l->plan->request_count; i++)
            free(l->requests[i].bytes);
        free(l->requests);
    }
    free(l->connections);
    free(l->free_list);
    free(l->backlog);
    free(l->buffer);
    if (l->poll >= 0)
        close(l->poll);
    if (l->timer >= 0)
        close(l->timer);
}

void *worker_run(void *argument)
{
    worker *w = argument;
    loop l;
    if (prepare(&l, w))
        run(&l);
    else
        snprintf(w->error, sizeof w->error, "a worker cannot start: %s", strerror(errno));
    finish(&l);
    pthread_mutex_lock(&w->plan->lock);
    w->plan->running--;
    pthread_cond_signal(&w->plan->changed);
    pthread_mutex_unlock(&w->plan->lock);
    return NULL;
}
