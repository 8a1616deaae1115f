/* What a ring of engine/shm does for every message: writing a record and waking readers, waiting for one. The memory is described in
   engine/shm/segment.py, records in engine/shm/records.py; Python deals with everything out of the ordinary. */
#ifndef FASTFRONT_RING_H
#define FASTFRONT_RING_H

#include <stdint.h>

/* A writer's own state; no other process sees it. */
struct ring_writer {
    void *base;
    uint64_t capacity;
    uint64_t written;
    uint64_t room_until; /* positions up to this one may be written without asking readers */
    uint32_t limit;      /* longest piece */
    uint32_t number;     /* of the next record */
    int32_t readers;
};

/* A reader's own state. */
struct ring_reader {
    void *base;
    uint64_t capacity;
    uint64_t read;
    uint64_t start;  /* where in memory the message lies that ring_next has found */
    int64_t spin_ns;  /* how long to look before sleeping: one of the next two */
    int64_t short_ns; /* after a wait that was not shorter than long_ns */
    int64_t long_ns;  /* after one that was */
    int64_t since_ns; /* when the present wait began */
    uint32_t number;  /* of the next record */
    int32_t reader;
    int32_t restraint; /* so many waits without looking, because others need the core */
    int32_t caution;   /* so many more the next time */
};

/* ring_next: nothing has come; what has come is for Python to look at, because it is a piece, padding or not a record. */
enum { RING_EMPTY = -1, RING_OTHER = -2 };

/* Send a whole message; 0, and nothing is done, if it is too long for one record, does not fit before the end or lacks room. */
int32_t ring_send(struct ring_writer *writer, const void *message, uint64_t size);

/* Move the position that readers see to `written` and wake those that sleep. The record lies there already. */
void ring_publish(struct ring_writer *writer);

/* If there is nothing, look for `spin_ns`, offering the core to others now and then, or, with `sleep_ns` above 0 and after a call without,
   sleep for that time at most or until woken. Returns RING_EMPTY, RING_OTHER, or the size of a whole message, checked as reader.py does: by the state, never by
   what memory says of itself. Then `start` says where it lies, `read` and `number` have gone on; the position that the writer sees
   has not. */
int64_t ring_next(struct ring_reader *reader, int64_t sleep_ns);

#endif
