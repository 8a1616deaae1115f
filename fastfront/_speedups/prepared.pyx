# cython: language_level=3, freethreading_compatible=True
"""Requests that are ready for a lane. One thread at a time; nothing changes once a lane has it."""
from fastfront._speedups.token_ids cimport packed_count

from fastfront._speedups.token_ids import pack, unpack


cdef class PreparedPrompt:
    """One prompt of a call.

    `token_ids` are within the vocabulary and shorter than max_model_len; `max_tokens` is already cut to what fits behind them.
    They are kept packed, as `ids`, and may be given so; `length` is how many there are.
    `echo_text` is what is sent before the first generated text ("" without echo); `text` is a chat's prompt where the answer
    shows it.
    """

    def __init__(self, object token_ids not None, max_tokens, str echo_text not None="", text=None):
        self.ids = token_ids if type(token_ids) is bytes else pack(token_ids)
        self.max_tokens = max_tokens
        self.echo_text = echo_text
        self.text = text

    @property
    def token_ids(self) -> list:
        """A new list."""
        return unpack(self.ids)

    @property
    def length(self) -> int:
        return packed_count(self.ids)

    def __eq__(self, other):
        if not isinstance(other, PreparedPrompt):
            return NotImplemented
        return self.values() == (<PreparedPrompt>other).values()

    cdef tuple values(self):
        return self.ids, self.max_tokens, self.echo_text, self.text


cdef class PreparedCall:
    """One HTTP request for generation; it has `len(prompts) * n` choices, choice index = prompt index * n + i.

    `sampling` is the wire's sampling-params map without max_tokens and seed (they differ per prompt and per choice): only
    keys an engine acts on, values checked, integer keys in logit_bias.
    """

    def __cinit__(self):
        self.n = 1
        self.min_tokens = 0
        self.stream_interval = 1
        self.skip_special_tokens = True
        self.role = "assistant"
        self.echo_content = ""
        self.priority = 0

    def __init__(
        self, str kind not None, str external_id not None, created, str model not None, list prompts not None,
        dict sampling not None, *, n=1, seed=None, stream=False, include_usage=False, continuous_usage=False,
        return_token_ids=False, prompt_details=False, metrics=False, list stop=None, include_stop_str_in_output=False,
        min_tokens=0, skip_special_tokens=True, hide_output=False, logprobs=None, prompt_logprobs=None, echo_logprobs=False,
        tokens_as_ids=False, str role not None="assistant", str echo_content not None="", sink=None, priority=0, cache_salt=None,
        reasoning_ended=None, reasoning_kwargs=None, data_parallel_rank=None, steps=None, stream_interval=1,
        lora_request=None,
    ):
        self.kind = kind
        self.external_id = external_id
        self.created = created
        self.model = model
        self.prompts = prompts
        self.sampling = sampling
        self.n = n
        self.seed = seed
        self.stream = stream
        self.include_usage = include_usage
        self.continuous_usage = continuous_usage
        self.return_token_ids = return_token_ids
        self.prompt_details = prompt_details
        self.metrics = metrics
        self.stop = [] if stop is None else stop
        self.include_stop_str_in_output = include_stop_str_in_output
        self.min_tokens = min_tokens
        self.skip_special_tokens = skip_special_tokens
        self.hide_output = hide_output
        self.logprobs = logprobs
        self.prompt_logprobs = prompt_logprobs
        self.echo_logprobs = echo_logprobs
        self.tokens_as_ids = tokens_as_ids
        self.role = role
        self.echo_content = echo_content
        self.sink = sink
        self.priority = priority
        self.cache_salt = cache_salt
        self.reasoning_ended = reasoning_ended
        self.reasoning_kwargs = reasoning_kwargs
        self.data_parallel_rank = data_parallel_rank
        self.steps = steps
        self.stream_interval = stream_interval
        self.lora_request = lora_request

    def fields(self) -> dict:
        """Every field by its name."""
        return {name: getattr(self, name) for name in FIELDS}

    def replace(self, **changes):
        """A copy with other values of some fields. Raises TypeError for a name that is none."""
        return PreparedCall(**{**self.fields(), **changes})


FIELDS = tuple(name for name, value in vars(PreparedCall).items() if type(value).__name__ == "getset_descriptor")
