#include "connection.h"

#include <stdlib.h>
#include <string.h>

enum { PENDING_MOST = 64 << 20 };

void connection_expect(connection *c, const request *request, uint64_t at)
{
    c->request = request;
    c->sent = 0;
    c->scheduled = at;
    c->done = c->failed = c->by_ids = c->first_seen = false;
    c->tokens = 0;
    c->usage_tokens = -1;
    c->first_token = c->last_token = 0;
    memset(c->last_of, 0, sizeof c->last_of);
    c->pending_length = 0;
    response_begin(&c->response);
}

static bool keep(connection *c, const char *bytes, size_t length)
{
    size_t needed = c->pending_length + length;
    if (needed > PENDING_MOST)
        return false;
    if (needed > c->pending_room) {
        size_t room = needed < 1024 ? 1024 : needed * 2;
        char *grown = realloc(c->pending, room);
        if (!grown)
            return false;
        c->pending = grown;
        c->pending_room = room;
    }
    memcpy(c->pending + c->pending_length, bytes, length);
    c->pending_length = needed;
    return true;
}

static void count_tokens(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, const answer *found)
{
    uint32_t choice = found->choice < CHOICES ? found->choice : CHOICES - 1;
    if (c->counted && !c->slow) {
        if (c->first_token == 0)
            histogram_add(&figures->ttft, now - c->scheduled);
        if (c->last_of[choice] != 0)
            histogram_add(&figures->itl, now - c->last_of[choice]);
    }
    if (c->first_token == 0)
        c->first_token = now;
    c->last_of[choice] = c->last_token = now;
    c->tokens += found->tokens;
    c->by_ids = c->by_ids || found->by_ids;
    atomic_store_explicit(&figures->tokens_seen, figures->tokens_seen + found->tokens, memory_order_relaxed);
    if (in_phase) {
        figures->tokens += found->tokens;
        figures->token_events++;
        figures->clumps[found->tokens < CLUMPS ? found->tokens : CLUMPS]++;
        if (found->tokens > figures->clump_max)
            figures->clump_max = found->tokens;
        uint64_t second = (now - plan->measured_at) / 1000000000u;
        figures->by_second[second < SECONDS ? second : SECONDS - 1] += found->tokens;
    }
}

static void take_line(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, const char *line, size_t length)
{
    if (length && line[length - 1] == '\r')
        length--;
    if (length < 5 || memcmp(line, "data:", 5) != 0)
        return;
    size_t skip = length > 5 && line[5] == ' ' ? 6 : 5;
    answer found = answer_event(line + skip, length - skip, plan->choices > 1);
    figures->events += in_phase;
    if (!c->first_seen) {
        c->first_seen = true;
        if (c->counted && !c->slow)
            histogram_add(&figures->first_event, now - c->scheduled);
    }
    c->done = c->done || found.done;
    if (found.error && !c->failed) {
        c->failed = true;
        if (!figures->sample[0])
            memcpy(figures->sample, line + skip, length - skip < SAMPLE - 1 ? length - skip : SAMPLE - 1);
    }
    if (found.tokens)
        count_tokens(c, plan, figures, in_phase, now, &found);
    if (found.completion_tokens >= 0)
        c->usage_tokens = found.completion_tokens;
    if (found.prompt_tokens >= 0 && c->counted) {
        figures->prompt_tokens += (uint64_t)found.prompt_tokens;
        figures->prompts++;
    }
}

static bool take_events(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, span body)
{
    const char *at = body.at, *end = body.at + body.length;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            return keep(c, at, (size_t)(end - at));
        if (c->pending_length) {
            if (!keep(c, at, (size_t)(newline - at)))
                return false;
            take_line(c, plan, figures, in_phase, now, c->pending, c->pending_length);
            c->pending_length = 0;
        } else {
            take_line(c, plan, figures, in_phase, now, at, (size_t)(newline - at));
        }
        at = newline + 1;
    }
    return true;
}

reading connection_take(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, const char *bytes, size_t length, failure *why)
{
    const char *end = bytes + length;
    span body;
    for (;;) {
        switch (response_next(&c->response, &bytes, end, &body)) {
        case RESPONSE_MORE:
            return READ_ON;
        case RESPONSE_DONE:
            if (bytes == end)
                return READ_COMPLETE;
            *why = FAIL_BAD_RESPONSE; // nothing has been asked that more bytes could answer
            return READ_FAILED;
        case RESPONSE_BAD:
            *why = FAIL_BAD_RESPONSE;
            return READ_FAILED;
        case RESPONSE_BODY:
            break;
        }
        bool events = plan->stream && c->response.status == 200;
        if (!(events ? take_events(c, plan, figures, in_phase, now, body) : keep(c, body.at, body.length))) {
            *why = FAIL_BAD_RESPONSE;
            return READ_FAILED;
        }
        if (c->leaves && c->leave_after && c->tokens >= c->leave_after)
            return READ_LEAVE;
    }
}

bool connection_complete(connection *c, const plan *plan, figures *figures, bool in_phase, uint64_t now, failure *why)
{
    if (c->response.status != 200) {
        *why = FAIL_STATUS;
        if (!figures->sample[0] && c->pending_length)
            memcpy(figures->sample, c->pending, c->pending_length < SAMPLE - 1 ? c->pending_length : SAMPLE - 1);
        return false;
    }
    if (c->failed || (plan->stream && !c->done)) {
        *why = c->failed ? FAIL_ERROR_EVENT : FAIL_NO_DONE;
        return false;
    }
    if (!plan->stream) {
        answer found = answer_body(c->pending, c->pending_length);
        c->usage_tokens = found.completion_tokens;
        if (found.prompt_tokens >= 0 && c->counted) {
            figures->prompt_tokens += (uint64_t)found.prompt_tokens;
            figures->prompts++;
        }
    }
    // Without ids an event counts as one token until the usage says better.
    if (!c->by_ids && c->usage_tokens > (int64_t)c->tokens) {
        uint64_t more = (uint64_t)c->usage_tokens - c->tokens;
        c->tokens = (uint32_t)c->usage_tokens;
        atomic_store_explicit(&figures->tokens_seen, figures->tokens_seen + more, memory_order_relaxed);
        if (in_phase) {
            uint64_t second = (now - plan->measured_at) / 1000000000u;
            figures->tokens += more;
            figures->by_second[second < SECONDS ? second : SECONDS - 1] += more;
        }
    }
    figures->ok_in_phase += in_phase;
    atomic_store_explicit(&figures->ok_seen, figures->ok_seen + 1, memory_order_relaxed);
    if (!c->counted)
        return true;
    figures->ok++;
    figures->slow += c->slow;
    figures->shorter += c->tokens < plan->tokens;
    *(c->by_ids ? &figures->answers_by_ids : c->usage_tokens >= 0 ? &figures->answers_by_usage : &figures->answers_by_events) += 1;
    if (!c->slow) {
        histogram_add(&figures->e2e, now - c->scheduled);
        uint32_t each = c->tokens / (uint32_t)plan->choices;
        if (c->last_token > c->first_token && each > 1)
            histogram_add(&figures->tpot, (c->last_token - c->first_token) / (each - 1));
    }
    return true;
}
