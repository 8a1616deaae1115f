#include "response.h"

#include <string.h>
#include <strings.h>

enum { STATUS, HEADER, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, UNTIL_CLOSE, DONE, BAD };

void response_begin(response *r)
{
    memset(r, 0, offsetof(response, line));
}

// The next whole line without its end; false while it has not come. A line within these bytes is not copied.
static bool take_line(response *r, const char **at, const char *end, span *line)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline ? newline : end;
    size_t length = (size_t)(stop - *at);
    if (newline && r->line_length == 0) {
        *line = (span){*at, length};
    } else {
        size_t room = sizeof r->line - r->line_length;
        size_t kept = length < room ? length : room;
        memcpy(r->line + r->line_length, *at, kept);
        r->line_length += (uint32_t)kept;
        *line = (span){r->line, r->line_length};
    }
    *at = newline ? newline + 1 : end;
    if (!newline)
        return false;
    r->line_length = 0;
    if (line->length && line->at[line->length - 1] == '\r')
        line->length--;
    return true;
}

static int digit(char c, int base)
{
    int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
    return value < base ? value : -1;
}

// A number at the beginning of the text, behind blanks; false if there is none or it is absurd.
static bool number(span text, int base, uint64_t *value)
{
    size_t i = 0;
    while (i < text.length && (text.at[i] == ' ' || text.at[i] == '\t'))
        i++;
    size_t first = i;
    *value = 0;
    for (; i < text.length && digit(text.at[i], base) >= 0; i++) {
        if (*value >> 50)
            return false;
        *value = *value * (uint64_t)base + (uint64_t)digit(text.at[i], base);
    }
    return i > first;
}

static bool status_line(response *r, span line)
{
    uint64_t code;
    if (line.length < 12 || memcmp(line.at, "HTTP/1.", 7) != 0 || !number((span){line.at + 9, 3}, 10, &code) || code < 100 || code > 599)
        return false;
    r->status = (int)code;
    r->closes = line.at[7] == '0';
    return true;
}

static bool header(response *r, span line)
{
    const char *colon = memchr(line.at, ':', line.length);
    if (!colon)
        return false;
    size_t name = (size_t)(colon - line.at);
    span value = {colon + 1, line.length - name - 1};
    if (name == 14 && strncasecmp(line.at, "content-length", name) == 0) {
        r->has_length = true;
        return number(value, 10, &r->left);
    }
    while (value.length && *value.at == ' ')
        value.at++, value.length--;
    if (name == 17 && strncasecmp(line.at, "transfer-encoding", name) == 0)
        r->chunked = value.length >= 7 && strncasecmp(value.at + value.length - 7, "chunked", 7) == 0;
    else if (name == 10 && strncasecmp(line.at, "connection", name) == 0 && value.length >= 5 && strncasecmp(value.at, "close", 5) == 0)
        r->closes = true;
    return true;
}

static uint8_t behind_headers(response *r)
{
    if (r->status < 200) {
        response_begin(r);
        r->begun = true;
        return STATUS;
    }
    if (r->status == 204 || r->status == 304)
        return DONE;
    if (r->chunked)
        return CHUNK_SIZE;
    if (r->has_length)
        return r->left ? BODY : DONE;
    r->closes = true;
    return UNTIL_CLOSE;
}

static uint8_t behind_line(response *r, span line)
{
    switch (r->state) {
    case STATUS:
        return status_line(r, line) ? HEADER : BAD;
    case HEADER:
        if (line.length == 0)
            return behind_headers(r);
        return header(r, line) ? HEADER : BAD;
    case CHUNK_SIZE:
        if (!number(line, 16, &r->left))
            return BAD;
        return r->left ? CHUNK : TRAILER;
    case CHUNK_END:
        return line.length == 0 ? CHUNK_SIZE : BAD;
    default:
        return line.length == 0 ? DONE : TRAILER;
    }
}

response_event response_next(response *r, const char **at, const char *end, span *body)
{
    for (;;) {
        if (r->state == DONE)
            return RESPONSE_DONE;
        if (r->state == BAD)
            return RESPONSE_BAD;
        if (*at == end)
            return RESPONSE_MORE;
        r->begun = true;
        if (r->state == BODY || r->state == CHUNK || r->state == UNTIL_CLOSE) {
            size_t length = (size_t)(end - *at);
            if (r->state != UNTIL_CLOSE && length > r->left)
                length = (size_t)r->left;
            *body = (span){*at, length};
            *at += length;
            if (r->state != UNTIL_CLOSE && (r->left -= length) == 0)
                r->state = r->state == BODY ? DONE : CHUNK_END;
            return RESPONSE_BODY;
        }
        span line;
        if (take_line(r, at, end, &line))
            r->state = behind_line(r, line);
    }
}

response_event response_end(const response *r)
{
    return r->state == UNTIL_CLOSE || r->state == DONE ? RESPONSE_DONE : RESPONSE_BAD;
}
