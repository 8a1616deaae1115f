#define _GNU_SOURCE
#include "answer.h"

#include <string.h>

static const char *behind(const char *data, const char *end, const char *key)
{
    size_t length = strlen(key);
    const char *at = memmem(data, (size_t)(end - data), key, length);
    if (!at)
        return NULL;
    for (at += length; at < end && *at == ' ';)
        at++;
    return at < end ? at : NULL;
}

static int64_t number(const char *data, const char *end, const char *key)
{
    const char *at = behind(data, end, key);
    if (!at || *at < '0' || *at > '9')
        return -1;
    int64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9' && value < 1000000000; at++)
        value = value * 10 + (*at - '0');
    return value;
}

static uint32_t elements(const char *at, const char *end)
{
    uint32_t count = 1;
    if (++at < end && *at == ']')
        return 0;
    for (; at < end && *at != ']'; at++)
        count += *at == ',';
    return count;
}

static bool has_text(const char *data, const char *end)
{
    // Only the first "content" counts: a second one belongs to logprobs.
    static const char *const keys[] = {"\"content\":", "\"text\":", "\"reasoning\":", "\"reasoning_content\":", "\"arguments\":"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *at = behind(data, end, keys[i]);
        if (at && at + 1 < end && at[0] == '"' && at[1] != '"')
            return true;
    }
    return false;
}

static void read_usage(answer *found, const char *data, const char *end)
{
    const char *usage = behind(data, end, "\"usage\":");
    if (usage && *usage == '{') {
        found->prompt_tokens = number(usage, end, "\"prompt_tokens\":");
        found->completion_tokens = number(usage, end, "\"completion_tokens\":");
    }
}

answer answer_event(const char *data, size_t length, bool choices)
{
    answer found = {.prompt_tokens = -1, .completion_tokens = -1};
    const char *end = data + length;
    if (length >= 6 && memcmp(data, "[DONE]", 6) == 0) {
        found.done = true;
        return found;
    }
    if (length >= 8 && memcmp(data, "{\"error\"", 8) == 0) {
        found.error = true;
        return found;
    }
    const char *ids = behind(data, end, "\"token_ids\":");
    if (ids && *ids == '[') {
        found.by_ids = true;
        found.tokens = elements(ids, end);
    } else {
        found.tokens = has_text(data, end);
    }
    if (choices) {
        const char *list = behind(data, end, "\"choices\":");
        int64_t index = list ? number(list, end, "\"index\":") : -1;
        found.choice = index > 0 ? (uint32_t)index : 0;
    }
    // Usage comes in an event of its own or is the last member of one.
    if (found.tokens == 0 || (length >= 2 && memcmp(end - 2, "}}", 2) == 0))
        read_usage(&found, data, end);
    return found;
}

answer answer_body(const char *data, size_t length)
{
    answer found = {.prompt_tokens = -1, .completion_tokens = -1};
    read_usage(&found, data, data + length);
    return found;
}
