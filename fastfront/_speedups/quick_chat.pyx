# cython: language_level=3, freethreading_compatible=True
"""Chat requests of the plainest kind, made ready in one go.

Most requests have few fields, texts for messages and nothing out of bounds. `QuickChats` makes of such a request what
`fastfront.openai.chat.prepare_chat_fields` makes of it, and leaves all others, and all errors, to that.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.time cimport time

from fastfront._speedups.plain_chat cimport read_plain_chat
from fastfront._speedups.prepared cimport PreparedCall, PreparedPrompt
from fastfront._speedups.token_ids cimport packed_count, packed_ids

import os

cdef extern from *:
    """
    #define FASTFRONT_NEXT(counter, step) __atomic_fetch_add(counter, step, __ATOMIC_RELAXED)
    """
    uint64_t FASTFRONT_NEXT(uint64_t *, uint64_t) nogil

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1

FIELDS = frozenset({
    "messages", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stream", "stream_options", "stop", "seed",
    "n", "user", "ignore_eos",
})


cdef int64_t NONE = -(1LL << 62)


cdef int64_t number(dict fields, str name, int64_t otherwise) except? -2:
    """An integer field; `otherwise` if it is not there or None, 0 if it is beyond 64 bits."""
    cdef int beyond = 0
    cdef int64_t found
    value = fields[name] if name in fields else None
    if value is None:
        return otherwise
    found = PyLong_AsLongLongAndOverflow(value, &beyond)
    return 0 if beyond else found


cdef class QuickChats:
    """What one server's requests have in common. Immutable but for the counter of labels; any thread.

    `fill(roles, texts, add_generation_prompt)` gives the prompt of a plain chat or None, `encode(text)` its ids, packed.
    `max_new_tokens` and `max_tokens_cap` are the server's default and bound, or None; `stopping` and `ignoring` the sampling map's keys
    about stop tokens without and with `ignore_eos`; below `greedy_below` a temperature means greedy, and no other is below
    `min_temperature`.
    """
    cdef object fill, encode, model_names
    cdef str model, role, billing_header
    cdef bint any_model_name, force_usage, prompt_details, metrics, tokens_as_ids
    cdef int64_t max_model_len, max_token_id, max_new_tokens, max_tokens_cap, max_stop_strings
    cdef double greedy_below, min_temperature
    cdef dict stopping, ignoring
    cdef uint64_t labels

    def __init__(
        self, *, object fill not None, object encode not None, str model not None, frozenset model_names not None,
        bint any_model_name, int64_t max_model_len, int64_t max_token_id, object max_new_tokens, object max_tokens_cap,
        int64_t max_stop_strings, dict stopping not None, dict ignoring not None, str role not None, str billing_header not None,
        bint force_usage, bint prompt_details, bint metrics, bint tokens_as_ids, double greedy_below, double min_temperature,
    ):
        self.fill = fill
        self.encode = encode
        self.model = model
        self.model_names = model_names
        self.any_model_name = any_model_name
        self.max_model_len = max_model_len
        self.max_token_id = max_token_id
        self.max_new_tokens = max_model_len if max_new_tokens is None else min(max_new_tokens, max_model_len)
        self.max_tokens_cap = max_model_len if max_tokens_cap is None else min(max_tokens_cap, max_model_len)
        self.max_stop_strings = max_stop_strings
        self.stopping = stopping
        self.ignoring = ignoring
        self.role = role
        self.billing_header = billing_header
        self.force_usage = force_usage
        self.prompt_details = prompt_details
        self.metrics = metrics
        self.tokens_as_ids = tokens_as_ids
        self.greedy_below = greedy_below
        self.min_temperature = min_temperature
        self.labels = <uint64_t>int.from_bytes(os.urandom(8))

    def prepare(self, dict fields not None, object header not None):
        """The call of a request whose fields have their shapes; None if it is not of the plainest kind. `header` as in prepare_chat."""
        cdef PreparedCall call
        cdef PreparedPrompt prompt
        cdef int64_t requested
        for name in fields:
            if name not in FIELDS:
                return None
        if not self.names_model(fields) or number(fields, "n", 1) != 1:
            return None
        requested = self.asked_tokens(fields)
        if requested < 0 or header("x-vllm-priority") is not None or header("x-data-parallel-rank") is not None:
            return None
        call = PreparedCall.__new__(PreparedCall)
        call.stop = self.stop_strings(fields)
        if call.stop is None or not self.put_usage(fields, call):
            return None
        call.sampling = self.sampling_map(fields)
        if call.sampling is None:
            return None
        prompt = self.prompt_of(fields["messages"], requested)
        if prompt is None:
            return None
        call.kind = "chat"
        label = header("x-request-id")
        call.external_id = "chatcmpl-" + <str>label if label else self.new_id()
        call.created = time(NULL)
        call.model = self.model
        call.prompts = [prompt]
        if number(fields, "seed", -1) != -1:
            call.seed = fields["seed"]
        call.prompt_details = self.prompt_details
        call.metrics = self.metrics
        call.tokens_as_ids = self.tokens_as_ids
        call.role = self.role
        return call

    cdef bint names_model(self, dict fields) except -1:
        name = fields["model"] if "model" in fields else None
        return not name or self.any_model_name or name in self.model_names

    cdef int64_t asked_tokens(self, dict fields) except? -2:
        """The number of tokens asked for, 0: none was; -1: it is out of bounds."""
        cdef int64_t asked = number(fields, "max_completion_tokens", NONE)
        if asked == NONE:
            asked = number(fields, "max_tokens", NONE)
        if asked == NONE:
            return 0
        return asked if 1 <= asked <= self.max_model_len else -1

    cdef list stop_strings(self, dict fields):
        """None: they have to be looked at."""
        stop = fields["stop"] if "stop" in fields else None
        if stop is None:
            return []
        if type(stop) is str:
            return [stop] if stop else None
        return stop if 0 < len(<list>stop) <= self.max_stop_strings and "" not in <list>stop else None

    cdef bint put_usage(self, dict fields, PreparedCall call) except -1:
        """False: options of a stream for an answer that is none."""
        call.stream = bool(fields["stream"]) if "stream" in fields else False
        options = fields["stream_options"] if "stream_options" in fields else None
        if options:
            if not call.stream:
                return False
            call.include_usage = bool((<dict>options).get("include_usage"))
            call.continuous_usage = call.include_usage and bool((<dict>options).get("continuous_usage_stats"))
        if self.force_usage and call.stream:
            call.include_usage = True
            call.continuous_usage = True
        return True

    cdef dict sampling_map(self, dict fields):
        """None: a value is out of bounds."""
        cdef double value
        cdef dict out = (self.ignoring if "ignore_eos" in fields and fields["ignore_eos"] else self.stopping).copy()
        cdef bint greedy = False
        given = fields["temperature"] if "temperature" in fields else None
        if given is not None:
            value = given
            if not 0.0 <= value <= 2.0:
                return None
            greedy = value < self.greedy_below
            if greedy:
                out["temperature"] = 0.0
            elif value != 1.0:
                out["temperature"] = given if value > self.min_temperature else self.min_temperature
        given = fields["top_p"] if "top_p" in fields else None
        if given is not None:
            value = given
            if not 0.0 < value <= 1.0:
                return None
            if value != 1.0 and not greedy:
                out["top_p"] = given
        return out

    cdef PreparedPrompt prompt_of(self, list messages, int64_t requested):
        """None: not a plain chat, or perhaps too long."""
        cdef PreparedPrompt prompt
        cdef list texts
        cdef bytes packed
        cdef const int32_t *ids
        cdef Py_ssize_t k, n
        cdef str roles, text
        cdef int64_t room = self.max_model_len - requested if requested < self.max_model_len else self.max_model_len
        cdef int64_t left
        plain = read_plain_chat(messages)
        if plain is None:
            return None
        roles, texts = plain
        if "s" in roles:
            for text in texts:
                if text.startswith(self.billing_header):
                    return None
        text = self.fill(roles, texts, True)
        if text is None or len(text) > room:
            return None
        packed = self.encode(text)
        ids = packed_ids(packed)
        n = packed_count(packed)
        if n == 0 or n > room:
            return None
        for k in range(n):
            if not 0 <= ids[k] <= self.max_token_id:
                return None
        left = self.max_model_len - n
        left = min(left, requested if requested else self.max_new_tokens, self.max_tokens_cap)
        if left < 1:
            return None
        prompt = PreparedPrompt.__new__(PreparedPrompt)
        prompt.ids = packed
        prompt.max_tokens = left
        prompt.echo_text = ""
        return prompt

    cdef str new_id(self):
        """A label nobody has chosen: the numbers of SplitMix64 (Steele, Lea and Flood, 2014) from a random one on."""
        cdef uint64_t z = FASTFRONT_NEXT(&self.labels, 0x9e3779b97f4a7c15ULL) + 0x9e3779b97f4a7c15ULL
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL
        return f"chatcmpl-{z ^ (z >> 31):016x}"
