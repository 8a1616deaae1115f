// What an event or a body of an OpenAI-compatible server says, found without parsing its JSON: keys are searched with their quotes,
// which text inside a JSON string cannot contain unescaped.
#ifndef LOAD_ANSWER_H
#define LOAD_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t tokens;       // by token_ids if it has them, else 1 if it has any text
    uint32_t choice;       // index of the choice; only looked for with `choices`
    bool by_ids;           // `tokens` was counted in token_ids
    bool done;             // [DONE]
    bool error;            // an error object
    int64_t prompt_tokens; // of the usage; -1: not there
    int64_t completion_tokens;
} answer;

// The data of one server-sent event. `choices`: the request has asked for several.
answer answer_event(const char *data, size_t length, bool choices);
// The body of an answer that does not stream: the usage, and nothing else.
answer answer_body(const char *data, size_t length);

#endif
