"""The fields of usual requests, read in one go (fastfront._speedups.quick_fields)."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from fastfront._speedups.prepared cimport PreparedCall, PreparedPrompt

cdef enum Field:
    # What takes part in sampling: each has a default.
    TEMPERATURE, TOP_P, TOP_K, MIN_P, PRESENCE_PENALTY, FREQUENCY_PENALTY, REPETITION_PENALTY
    SAMPLED                 # how many these are
    MODEL = SAMPLED
    INPUT                   # messages, or the prompt
    MAX_TOKENS, MAX_COMPLETION_TOKENS, STREAM, STREAM_OPTIONS, STOP, SEED, N, IGNORE_EOS, MIN_TOKENS, STOP_TOKEN_IDS
    LOGPROBS                # a chat's: whether
    TOP_LOGPROBS            # how many
    INCLUDE_STOP, SKIP_SPECIAL, RETURN_TOKEN_IDS, TOKENS_AS_IDS, REQUEST_ID, PRIORITY, CACHE_SALT
    TEXT_FORMAT             # an object whose type is text
    READ                    # how many fields are read; values of the others need only be one of these:
    ANY                     # whatever it is
    NOTHING                 # None
    EMPTY                   # None or false
    TRUE                    # None or true
    OFF                     # "none"


# Borrowed from the request's fields; NULL: not there, or None.
ctypedef PyObject *Values[<int>READ]


# A number of a field; `otherwise` if it is not there. A number beyond 64 bits is one that no field can have.
cdef int64_t number(PyObject *value, int64_t otherwise) except? -2


cdef class QuickFields:
    cdef readonly dict kinds
    cdef readonly int64_t max_model_len
    cdef object stop_map, stream_interval
    cdef object adapters                    # fastfront.openai.adapters.Adapters, or None
    cdef frozenset model_names
    cdef str kind, prefix, model, role
    cdef bint any_model_name, force_usage, prompt_details, metrics, tokens_as_ids, greedy
    cdef int64_t max_token_id, max_new_tokens, max_tokens_cap, max_stop_strings, vocab_size, max_logprobs, max_n, max_chars
    cdef double greedy_below, min_temperature, most_min_p
    cdef tuple defaults
    cdef dict stopping, ignoring, ready_stopping, ready_ignoring
    cdef uint64_t labels
    # How many tokens were asked for, 0: none were. -1: a field is not among those of usual requests, has no usual value, or there is
    # no input.
    cdef int64_t read(self, dict fields, PyObject **values) except? -2
    cdef bint are_usual(self, dict fields, PyObject **values) except -1
    # How many tokens a prompt may have at most.
    cdef int64_t room(self, int64_t requested) noexcept
    # Whether a text can be a prompt of so many tokens.
    cdef bint fits(self, str text, int64_t requested) except -1
    # Everything of a call of one prompt; None if something needs a closer look.
    cdef PreparedCall call(self, PyObject **values, object header, bytes packed, int64_t requested)
    # Whose answer it is. False: nobody's, the name is not served.
    cdef bint put_model(self, PyObject *name, PreparedCall call) except -1
    cdef PreparedPrompt prompt(self, bytes packed, int64_t requested)
    cdef bint put_stop(self, PyObject *stop, PreparedCall call) except -1
    cdef bint put_usage(self, PyObject **values, PreparedCall call) except -1
    cdef bint put_logprobs(self, PyObject **values, PreparedCall call) except -1
    cdef dict sampling(self, PyObject **values, int64_t n)
    cdef bint put_sampled(self, PyObject **values, int64_t n, dict out) except -1
    cdef object sampled(self, PyObject **values, Field field)
    cdef bint in_vocabulary(self, list ids) except -1
    cdef str new_id(self)


cdef class Quick:               # what one server's requests of one API have in common besides their fields
    cdef QuickFields fields
    # The call of a request whose fields have their shapes; None if it is no usual one. `header` as in prepare_chat, or an Exchange.
    cdef PreparedCall make(self, dict fields, object header)
