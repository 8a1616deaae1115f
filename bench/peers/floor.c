// The least that a frontend can cost: one thread, one epoll, one write() per token and stream, and nothing else.
//
//     floor PORT STEP_MS
//
// There is no engine behind it. It keeps the step clock itself (a line on standard input sets a new step in milliseconds,
// 0: no clock), and every token is the same ready-made chunk, so that no byte is decoded, encoded or copied for it.
// Requests are read as far as needed: head, content-length, max_tokens (max_completion_tokens, else max_tokens, else 16)
// and "stream". GET gets an empty 200. The first token goes out at once, as an idle engine's does; finish, usage and
// [DONE] leave with the last one. It ends when its standard input does.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MAX_FD 32768
#define FIRST_ROOM 8192
#define MAX_REQUEST (1 << 24)

struct stream {
    int running, left, wanted, open, streamed;
    int begun;      // the head has been written
    char *request;  // what has been read of it; NULL: nothing yet
    size_t got, room;
};

static struct stream streams[MAX_FD];
static int running[MAX_FD];
static int running_count;
static char opening[1024]; // the head, and the chunk behind it
static char *chunk;        // of every token
static int opening_len, chunk_len;

static const char event_text[] =
    "data: {\"id\":\"chatcmpl-bb0a4ca8d67b8c2e\",\"object\":\"chat.completion.chunk\",\"created\":1795972768,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" MessageBoxIcon\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
static const char stream_head[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char empty_answer[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

// Whether all was written. A full socket loses the rest: the floor waits for nobody, and its streams stay far below that.
static int put(int fd, const char *data, int len) { return write(fd, data, len) == len || errno == EAGAIN; }

static int add_chunk(char *at, const char *text) { return sprintf(at, "%zx\r\n%s\r\n", strlen(text), text); }

static int write_last(int fd, const struct stream *s) {
    char text[1024], out[4096];
    int len = s->begun ? chunk_len : opening_len;
    memcpy(out, s->begun ? chunk : opening, len);
    sprintf(text,
            "data: {\"id\":\"chatcmpl-bb0a4ca8d67b8c2e\",\"object\":\"chat.completion.chunk\",\"created\":1795972768,\"model\":\"m\","
            "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n"
            "data: {\"id\":\"chatcmpl-bb0a4ca8d67b8c2e\",\"object\":\"chat.completion.chunk\",\"created\":1795972768,\"model\":\"m\","
            "\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n",
            s->wanted + 32, s->wanted);
    len += add_chunk(out + len, text);
    len += sprintf(out + len, "0\r\n\r\n");
    return put(fd, out, len);
}

static int write_whole(int fd, const struct stream *s) {
    char body[1024], out[2048];
    int len = sprintf(body,
                      "{\"id\":\"chatcmpl-bb0a4ca8d67b8c2e\",\"object\":\"chat.completion\",\"created\":1795972768,\"model\":\"m\",\"choices\":"
                      "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" MessageBoxIcon\"},\"logprobs\":null,\"finish_reason\":\"length\"}],"
                      "\"usage\":{\"prompt_tokens\":32,\"total_tokens\":%d,\"completion_tokens\":%d}}",
                      s->wanted + 32, s->wanted);
    len = sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len, body);
    return put(fd, out, len);
}

// One token for a stream; returns whether it goes on.
static int token(int fd) {
    struct stream *s = &streams[fd];
    if (--s->left > 0) {
        if (s->streamed && !(s->begun ? put(fd, chunk, chunk_len) : put(fd, opening, opening_len))) s->running = 0;
        s->begun = 1;
    } else {
        if (s->streamed) write_last(fd, s); else write_whole(fd, s);
        s->running = 0;
    }
    return s->running;
}

static void step(void) {
    int kept = 0;
    for (int k = 0; k < running_count; k++) {
        int fd = running[k];
        if (!streams[fd].open || !streams[fd].running) continue;
        if (token(fd)) running[kept++] = fd;
    }
    running_count = kept;
}

static void drop(int fd) {
    free(streams[fd].request);
    memset(&streams[fd], 0, sizeof streams[fd]);
    for (int k = 0; k < running_count; k++)
        if (running[k] == fd) running[k--] = running[--running_count];
    close(fd);
}

static int number_after(const char *text, const char *name, int otherwise) {
    const char *at = strstr(text, name);
    if (!at) return otherwise;
    at += strlen(name);
    while (*at == ' ' || *at == ':') at++;
    return atoi(at);
}

static int says_true(const char *text, const char *name) {
    const char *at = strstr(text, name);
    if (!at) return 0;
    at += strlen(name);
    while (*at == ' ' || *at == ':') at++;
    return strncmp(at, "true", 4) == 0;
}

// Read what is there; when a request is whole, answer it.
static void take(int fd) {
    struct stream *s = &streams[fd];
    if (s->room - s->got < 4096) {
        size_t room = s->room ? s->room * 2 : FIRST_ROOM;
        char *grown = room <= MAX_REQUEST ? realloc(s->request, room) : NULL;
        if (!grown) { drop(fd); return; }
        s->request = grown;
        s->room = room;
    }
    ssize_t n = read(fd, s->request + s->got, s->room - s->got - 1);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) drop(fd);
        return;
    }
    s->got += n;
    s->request[s->got] = 0;
    char *end = strstr(s->request, "\r\n\r\n");
    if (!end) return;
    char *body = end + 4, *length = strcasestr(s->request, "\r\ncontent-length:");
    size_t wanted = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    if (s->got < (size_t)(body - s->request) + wanted) return;
    s->got = 0;
    if (strncmp(s->request, "GET ", 4) == 0) {
        put(fd, empty_answer, sizeof empty_answer - 1);
        return;
    }
    s->wanted = s->left = number_after(body, "\"max_completion_tokens\"", number_after(body, "\"max_tokens\"", 16));
    s->streamed = says_true(body, "\"stream\"");
    if (s->running) return;  // pipelining is not served
    s->running = 1;
    s->begun = 0;
    if (token(fd)) running[running_count++] = fd;
}

static void set_clock(int timer, double step_ms) {
    long ns = (long)(step_ms * 1e6);
    struct itimerspec every = {{ns / 1000000000, ns % 1000000000}, {ns / 1000000000, ns % 1000000000}};
    timerfd_settime(timer, 0, &every, NULL);
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: floor PORT STEP_MS\n"); return 2; }
    double step_ms = atof(argv[2]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < MAX_FD ? files.rlim_max : MAX_FD;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) { perror("floor: bind"); return 1; }
    chunk = opening + sprintf(opening, "%s", stream_head);
    chunk_len = add_chunk(chunk, event_text);
    opening_len = (int)(chunk - opening) + chunk_len;
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    set_clock(timer, step_ms);
    int own[] = {listener, timer, STDIN_FILENO};
    for (int k = 0; k < 3; k++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = own[k]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, own[k], &event)) { perror("floor: epoll"); return 1; }
    }
    static struct epoll_event events[1024];
    for (;;) {
        int count = epoll_wait(poll, events, 1024, step_ms > 0 || !running_count ? -1 : 0);
        for (int k = 0; k < count; k++) {
            int fd = events[k].data.fd;
            if (fd == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (client < 0) continue;
                if (client >= MAX_FD) { close(client); continue; }
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                streams[client].open = 1;
                struct epoll_event event = {.events = EPOLLIN, .data.fd = client};
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            } else if (fd == timer) {
                unsigned long ticks;
                if (read(timer, &ticks, sizeof ticks) == sizeof ticks && step_ms > 0) step();
            } else if (fd == STDIN_FILENO) {
                char line[64];
                ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);
                if (n <= 0) return 0;
                line[n] = 0;
                step_ms = atof(line);
                set_clock(timer, step_ms);
            } else if (streams[fd].open) take(fd);
        }
        if (step_ms <= 0) step();
    }
}
