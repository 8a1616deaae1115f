"""Fields of requests for tests that compare two ways of reading them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fastfront.config import AnswerOptions, Limits
from fastfront.openai.adapters import Adapters
from fastfront.openai.sampling import SamplingDefaults, StopTokens
from fastfront.streams.prepared import PreparedCall

WARM = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.05, presence_penalty=0.5)
ADAPTERS = Adapters(frozenset(["tiny"]))
ADAPTERS.load("other", "/other", lambda _: None)
SERVERS: list[dict[str, Any]] = [
    {},
    {"force_usage": True, "any_model_name": True, "defaults": WARM},
    {
        "max_model_len": 60,
        "defaults": SamplingDefaults(max_new_tokens=20, max_tokens_cap=30, temperature=0.0),
        "limits": Limits(max_stop_strings=2, max_n=2),
    },
    {
        "answers": AnswerOptions(prompt_details=True, metrics=True, tokens_as_ids=True),
        "stops": StopTokens(7, (8, 7)),
        "max_logprobs": 2,
    },
    {
        "answers": AnswerOptions(metrics=True),
        "max_prompt_token_id": 230,
        "stops": StopTokens(None, ()),
        "max_logprobs": -1,
        "adapters": ADAPTERS,
    },
]

_NUMBERS = st.one_of(st.none(), st.integers(-2, 70), st.sampled_from([2**63, -(2**70), 2**31, 2048, 2049]))
_COUNTS = st.one_of(st.none(), st.integers(-2, 8))
_PENALTIES = st.one_of(st.none(), st.floats(), st.sampled_from([-2.0, 0.0, 0.5, 1.0, 2.0, 2.5]))
_FLAGS = st.booleans()
_FALSE = st.sampled_from([None, False, True])
_IDS = st.lists(st.integers(0, 310), max_size=3)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from([None, "", "tiny", "other"]),
    "max_tokens": _NUMBERS,
    "max_completion_tokens": _NUMBERS,
    "temperature": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1e-6, 0.001, 0.7, 1.0, 2.0])),
    "top_p": st.one_of(st.none(), st.floats(), st.sampled_from([0.5, 1.0])),
    "top_k": _NUMBERS,
    "min_p": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 0.5, 1.0])),
    "presence_penalty": _PENALTIES,
    "frequency_penalty": _PENALTIES,
    "repetition_penalty": _PENALTIES,
    "stream": _FALSE,
    "stream_options": st.sampled_from(
        [None, {}, {"include_usage": True}, {"include_usage": False, "continuous_usage_stats": True}]
    ),
    "stop": st.one_of(st.none(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=5)),
    "seed": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(-1)),
    "n": st.sampled_from([1, 2, 3, 0, 2**70]),
    "user": st.text(max_size=3),
    "session_id": st.text(max_size=3),
    "request_id": st.sampled_from(["", "q"]),
    "ignore_eos": _FLAGS,
    "min_tokens": st.integers(-1, 40),
    "stop_token_ids": st.one_of(st.none(), _IDS),
    "include_stop_str_in_output": _FLAGS,
    "skip_special_tokens": _FLAGS,
    "spaces_between_special_tokens": _FLAGS,
    "return_token_ids": _FALSE,
    "return_tokens_as_token_ids": _FALSE,
    "priority": st.integers(-3, 3),
    "cache_salt": st.one_of(st.none(), st.sampled_from(["", "a", "a/b", "a@", "\\", "\0", "a" * 128, "a" * 129])),
    "response_format": st.sampled_from([None, {"type": "text"}, {"type": "json_object"}]),
    "structured_outputs": st.sampled_from([None, {"regex": "a"}]),
    "top_logprobs": _COUNTS,
    "prompt_logprobs": st.sampled_from([None, 0, 1]),
    "logprob_token_ids": st.one_of(st.none(), _IDS),
    "logit_bias": st.sampled_from([None, {}, {"3": 1.0}]),
    "bad_words": st.sampled_from([[], ["a"]]),
    "vllm_xargs": st.sampled_from([None, {}, {"a": 1}]),
    "kv_transfer_params": st.sampled_from([None, {}, {"a": 1}]),
    "watermarking": _FALSE,
    "length_penalty": st.floats(0, 2),
    "echo": _FLAGS,
    "truncate_prompt_tokens": st.sampled_from([None, 3]),
    "allowed_token_ids": st.one_of(st.none(), _IDS),
    "add_special_tokens": _FLAGS,
    "add_generation_prompt": _FLAGS,
    "continue_final_message": _FLAGS,
    "tools": st.none(),
    "tool_choice": st.sampled_from([None, "none"]),
    "parallel_tool_calls": _FALSE,
    "include_reasoning": _FLAGS,
    "reasoning_effort": st.sampled_from([None, "low"]),
    "chat_template_kwargs": st.sampled_from([None, {}, {"a": 1}]),
    "documents": st.sampled_from([None, []]),
    "return_prompt_text": _FALSE,
    "suffix": st.sampled_from([None, "a"]),
    "stream_interval": st.sampled_from([None, 2]),
    "best_of": st.sampled_from([None, 1, 2]),
    "guided_json": st.sampled_from([None, {}]),
    "logprobs": _FALSE,
}  # fmt: skip


def header(name: str) -> str | None:
    return "r" if name == "x-request-id" else None


def all_of(call: PreparedCall) -> dict[str, Any]:
    """Every field but the time."""
    return {**call.fields(), "created": 0}


def fields_of(body: Any, always: dict[str, st.SearchStrategy[Any]], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Requests with `always` and a few other fields of `body`, a typed dictionary; `others` in place of the usual values."""
    values = {name: value for name, value in {**_VALUES, **others}.items() if name in body.__annotations__}
    some = st.sets(st.sampled_from(sorted(values)), max_size=5)
    return some.flatmap(lambda names: st.fixed_dictionaries({**always, **{name: values[name] for name in sorted(names)}}))
