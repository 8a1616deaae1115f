# cython: language_level=3, freethreading_compatible=True
"""The fields of usual requests, read and checked in one go.

`QuickFields` makes of them what `fastfront.openai.calls` and `fastfront.openai.sampling` make of them, and leaves every request with
another field, or a value that is not right, to those.
"""
from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset
from libc.time cimport time

from fastfront._speedups.exchange cimport header_of
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

MAX_TOP_K = 2147483647
MAX_SALT_CHARS = 128
SALT_FORBIDDEN = frozenset("@/\\\0")

cdef int64_t MOST_TOP_K = MAX_TOP_K, MOST_SALT_CHARS = MAX_SALT_CHARS
cdef int64_t NONE = -(1LL << 62)

cdef tuple SAMPLED_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
)

COMMON = {
    **{name: place for place, name in enumerate(SAMPLED_NAMES)},
    "model": MODEL, "max_tokens": MAX_TOKENS, "stream": STREAM, "stream_options": STREAM_OPTIONS, "stop": STOP, "seed": SEED, "n": N,
    "ignore_eos": IGNORE_EOS, "min_tokens": MIN_TOKENS, "stop_token_ids": STOP_TOKEN_IDS, "include_stop_str_in_output": INCLUDE_STOP,
    "skip_special_tokens": SKIP_SPECIAL, "return_token_ids": RETURN_TOKEN_IDS, "return_tokens_as_token_ids": TOKENS_AS_IDS,
    "request_id": REQUEST_ID, "priority": PRIORITY, "cache_salt": CACHE_SALT, "response_format": TEXT_FORMAT,
    **dict.fromkeys(("user", "session_id", "length_penalty", "spaces_between_special_tokens"), ANY),
    **dict.fromkeys((
        "structured_outputs", "prompt_logprobs", "truncate_prompt_tokens", "thinking_token_budget", "repetition_detection",
        "allowed_token_ids", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
        "guided_whitespace_pattern", "best_of", "stream_interval",
    ), NOTHING),
    **dict.fromkeys((
        "logit_bias", "use_beam_search", "watermarking", "bad_words", "vllm_xargs", "kv_transfer_params", "ec_transfer_params", "echo",
        "logprob_token_ids",
    ), EMPTY),
}
CHAT = {
    **COMMON, "messages": INPUT, "max_completion_tokens": MAX_COMPLETION_TOKENS, "logprobs": LOGPROBS, "top_logprobs": TOP_LOGPROBS,
    "add_generation_prompt": TRUE, "tool_choice": OFF, "parallel_tool_calls": ANY, "include_reasoning": ANY,
    **dict.fromkeys(("tools", "documents", "chat_template", "reasoning_effort"), NOTHING),
    **dict.fromkeys(("add_special_tokens", "continue_final_message", "chat_template_kwargs", "return_prompt_text"), EMPTY),
}
COMPLETION = {**COMMON, "prompt": INPUT, "logprobs": TOP_LOGPROBS, "add_special_tokens": TRUE, "suffix": NOTHING, "prompt_embeds": NOTHING}


cdef int64_t number(PyObject *value, int64_t otherwise) except? -2:
    cdef int beyond = 0
    cdef int64_t found
    if value == NULL:
        return otherwise
    found = PyLong_AsLongLongAndOverflow(<object>value, &beyond)
    return NONE if beyond else found


cdef class QuickFields:
    """What the requests of one server and API have in common. Immutable but for the counter of labels; any thread.

    `kind` is "chat" or "completion". `defaults` are the values of sampling parameters where a request has none, by name, within their
    bounds; `stop_map(ignore_eos, ids)` gives the sampling map's keys about stop tokens, for a request's own ones too.
    No token has more than `max_chars` characters. `max_new_tokens` and `max_tokens_cap` are the server's default and bound, or None. Below `greedy_below` a temperature means
    greedy, and no other is below `min_temperature`; where it is not, min_p may be up to `most_min_p`.
    """

    def __init__(
        self, *, str kind not None, str model not None, frozenset model_names not None, bint any_model_name, int64_t max_model_len,
        int64_t max_token_id, int64_t max_chars, int64_t vocab_size, object max_new_tokens, object max_tokens_cap, int64_t max_stop_strings, int64_t max_n,
        int64_t max_logprobs, object defaults not None, object stop_map not None, str role not None, bint force_usage,
        bint prompt_details, bint metrics, bint tokens_as_ids, double greedy_below, double min_temperature, double most_min_p,
        object stream_interval not None, object adapters,
    ):
        cdef Values none
        self.kind = kind
        self.kinds = CHAT if kind == "chat" else COMPLETION
        self.prefix = "chatcmpl-" if kind == "chat" else "cmpl-"
        self.model = model
        self.model_names = model_names
        self.any_model_name = any_model_name
        self.max_model_len = max_model_len
        self.max_token_id = max_token_id
        self.max_chars = max_chars
        self.vocab_size = vocab_size
        self.max_new_tokens = max_model_len if max_new_tokens is None else min(max_new_tokens, max_model_len)
        self.max_tokens_cap = max_model_len if max_tokens_cap is None else min(max_tokens_cap, max_model_len)
        self.max_stop_strings = max_stop_strings
        self.max_n = max_n
        self.max_logprobs = max_logprobs
        self.stop_map = stop_map
        self.role = role
        self.force_usage = force_usage
        self.prompt_details = prompt_details
        self.metrics = metrics
        self.tokens_as_ids = tokens_as_ids
        self.stream_interval = stream_interval
        self.adapters = adapters
        self.greedy_below = greedy_below
        self.min_temperature = min_temperature
        self.most_min_p = most_min_p
        self.labels = <uint64_t>int.from_bytes(os.urandom(8))
        self.defaults = tuple([defaults[name] for name in SAMPLED_NAMES])
        self.greedy = self.defaults[TEMPERATURE] < greedy_below
        self.stopping = stop_map(False, None)
        self.ignoring = stop_map(True, None)
        self.ready_stopping = self.stopping.copy()
        self.ready_ignoring = self.ignoring.copy()
        memset(none, 0, sizeof(none))
        if not (self.put_sampled(none, 1, self.ready_stopping) and self.put_sampled(none, 1, self.ready_ignoring)):
            raise ValueError("sampling defaults out of bounds")

    cdef int64_t read(self, dict fields, PyObject **values) except? -2:
        cdef PyObject *given
        cdef int64_t asked
        if not self.are_usual(fields, values) or values[<int>INPUT] == NULL:
            return -1
        given = values[<int>MAX_COMPLETION_TOKENS]
        if given == NULL:
            given = values[<int>MAX_TOKENS]
        if given == NULL:
            return 0
        asked = number(given, 0)
        return asked if 1 <= asked <= self.max_model_len else -1

    cdef bint are_usual(self, dict fields, PyObject **values) except -1:
        cdef dict kinds = self.kinds
        cdef int kind
        memset(values, 0, sizeof(Values))
        for name, value in fields.items():
            if name not in kinds:
                return False
            kind = kinds[name]
            if value is None:
                if kind == OFF:
                    return False
            elif kind < <int>READ:
                values[kind] = <PyObject *>value
            elif kind == NOTHING or (kind == EMPTY and value) or (kind == TRUE and not value) or (kind == OFF and value != "none"):
                return False
        if values[<int>TEXT_FORMAT] != NULL and (<dict><object>values[<int>TEXT_FORMAT]).get("type") != "text":
            return False
        if values[<int>MODEL] != NULL and not self.any_model_name:
            model = <object>values[<int>MODEL]
            if model and model not in self.model_names and self.adapters is None:
                return False
        return True

    cdef int64_t room(self, int64_t requested) noexcept:
        return self.max_model_len - requested if requested < self.max_model_len else self.max_model_len

    cdef bint fits(self, str text, int64_t requested) except -1:
        cdef int64_t room = self.room(requested)
        return len(text) <= room or len(text) <= room * self.max_chars

    cdef PreparedCall call(self, PyObject **values, object header, bytes packed, int64_t requested):
        cdef PreparedCall call
        cdef PreparedPrompt prompt
        cdef int64_t n = number(values[<int>N], 1), least = number(values[<int>MIN_TOKENS], 0)
        if not 1 <= n <= self.max_n or header_of(header, "x-vllm-priority") is not None or header_of(header, "x-data-parallel-rank") is not None:
            return None
        prompt = self.prompt(packed, requested)
        if prompt is None or not 0 <= least <= prompt.max_tokens:
            return None
        call = PreparedCall.__new__(PreparedCall)
        if not (self.put_model(values[<int>MODEL], call) and self.put_stop(values[<int>STOP], call) and self.put_usage(values, call)):
            return None
        call.sampling = self.sampling(values, n)
        if call.sampling is None:
            return None
        if least:
            call.min_tokens = <object>values[<int>MIN_TOKENS]
            call.sampling["min_tokens"] = call.min_tokens
        if not self.put_logprobs(values, call):
            return None
        if values[<int>CACHE_SALT] != NULL:
            salt = <str><object>values[<int>CACHE_SALT]
            if not 0 < len(<str>salt) <= MOST_SALT_CHARS or not SALT_FORBIDDEN.isdisjoint(salt):
                return None
            call.cache_salt = salt
        call.kind = self.kind
        label = header_of(header, "x-request-id")
        if not label and values[<int>REQUEST_ID] != NULL:
            label = <object>values[<int>REQUEST_ID]
        call.external_id = self.prefix + <str>label if label else self.new_id()
        call.created = time(NULL)
        call.prompts = [prompt]
        call.n = n
        if number(values[<int>SEED], -1) != -1:
            call.seed = <object>values[<int>SEED]
        call.prompt_details = self.prompt_details
        call.metrics = self.metrics
        call.tokens_as_ids = self.tokens_as_ids
        call.stream_interval = self.stream_interval
        if values[<int>TOKENS_AS_IDS] != NULL:
            call.tokens_as_ids = <object>values[<int>TOKENS_AS_IDS]
        if values[<int>INCLUDE_STOP] != NULL:
            call.include_stop_str_in_output = <object>values[<int>INCLUDE_STOP]
        if values[<int>SKIP_SPECIAL] != NULL:
            call.skip_special_tokens = <object>values[<int>SKIP_SPECIAL]
        if values[<int>RETURN_TOKEN_IDS] != NULL:
            call.return_token_ids = <object>values[<int>RETURN_TOKEN_IDS]
        if values[<int>PRIORITY] != NULL:
            call.priority = <object>values[<int>PRIORITY]
        call.role = self.role
        return call

    cdef bint put_model(self, PyObject *name, PreparedCall call) except -1:
        call.model = self.model
        if name == NULL or self.adapters is None:
            return True
        model = <object>name
        if not model or model in self.model_names:
            return True
        known = self.adapters.known
        if model not in known:
            return self.any_model_name
        adapter = known[model]
        call.model = adapter.name
        call.lora_request = adapter.wire
        return True

    cdef PreparedPrompt prompt(self, bytes packed, int64_t requested):
        """None: it is too long, or empty, or has an id beyond the vocabulary."""
        cdef PreparedPrompt prompt
        cdef const int32_t *ids = packed_ids(packed)
        cdef Py_ssize_t k, n = packed_count(packed)
        cdef int64_t left = self.max_model_len - n
        if n == 0 or n > self.room(requested):
            return None
        for k in range(n):
            if not 0 <= ids[k] <= self.max_token_id:
                return None
        left = min(left, requested if requested else self.max_new_tokens, self.max_tokens_cap)
        if left < 1:
            return None
        prompt = PreparedPrompt.__new__(PreparedPrompt)
        prompt.ids = packed
        prompt.max_tokens = left
        prompt.echo_text = ""
        return prompt

    cdef bint put_stop(self, PyObject *stop, PreparedCall call) except -1:
        if stop == NULL:
            call.stop = []
        elif type(<object>stop) is str:
            call.stop = [<object>stop]
        else:
            call.stop = <list><object>stop
        return len(call.stop) <= self.max_stop_strings and "" not in call.stop

    cdef bint put_usage(self, PyObject **values, PreparedCall call) except -1:
        """False: options of a stream for an answer that is none."""
        cdef dict options
        call.stream = values[<int>STREAM] != NULL and <object>values[<int>STREAM]
        if values[<int>STREAM_OPTIONS] != NULL:
            options = <dict><object>values[<int>STREAM_OPTIONS]
            if options and not call.stream:
                return False
            call.include_usage = bool(options.get("include_usage"))
            call.continuous_usage = call.include_usage and bool(options.get("continuous_usage_stats"))
        if self.force_usage and call.stream:
            call.include_usage = True
            call.continuous_usage = True
        return True

    cdef bint put_logprobs(self, PyObject **values, PreparedCall call) except -1:
        """False: a number out of bounds, or one that depends on the vocabulary."""
        cdef bint wanted = values[<int>TOP_LOGPROBS] != NULL
        cdef int64_t top = number(values[<int>TOP_LOGPROBS], 0)
        if self.kind == "chat":
            wanted = values[<int>LOGPROBS] != NULL and <object>values[<int>LOGPROBS]
        if top < 0 or (top > 0 and not wanted) or (self.max_logprobs != -1 and top > self.max_logprobs):
            return False
        if wanted:
            call.logprobs = top
            call.sampling["logprobs"] = top
        return True

    cdef dict sampling(self, PyObject **values, int64_t n):
        """None: a value is out of bounds."""
        cdef bint ignores = values[<int>IGNORE_EOS] != NULL and <object>values[<int>IGNORE_EOS]
        cdef bint given = False
        cdef dict out
        cdef int k
        for k in range(<int>SAMPLED):
            given = given or values[k] != NULL
        if values[<int>STOP_TOKEN_IDS] != NULL:
            if not self.in_vocabulary(<list><object>values[<int>STOP_TOKEN_IDS]):
                return None
            out = self.stop_map(ignores, <object>values[<int>STOP_TOKEN_IDS])
        elif given:
            out = (self.ignoring if ignores else self.stopping).copy()
        else:
            return None if self.greedy and n > 1 else (self.ready_ignoring if ignores else self.ready_stopping).copy()
        return out if self.put_sampled(values, n, out) else None

    cdef bint put_sampled(self, PyObject **values, int64_t n, dict out) except -1:
        """False: a value is out of bounds."""
        temperature, top_p, min_p = self.sampled(values, TEMPERATURE), self.sampled(values, TOP_P), self.sampled(values, MIN_P)
        presence, frequency = self.sampled(values, PRESENCE_PENALTY), self.sampled(values, FREQUENCY_PENALTY)
        repetition, top_k = self.sampled(values, REPETITION_PENALTY), self.sampled(values, TOP_K)
        cdef double warmth = temperature, nucleus = top_p, floor = min_p, present = presence, frequent = frequency, repeated = repetition
        cdef int64_t most = number(<PyObject *>top_k, 0)
        if not (0.0 <= warmth <= 2.0 and 0.0 < nucleus <= 1.0 and 0.0 <= floor <= 1.0 and -1 <= most <= MOST_TOP_K):
            return False
        if not (-2.0 <= present <= 2.0 and -2.0 <= frequent <= 2.0 and repeated > 0.0 and isfinite(repeated)):
            return False
        if warmth < self.greedy_below:
            if n > 1:
                return False
            out["temperature"] = 0.0
        else:
            if warmth != 1.0:
                out["temperature"] = temperature if warmth > self.min_temperature else self.min_temperature
            if nucleus != 1.0:
                out["top_p"] = top_p
            if most > 0:
                out["top_k"] = top_k
            if floor > self.most_min_p:
                return False
            if floor != 0.0:
                out["min_p"] = min_p
        if present != 0.0:
            out["presence_penalty"] = presence
        if frequent != 0.0:
            out["frequency_penalty"] = frequency
        if repeated != 1.0:
            out["repetition_penalty"] = repetition
        return True

    cdef object sampled(self, PyObject **values, Field field):
        return self.defaults[<int>field] if values[<int>field] == NULL else <object>values[<int>field]

    cdef bint in_vocabulary(self, list ids) except -1:
        cdef int64_t found
        for item in ids:
            found = number(<PyObject *>item, 0)
            if not 0 <= found < self.vocab_size:
                return False
        return True

    cdef str new_id(self):
        """A label nobody has chosen: the numbers of SplitMix64 (Steele, Lea and Flood, 2014) from a random one on."""
        cdef uint64_t z = FASTFRONT_NEXT(&self.labels, 0x9e3779b97f4a7c15ULL) + 0x9e3779b97f4a7c15ULL
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL
        return f"{self.prefix}{z ^ (z >> 31):016x}"


cdef class Quick:
    """Usual requests of one server and API, made ready in one go. Immutable; any thread."""

    def prepare(self, dict fields not None, object header not None):
        """The call of a request whose fields have their shapes; None if it is no usual one. `header` as in prepare_chat."""
        return self.make(fields, header)

    cdef PreparedCall make(self, dict fields, object header):
        raise NotImplementedError
