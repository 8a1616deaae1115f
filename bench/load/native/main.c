// Load generator for OpenAI-compatible servers. Run by bench/load/run.py; this is what the two say to each other:
//
//   standard output   "measuring", then "ended", then one line of JSON
//   standard input    a line behind "measuring" (the phase begins when it comes) and behind "ended" (the end is not held up by it)
//   standard error    a progress bar with --progress; why it cannot run, with exit status 2
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

enum { MOST_WORKERS = 64 };

typedef struct {
    const char *host, *port, *path, *bodies, *headers;
    double seconds, warmup_s, drain_s;
    bool progress;
} options;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

static double number(const char *name, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "--%s %s: not a number from %g to %g\n", name, text, least, most);
        exit(2);
    }
    return value;
}

static void parse(int argc, char **argv, options *o, plan *p)
{
    enum { HOST, PORT, PATH, BODIES, HEADERS, OPEN, STREAM, NEW, WORKERS, STREAMS, RATE, REQUESTS, SECONDS_, WARMUP, DRAIN, RAMP, TOKENS,
           N, LEAVE, SLOW, SLOW_BYTES, TIMEOUT, CONNECT_TIMEOUT, SEED, VARY, PROGRESS };
    static const struct option known[] = {
        {"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"path", 1, 0, PATH}, {"bodies", 1, 0, BODIES}, {"headers", 1, 0, HEADERS},
        {"open", 0, 0, OPEN}, {"stream", 0, 0, STREAM}, {"new", 0, 0, NEW}, {"threads", 1, 0, WORKERS}, {"streams", 1, 0, STREAMS},
        {"rate", 1, 0, RATE}, {"requests", 1, 0, REQUESTS}, {"seconds", 1, 0, SECONDS_}, {"warmup", 1, 0, WARMUP}, {"drain", 1, 0, DRAIN},
        {"ramp", 1, 0, RAMP}, {"tokens", 1, 0, TOKENS}, {"choices", 1, 0, N}, {"disconnect-share", 1, 0, LEAVE}, {"slow-share", 1, 0, SLOW},
        {"slow-bytes", 1, 0, SLOW_BYTES}, {"timeout", 1, 0, TIMEOUT}, {"connect-timeout", 1, 0, CONNECT_TIMEOUT}, {"seed", 1, 0, SEED},
        {"vary-at", 1, 0, VARY}, {"progress", 0, 0, PROGRESS}, {0, 0, 0, 0},
    };
    *o = (options){.host = "127.0.0.1", .port = "8000", .path = "/", .headers = "", .drain_s = 30};
    p->workers = p->streams = p->choices = 1;
    p->tokens = 1;
    p->keep_alive = true;
    p->slow_bytes = 200;
    p->timeout_ns = 120000000000u;
    p->connect_timeout_ns = 10000000000u;
    int at, key;
    while ((key = getopt_long(argc, argv, "", known, &at)) != -1) {
        const char *name = key == '?' ? "" : known[key].name;
        switch (key) {
        case HOST: o->host = optarg; break;
        case PORT: o->port = optarg; break;
        case PATH: o->path = optarg; break;
        case BODIES: o->bodies = optarg; break;
        case HEADERS: o->headers = optarg; break;
        case OPEN: p->open = true; break;
        case STREAM: p->stream = true; break;
        case NEW: p->keep_alive = false; break;
        case WORKERS: p->workers = (int)number(name, optarg, 1, MOST_WORKERS); break;
        case STREAMS: p->streams = (int)number(name, optarg, 1, 60000); break;
        case RATE: p->rate = number(name, optarg, 0.001, 1e7); break;
        case REQUESTS: p->limit = (int64_t)number(name, optarg, 1, 1e12); break;
        case SECONDS_: o->seconds = number(name, optarg, 0.001, SECONDS); break;
        case WARMUP: o->warmup_s = number(name, optarg, 0, SECONDS); break;
        case DRAIN: o->drain_s = number(name, optarg, 0, SECONDS); break;
        case RAMP: p->ramp_ns = (uint64_t)(number(name, optarg, 0, SECONDS) * 1e9); break;
        case TOKENS: p->tokens = (uint32_t)number(name, optarg, 1, 1e9); break;
        case N: p->choices = (int)number(name, optarg, 1, 128); break;
        case LEAVE: p->disconnect_share = number(name, optarg, 0, 1); break;
        case SLOW: p->slow_share = number(name, optarg, 0, 1); break;
        case SLOW_BYTES: p->slow_bytes = (uint32_t)number(name, optarg, 1, 65536); break;
        case TIMEOUT: p->timeout_ns = (uint64_t)(number(name, optarg, 0.001, 1e6) * 1e9); break;
        case CONNECT_TIMEOUT: p->connect_timeout_ns = (uint64_t)(number(name, optarg, 0.001, 1e6) * 1e9); break;
        case SEED: p->seed = (uint64_t)number(name, optarg, 0, 1e15); break;
        case VARY: p->vary_at = (size_t)number(name, optarg, 1, 1e9); break;
        case PROGRESS: o->progress = true; break;
        default: exit(2);
        }
    }
    if (optind < argc)
        die(argv[optind], "not an option");
    if (!o->bodies)
        die("--bodies", "is needed");
    if (p->open && p->rate <= 0)
        die("--rate", "is needed with --open");
    if ((p->limit > 0) == (o->seconds > 0))
        die("--requests, --seconds", "one of them is needed");
    if (p->workers > p->streams)
        p->workers = p->streams;
}

// One request for each line of the file.
static void read_bodies(const options *o, plan *p)
{
    FILE *file = fopen(o->bodies, "r");
    if (!file)
        die(o->bodies, strerror(errno));
    char *line = NULL;
    size_t room = 0, most = 0;
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] == '\n')
            length--;
        if (length == 0)
            continue;
        if (p->request_count == most) {
            most = most ? most * 2 : 256;
            p->requests = realloc(p->requests, most * sizeof *p->requests);
            if (!p->requests)
                die(o->bodies, "out of memory");
        }
        request *r = &p->requests[p->request_count++];
        int head = asprintf(&r->bytes,
                            "POST %s HTTP/1.1\r\nhost: %s:%s\r\naccept: */*\r\ncontent-type: application/json\r\n%s%scontent-length: %zd\r\n\r\n",
                            o->path, o->host, o->port, p->keep_alive ? "" : "connection: close\r\n", o->headers, length);
        if (head < 0 || !(r->bytes = realloc(r->bytes, (size_t)head + (size_t)length)))
            die(o->bodies, "out of memory");
        memcpy(r->bytes + head, line, (size_t)length);
        r->head = (size_t)head;
        r->length = (size_t)head + (size_t)length;
        if (p->vary_at && p->vary_at + 5 * VARIED_WORDS > (size_t)length)
            die("--vary-at", "behind the end of a body");
    }
    free(line);
    fclose(file);
    if (!p->request_count)
        die(o->bodies, "no request in it");
}

static void resolve(const options *o, plan *p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(o->host, o->port, &hints, &found);
    if (error)
        die(o->host, gai_strerror(error));
    memcpy(&p->address, found->ai_addr, found->ai_addrlen);
    p->address_length = found->ai_addrlen;
    freeaddrinfo(found);
}

static void raise_file_limit(const plan *p)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < (rlim_t)(p->streams + 16 + 2 * p->workers))
        die("--streams", "more than this process may have open files (ulimit -Hn)");
}

static void show(const plan *p, const worker *workers, const char *name, double part, uint64_t *last_tokens, uint64_t *last_at)
{
    uint64_t live = 0, ok = 0, failed = 0, tokens = 0, now = now_ns();
    for (int i = 0; i < p->workers; i++) {
        live += workers[i].figures.live;
        ok += workers[i].figures.ok_seen;
        failed += workers[i].figures.failed_seen;
        tokens += workers[i].figures.tokens_seen;
    }
    char bar[21];
    int filled = part >= 1 ? 20 : (int)(part * 20);
    memset(bar, '#', (size_t)filled);
    memset(bar + filled, '.', (size_t)(20 - filled));
    bar[20] = 0;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f%%  %llu live  %llu done  %llu failed  %.0f tok/s", name, bar, part >= 1 ? 100 : part * 100,
            (unsigned long long)live, (unsigned long long)ok, (unsigned long long)failed,
            (double)(tokens - *last_tokens) * 1e9 / (double)(now - *last_at));
    fflush(stderr);
    *last_tokens = tokens;
    *last_at = now;
}

// Until `deadline` (0: none) or until no worker runs; true if none does.
static bool wait_until(plan *p, const worker *workers, uint64_t deadline, const char *name, bool progress)
{
    uint64_t began = now_ns(), tokens = 0, shown = began;
    if (progress)
        show(p, workers, name, 0, &tokens, &(uint64_t){began - 1});
    pthread_mutex_lock(&p->lock);
    while (p->running && (!deadline || now_ns() < deadline)) {
        uint64_t until = progress ? now_ns() + 250000000u : deadline ? deadline : now_ns() + 1000000000u;
        if (deadline && until > deadline)
            until = deadline;
        struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_cond_timedwait(&p->changed, &p->lock, &at);
        if (progress && now_ns() - shown > 240000000u) {
            double part = deadline ? (double)(now_ns() - began) / (double)(deadline - began) : (double)p->tickets / (double)p->limit;
            show(p, workers, name, part, &tokens, &shown);
        }
    }
    bool none = p->running == 0;
    pthread_mutex_unlock(&p->lock);
    if (progress)
        fprintf(stderr, "\r\033[K");
    return none;
}

// Tell the other side, and wait for its line.
static void tell(const char *what)
{
    char line[16];
    puts(what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(3); // it has gone
}

static void start(plan *p, worker *workers)
{
    p->running = p->workers;
    for (int i = 0; i < p->workers; i++) {
        workers[i].plan = p;
        workers[i].index = i;
        if (pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]))
            die("threads", "cannot start one");
        char name[16];
        snprintf(name, sizeof name, "load-%d", i);
        pthread_setname_np(workers[i].thread, name);
    }
}

static void measure(plan *p)
{
    tell("measuring");
    p->measured_at = now_ns();
    atomic_store_explicit(&p->phase, PHASE_MEASURING, memory_order_release);
}

int main(int argc, char **argv)
{
    static plan p;
    options o;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    parse(argc, argv, &o, &p);
    raise_file_limit(&p);
    resolve(&o, &p);
    read_bodies(&o, &p);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p.changed, &monotonic);
    pthread_mutex_init(&p.lock, NULL);
    worker *workers = calloc((size_t)p.workers, sizeof *workers);
    if (!workers)
        die("threads", "out of memory");

    if (o.warmup_s > 0) {
        start(&p, workers);
        wait_until(&p, workers, now_ns() + (uint64_t)(o.warmup_s * 1e9), "warm-up  ", o.progress);
        measure(&p);
    } else {
        measure(&p);
        start(&p, workers);
    }
    cpu_time before = cpu_now();
    bool over = wait_until(&p, workers, o.seconds > 0 ? p.measured_at + (uint64_t)(o.seconds * 1e9) : 0, "measuring", o.progress);
    int expected = PHASE_MEASURING;
    atomic_compare_exchange_strong(&p.phase, &expected, PHASE_DRAINING);
    uint64_t ended_at = now_ns();
    cpu_time after = cpu_now();
    tell("ended");
    if (!over && !wait_until(&p, workers, now_ns() + (uint64_t)(o.drain_s * 1e9), "the rest ", o.progress))
        atomic_store(&p.phase, PHASE_STOP);
    if (over)
        ended_at = 0;
    for (int i = 0; i < p.workers; i++) {
        pthread_join(workers[i].thread, NULL);
        if (over && workers[i].figures.ended_at > ended_at)
            ended_at = workers[i].figures.ended_at;
        if (workers[i].error[0])
            die("load", workers[i].error);
    }
    report_write(stdout, workers, p.workers, ended_at - p.measured_at, (cpu_time){after.user - before.user, after.system - before.system});
    return 0;
}
