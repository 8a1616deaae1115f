// A stream of requests on one connection at a time, and the loop's state around it.
#ifndef LOAD_CONNECTION_H
#define LOAD_CONNECTION_H

#include "answer.h"
#include "worker.h"

typedef enum {
    IDLE,       // nothing to do; `fd` may be an open connection
    DELAYED,    // begins a request at `wake`
    CONNECTING,
    SENDING,
    READING,
} connection_state;

typedef struct {
    int fd; // -1: none
    uint32_t generation; // counts its connections
    uint8_t state;
    bool slow;       // a slow reader
    bool counted;    // the request began in the measuring phase
    bool reused;     // the request was sent on a connection that has served another
    bool leaves;     // this request's client disconnects: behind `leave_after` tokens (0: once it has sent), or at `leave_at`
    bool done;       // [DONE] has come
    bool failed;     // an error event has come
    bool by_ids;
    bool first_seen; // of this request's events
    uint32_t leave_after;
    uint32_t tokens;
    int64_t usage_tokens;
    uint64_t scheduled, connect_began, first_token, last_token, wake, leave_at;
    uint64_t last_of[CHOICES]; // time of the last token by choice
    const request *request;
    size_t sent;
    response response;
    char *pending; // a line, or a whole body, that has not ended
    size_t pending_length, pending_room;
} connection;

// What reading bytes has led to.
typedef enum { READ_ON, READ_COMPLETE, READ_FAILED, READ_LEAVE } reading;

// Prepare for the answer to `request`, which is scheduled at `at`.
void connection_expect(connection *c, const request *request, uint64_t at);
// Take received bytes at time `now`, counting tokens and gaps. *why is set with READ_FAILED.
reading connection_take(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, const char *bytes, size_t length, failure *why);
// The answer is complete: count it, or say why it is a failure.
bool connection_complete(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, failure *why);

#endif
