// One thread of the load generator: an epoll loop over its share of the streams.
#ifndef LOAD_WORKER_H
#define LOAD_WORKER_H

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "histogram.h"
#include "response.h"

typedef enum { PHASE_WARMUP, PHASE_MEASURING, PHASE_DRAINING, PHASE_STOP } phase;

typedef enum {
    FAIL_CONNECT_REFUSED,
    FAIL_CONNECT_TIMEOUT,
    FAIL_CONNECT_NO_PORT,
    FAIL_CONNECT_OTHER,
    FAIL_RESET,
    FAIL_CLOSED_EARLY,
    FAIL_BAD_RESPONSE,
    FAIL_ERROR_EVENT,
    FAIL_NO_DONE,
    FAIL_TIMEOUT,
    FAIL_STATUS, // by status in `statuses`
    FAIL_KINDS,
} failure;

extern const char *const FAILURE_NAMES[FAIL_STATUS];

enum { CHOICES = 8, CLUMPS = 64, SECONDS = 3600, SAMPLE = 400, VARIED_WORDS = 4 };

// One request, ready to be sent.
typedef struct {
    char *bytes;
    size_t head; // bytes before the body
    size_t length;
} request;

// What all workers read. Constant once they run, but for the atomics.
typedef struct {
    struct sockaddr_storage address;
    socklen_t address_length;
    request *requests;
    size_t request_count;
    size_t vary_at;   // where in a body VARIED_WORDS words of four letters are that change with every request; 0: nowhere
    bool open;        // open loop
    bool stream;      // answers are server-sent events
    bool keep_alive;
    int workers;
    int streams;      // of all workers: connections at most
    double rate;      // open loop: requests per second
    int64_t limit;    // requests to count; 0: until the phase ends
    uint64_t ramp_ns; // closed loop: the streams' starts are spread over this time
    uint32_t tokens;  // asked for, all choices together
    int choices;
    double disconnect_share;
    double slow_share;
    uint32_t slow_bytes; // a slow reader reads that much in SLOW_NS
    uint64_t connect_timeout_ns;
    uint64_t timeout_ns;
    uint64_t seed;
    _Atomic int phase;
    _Atomic int64_t tickets;      // requests of the measuring phase so far
    _Atomic uint64_t measured_at; // begin of the measuring phase
    pthread_mutex_t lock;
    pthread_cond_t changed; // CLOCK_MONOTONIC; a worker has ended
    int running;
} plan;

// One worker's figures. Written by it alone; the progress display reads the atomics while it runs.
typedef struct {
    _Atomic uint64_t live; // requests in flight
    _Atomic uint64_t ok_seen;
    _Atomic uint64_t failed_seen;
    _Atomic uint64_t tokens_seen;
    uint64_t tokens, events, token_events, reads, bytes; // in the measuring phase
    uint64_t ok_in_phase;
    // Requests that began in the measuring phase:
    uint64_t started, ok, failed, disconnected, unfinished, slow, shorter;
    uint64_t failures[FAIL_KINDS], statuses[600];
    uint64_t reconnects, backlog_max;
    uint64_t answers_by_ids, answers_by_usage, answers_by_events;
    uint64_t prompt_tokens, prompts;
    uint64_t clumps[CLUMPS + 1], clump_max; // events by their number of tokens
    uint64_t ended_at;
    uint64_t by_second[SECONDS];
    char sample[SAMPLE]; // of the first failure
    histogram connect, lag, first_event, ttft, itl, tpot, e2e;
} figures;

typedef struct {
    plan *plan;
    int index;
    pthread_t thread;
    figures figures;
    char error[160]; // why it could not run
} worker;

uint64_t now_ns(void);
// Thread function; `argument` is a worker. Ends when its requests have ended, or in PHASE_STOP.
void *worker_run(void *argument);

#endif
