// HTTP/1.1 responses, parsed as the bytes come. No socket, no allocation: bytes in, spans of the body out.
#ifndef LOAD_RESPONSE_H
#define LOAD_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    RESPONSE_MORE, // all bytes are used up, the response goes on
    RESPONSE_BODY, // a span of the body; call again
    RESPONSE_DONE, // the response is complete; bytes behind it are left alone
    RESPONSE_BAD,  // not HTTP/1.1
} response_event;

typedef struct {
    const char *at;
    size_t length;
} span;

typedef struct {
    uint8_t state;
    bool chunked;
    bool has_length;
    bool closes;   // the server will close the connection behind it
    bool begun;    // a byte of it has been seen
    int status;
    uint64_t left; // bytes of the body or of the chunk that are still to come
    uint32_t line_length;
    char line[256]; // a line that came in several pieces; only its beginning is kept
} response;

// Ready for the next response of a connection.
void response_begin(response *r);
// Uses bytes from *at up to `end`, moving *at; see response_event. `body` points into these bytes.
response_event response_next(response *r, const char **at, const char *end, span *body);
// The connection has ended: RESPONSE_DONE if that is how this response ends, else RESPONSE_BAD.
response_event response_end(const response *r);

#endif
