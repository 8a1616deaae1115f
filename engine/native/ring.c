#define _GNU_SOURCE
#include "ring.h"
#include "spin.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, DATA = 4096, ALIGN = 16, HEADER = 16, WHOLE = 1 };
enum { LOOKS = 16, YIELD_NS = 10000 };
/* Who was away from the core for so long while it looked shares the core with others: it takes it from them, and a spinner that the
   scheduler has moved behind them comes back later than a sleeper that is woken. It does not spin in its next waits then: in few if
   that was something that runs now and then; in four times as many each time, if it happens more often than once in some fifty waits. */
enum { AWAY_NS = 100000, LEAST_RESTRAINT = 16, MOST_CAUTION = 1024 };
static const uint32_t CHECK = 0x5F3A91C7;

struct words {
    _Atomic uint64_t position;
    _Atomic uint32_t counter; /* a reader's pid in its own line */
    _Atomic uint32_t closed;
    _Atomic uint32_t asleep;
};

static struct words *line(void *base, int number)
{
    return (struct words *)((unsigned char *)base + number * LINE);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t padded(uint64_t size)
{
    return (size + HEADER + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t check(uint32_t size, uint32_t kind, uint32_t number)
{
    return size ^ kind << 24 ^ number ^ CHECK;
}

void ring_publish(struct ring_writer *state)
{
    struct words *writer = line(state->base, 1);
    atomic_store_explicit(&writer->position, state->written, memory_order_release);
    atomic_fetch_add_explicit(&writer->counter, 1, memory_order_relaxed);
    /* Either this sees that a reader goes to sleep, or that one sees the message. */
    atomic_thread_fence(memory_order_seq_cst);
    int found = 0;
    for (int reader = 0; reader < state->readers; reader++) {
        _Atomic uint32_t *asleep = &line(state->base, 2 + reader)->asleep;
        if (atomic_load_explicit(asleep, memory_order_relaxed) != 0) {
            /* First taken back, then woken, once for each sleep: who sleeps again by then is woken for nothing. */
            atomic_store_explicit(asleep, 0, memory_order_relaxed);
            found = 1;
        }
    }
    if (found)
        syscall(SYS_futex, &writer->counter, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int32_t ring_send(struct ring_writer *state, const void *message, uint64_t size)
{
    uint64_t place = state->written % state->capacity;
    if (size > state->limit || padded(size) > state->capacity - place || state->written + padded(size) > state->room_until)
        return 0;
    uint32_t length = (uint32_t)size, number = state->number;
    uint32_t header[4] = {length, WHOLE, number, check(length, WHOLE, number)};
    unsigned char *record = (unsigned char *)state->base + DATA + place;
    memcpy(record, header, HEADER);
    memcpy(record + HEADER, message, size);
    state->written += padded(size);
    state->number = number + 1;
    ring_publish(state);
    return 1;
}

static int is_empty(const struct ring_reader *state, struct words *writer)
{
    return atomic_load_explicit(&writer->position, memory_order_relaxed) == state->read;
}

/* Look until the writer's position moves away from what has been read. */
static void spin(struct ring_reader *state, struct words *writer)
{
    int64_t now = now_ns(), end = now + state->spin_ns, yield = now + YIELD_NS;
    int offered = 0;
    state->since_ns = now;
    if (state->restraint > 0) {
        state->restraint--;
        return;
    }
    while (now < end && is_empty(state, writer)) {
        for (int look = 0; look < LOOKS && is_empty(state, writer); look++)
            pause_briefly();
        int64_t before = now;
        now = now_ns();
        if (now - before > AWAY_NS) {
            int32_t caution = 4 * state->caution + 3 * LEAST_RESTRAINT;
            state->restraint = LEAST_RESTRAINT + state->caution;
            state->caution = caution < MOST_CAUTION ? caution : MOST_CAUTION;
            return;
        }
        if (now >= yield) {
            sched_yield();
            yield = now + YIELD_NS;
            offered = 1;
        }
    }
    /* Others were offered the core and did not take it for long. */
    if (offered && state->caution > 0)
        state->caution--;
}

static void sleep_for(struct ring_reader *state, struct words *writer, int64_t sleep_ns)
{
    struct words *own = line(state->base, 2 + state->reader);
    struct timespec limit = {sleep_ns / 1000000000, sleep_ns % 1000000000};
    atomic_store_explicit(&own->asleep, 1, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&writer->counter, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (is_empty(state, writer) && atomic_load_explicit(&writer->closed, memory_order_relaxed) == 0)
        syscall(SYS_futex, &writer->counter, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_store_explicit(&own->asleep, 0, memory_order_relaxed);
    if (!is_empty(state, writer))
        state->spin_ns = now_ns() - state->since_ns < state->long_ns ? state->long_ns : state->short_ns;
}

int64_t ring_next(struct ring_reader *state, int64_t sleep_ns)
{
    struct words *writer = line(state->base, 1);
    uint64_t read = state->read;
    if (is_empty(state, writer)) {
        if (sleep_ns > 0)
            sleep_for(state, writer, sleep_ns);
        else
            spin(state, writer);
    }
    uint64_t available = atomic_load_explicit(&writer->position, memory_order_acquire) - read;
    if (available == 0)
        return RING_EMPTY;
    uint64_t place = read % state->capacity, room = state->capacity - place;
    if (available < ALIGN || available > state->capacity || available % ALIGN != 0)
        return RING_OTHER;
    if (available < room)
        room = available;
    uint32_t header[4];
    memcpy(header, (unsigned char *)state->base + DATA + place, HEADER);
    uint32_t size = header[0];
    if (header[1] != WHOLE || header[2] != state->number || header[3] != check(size, WHOLE, state->number))
        return RING_OTHER;
    if (padded(size) > room)
        return RING_OTHER;
    state->start = DATA + place + HEADER;
    state->read = read + padded(size);
    state->number++;
    return size;
}
