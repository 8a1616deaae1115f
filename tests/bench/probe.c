// The generator's parsing and counting, callable from tests.
#include <stdlib.h>

#include "answer.h"
#include "histogram.h"
#include "response.h"

double probe_quantile(const uint64_t *values, size_t count, double share)
{
    histogram *h = calloc(1, sizeof *h);
    for (size_t i = 0; i < count; i++)
        histogram_add(h, values[i]);
    double found = histogram_quantile(h, share);
    free(h);
    return found;
}

// Feeds the bytes in pieces that end at `cuts`; the last event. `body` gets the body, `used` how many bytes the response took.
int probe_response(const char *data, const size_t *cuts, size_t count, char *body, size_t *length, int *status, bool *closes, size_t *used)
{
    response r;
    response_event found = RESPONSE_MORE;
    response_begin(&r);
    *length = 0;
    const char *at = data;
    for (size_t i = 0; i < count && found == RESPONSE_MORE; i++) {
        // A copy of just this piece, so that reading beyond it is an error that tools can see.
        size_t size = (size_t)(data + cuts[i] - at);
        char *piece = malloc(size + 1);
        memcpy(piece, at, size);
        const char *in = piece;
        span part;
        while ((found = response_next(&r, &in, piece + size, &part)) == RESPONSE_BODY) {
            memcpy(body + *length, part.at, part.length);
            *length += part.length;
        }
        at += in - piece;
        free(piece);
    }
    if (found == RESPONSE_MORE)
        found = response_end(&r) == RESPONSE_DONE ? RESPONSE_DONE : RESPONSE_MORE;
    *status = r.status;
    *closes = r.closes;
    *used = (size_t)(at - data);
    return found;
}

void probe_event(const char *data, size_t length, bool choices, answer *found)
{
    *found = answer_event(data, length, choices);
}
