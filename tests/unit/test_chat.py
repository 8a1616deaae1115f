"""Chat requests: what is prepared for the engine, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import AnswerOptions, Limits, ParserOptions, StructuredOptions
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import REASONING_PARSERS
from tests.unit.support import MAX_MODEL_LEN, USER, VOCAB_SIZE, chat, completion, config_of, make_folder, refusal, write

PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
PROMPT_LEN = len("user\nHi\nassistant\n") + 3  # bytes and special tokens


def text_of(serving: Serving, fields: dict[str, Any]) -> str:
    return serving.tokenizer.decode(chat(serving, fields).prompts[0].token_ids)


def test_a_plain_request(serving: Serving) -> None:
    call = chat(serving, {})
    assert serving.tokenizer.decode(call.prompts[0].token_ids) == PROMPT
    assert len(call.prompts[0].token_ids) == PROMPT_LEN
    assert call.prompts[0].max_tokens == MAX_MODEL_LEN - PROMPT_LEN
    assert call.sampling == {"_eos_token_id": 2, "_all_stop_token_ids": [2]}
    assert call.external_id.startswith("chatcmpl-")
    assert len(call.external_id) == len("chatcmpl-") + 16
    assert (call.kind, call.model, call.n, call.seed, call.stream, call.role) == ("chat", "tiny", 1, None, False, "assistant")


def test_ids_come_from_the_header_then_the_body_then_chance(serving: Serving) -> None:
    assert chat(serving, {"request_id": "b"}, x_request_id="h").external_id == "chatcmpl-h"
    assert chat(serving, {"request_id": "b"}).external_id == "chatcmpl-b"
    assert chat(serving, {}).external_id != chat(serving, {}).external_id


@pytest.mark.parametrize("model", [None, "", "tiny", "alias"])
def test_served_names_and_no_name_are_the_model(tiny_folder: Path, model: str | None) -> None:
    serving = build_serving(config_of(tiny_folder, served_model_name=("tiny", "alias")))
    assert chat(serving, {"model": model}).model == "tiny"


def test_another_model_is_not_found(serving: Serving) -> None:
    error = refusal(chat, serving, {"model": "other"})
    assert (error.status, error.kind, error.param) == (404, "NotFoundError", "model")
    assert "other" in error.message


# --- how many tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": MAX_MODEL_LEN - PROMPT_LEN}, MAX_MODEL_LEN - PROMPT_LEN),
        ({"max_tokens": None}, MAX_MODEL_LEN - PROMPT_LEN),
    ],
)
def test_max_tokens(serving: Serving, fields: dict[str, Any], max_tokens: int) -> None:
    assert chat(serving, fields).prompts[0].max_tokens == max_tokens


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
        ({"max_tokens": -5}, "max_tokens", "max_tokens must be at least 1, got -5."),
        ({"max_completion_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
        ({"max_tokens": 9999}, "max_tokens", "max_tokens=9999 cannot be greater than max_model_len"),
        ({"max_completion_tokens": 9999}, "max_completion_tokens", "max_completion_tokens=9999 cannot be"),
        ({"max_tokens": 10**30}, "max_tokens", "cannot be greater"),
        ({"min_tokens": 10, "max_tokens": 5}, None, "min_tokens must be less than or equal to max_tokens=5, got 10."),
        ({"min_tokens": -1}, None, "min_tokens must be greater than or equal to 0, got -1."),
    ],
)
def test_impossible_numbers_of_tokens(serving: Serving, fields: dict[str, Any], param: str | None, words: str) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param) == (400, "BadRequestError", param)
    assert words in error.message


def test_a_prompt_and_answer_that_do_not_fit_are_refused_with_the_true_numbers(serving: Serving) -> None:
    asked = MAX_MODEL_LEN - PROMPT_LEN + 1
    message = refusal(chat, serving, {"max_tokens": asked}).message
    for number in (MAX_MODEL_LEN, PROMPT_LEN, asked, MAX_MODEL_LEN + 1):
        assert f" {number} " in message.replace(",", " ")
    error = refusal(chat, serving, {"messages": [{"role": "user", "content": "x" * 3000}]})
    assert error.param == "input_tokens"
    assert f"{MAX_MODEL_LEN} tokens" in error.message
    assert f"{3000 + PROMPT_LEN - 2} input tokens" in error.message
    assert "-" not in error.message


def test_a_prompt_that_leaves_no_room_is_refused(serving: Serving) -> None:
    content = "x" * (MAX_MODEL_LEN - PROMPT_LEN + 2)
    error = refusal(chat, serving, {"messages": [{"role": "user", "content": content}]})
    assert (error.param, error.message.split(" (")[0]) == ("max_tokens", "max_tokens must be at least 1, got 0.")
    assert chat(serving, {"messages": [{"role": "user", "content": content[1:]}]}).prompts[0].max_tokens == 1


def test_a_text_too_long_for_any_tokens_is_not_tokenized(serving: Serving) -> None:
    longest = serving.tokenizer.max_chars_per_token
    message = refusal(chat, serving, {"messages": [{"role": "user", "content": "x" * (MAX_MODEL_LEN * longest)}]}).message
    assert "characters" in message
    assert str(MAX_MODEL_LEN) in message


def test_an_engine_can_only_lower_the_length(serving: Serving) -> None:
    assert serving.with_engine_limits(100).max_model_len == 100
    assert serving.with_engine_limits(10**6) is serving
    assert serving.with_engine_limits(0) is serving
    assert chat(serving.with_engine_limits(100), {}).prompts[0].max_tokens == 100 - PROMPT_LEN


def test_truncation_keeps_the_end_or_the_beginning(serving: Serving) -> None:
    assert text_of(serving, {"truncate_prompt_tokens": 4}) == "ant\n"
    assert text_of(serving, {"truncate_prompt_tokens": 3, "truncation_side": "right"}) == "<|im_start|>us"
    assert len(chat(serving, {"truncate_prompt_tokens": -1, "max_tokens": MAX_MODEL_LEN - 5}).prompts[0].token_ids) == 5
    assert "empty" in refusal(chat, serving, {"truncate_prompt_tokens": 0}).message
    assert refusal(chat, serving, {"truncate_prompt_tokens": MAX_MODEL_LEN + 1}).param == "truncate_prompt_tokens"
    assert refusal(chat, serving, {"truncate_prompt_tokens": -2}).param == "body.truncate_prompt_tokens"


# --- fields of the call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": True}, (True, False, False)),
        ({"stream": True, "stream_options": {}}, (True, False, False)),
        ({"stream": True, "stream_options": None}, (True, False, False)),
        ({"stream": True, "stream_options": {"include_usage": False}}, (True, False, False)),
        ({"stream": True, "stream_options": {"include_usage": True}}, (True, True, False)),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, (True, False, False)),
        ({"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}, (True, True, True)),
        ({"stream_options": {}}, (False, False, False)),
    ],
)
def test_only_include_usage_asks_for_usage(serving: Serving, fields: dict[str, Any], expected: tuple[bool, ...]) -> None:
    call = chat(serving, fields)
    assert (call.stream, call.include_usage, call.continuous_usage) == expected


def test_usage_can_be_forced_on_streams(serving: Serving) -> None:
    forced = dataclasses.replace(serving, force_usage=True)
    call = chat(forced, {"stream": True})
    assert (call.include_usage, call.continuous_usage) == (True, True)
    assert not chat(forced, {}).include_usage


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
def test_stream_options_without_a_stream_are_refused(serving: Serving, stream: dict[str, Any]) -> None:
    error = refusal(chat, serving, {"stream_options": {"include_usage": True}, **stream})
    assert (error.status, error.param) == (400, "stream_options")


@pytest.mark.parametrize(("stop", "expected"), [(None, []), ([], []), ("a", ["a"]), (["a", "b"], ["a", "b"])])
def test_stop_strings(serving: Serving, stop: Any, expected: list[str]) -> None:
    assert chat(serving, {"stop": stop}).stop == expected


def test_stop_strings_are_neither_empty_nor_too_many(serving: Serving) -> None:
    for stop in ("", [""], ["a", ""]):
        error = refusal(chat, serving, {"stop": stop})
        assert (error.message, error.param) == ("stop cannot contain an empty string.", None)
    error = refusal(chat, serving, {"stop": list("abcde")})
    assert (error.kind, error.param) == ("Bad Request", "body.stop")
    assert "at most 4 items" in error.message
    assert chat(dataclasses.replace(serving, limits=Limits(max_stop_strings=5)), {"stop": list("abcde")}).stop


def test_further_fields_reach_the_call(serving: Serving) -> None:
    fields = {"include_stop_str_in_output": True, "min_tokens": 2, "skip_special_tokens": False, "return_token_ids": True,
              "n": 3, "seed": 7, "cache_salt": "s", "priority": -4, "stream_interval": 3}  # fmt: skip
    call = chat(serving, fields)
    assert call.include_stop_str_in_output
    assert call.return_token_ids
    assert not call.skip_special_tokens
    assert (call.min_tokens, call.n, call.seed, call.cache_salt, call.priority) == (2, 3, 7, "s", -4)
    assert call.sampling["min_tokens"] == 2


@pytest.mark.parametrize(("header", "priority"), [("5", 5), ("-1", -1), ("x", 9), ("99999999999999999999", 9)])
def test_a_priority_header_comes_before_the_body(serving: Serving, header: str, priority: int) -> None:
    assert chat(serving, {"priority": 9}, x_vllm_priority=header).priority == priority


def test_an_engine_can_be_chosen(serving: Serving) -> None:
    two = dataclasses.replace(serving, ranks=range(2))
    assert chat(two, {}, x_data_parallel_rank="1").data_parallel_rank == 1
    assert chat(two, {}, x_data_parallel_rank="x").data_parallel_rank is None
    assert chat(two, {}).data_parallel_rank is None
    for rank in ("2", "-1"):
        assert "data_parallel_rank" in refusal(chat, two, {}, x_data_parallel_rank=rank).message


@pytest.mark.parametrize("salt", ["", 5, "a@b", "a/b", "a\\b", "a\x00b", "s" * 129])
def test_bad_cache_salts(serving: Serving, salt: Any) -> None:
    error = refusal(chat, serving, {"cache_salt": salt})
    assert (error.kind, error.param) == ("BadRequestError", "cache_salt")


# --- conversations and templates -------------------------------------------------------------------------------------


def test_no_message_is_refused(serving: Serving) -> None:
    assert "empty conversation" in refusal(chat, serving, {"messages": []}).message
    assert refusal(chat, serving, b"{}").param == "body.messages"


def test_the_role_of_the_answer(serving: Serving, tiny_folder: Path) -> None:
    assert chat(serving, {"add_generation_prompt": False}).role == "user"
    bot = build_serving(config_of(tiny_folder, response_role="bot"))
    assert chat(bot, {}).role == "bot"


def test_a_message_can_be_continued(serving: Serving) -> None:
    messages = [*USER, {"role": "assistant", "content": "There are "}]
    go_on = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    assert text_of(serving, go_on).endswith("<|im_start|>assistant\nThere are ")
    call = chat(serving, {**go_on, "echo": True})
    assert (call.role, call.echo_content) == ("assistant", "There are ")
    assert chat(serving, {"echo": True}).echo_content == ""
    for both in ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": True}):
        assert "add_generation_prompt" in refusal(chat, serving, {"messages": messages, **both}).message


def test_templates_of_requests_must_be_trusted(serving: Serving) -> None:
    given = {"chat_template": "{{ messages[-1]['content'] }} END"}
    for fields in (given, {"chat_template_kwargs": given}):
        error = refusal(chat, serving, fields)
        assert "--trust-request-chat-template" in error.message
        assert error.param is None
    trusting = dataclasses.replace(serving, trust_request_chat_template=True)
    assert text_of(trusting, given) == "Hi END"
    assert text_of(trusting, given) == "Hi END"
    assert refusal(chat, trusting, {"chat_template": "{% if %}"}).status == 400


def test_a_template_that_raises_is_the_clients_fault(tmp_path: Path) -> None:
    source = "{% if messages|length > 1 %}{{ raise_exception('Only one message, please.') }}{% endif %}{{ nothing.at_all }}"
    serving = build_serving(config_of(make_folder(tmp_path, chat_template=source)))
    error = refusal(chat, serving, {"messages": USER * 2})
    assert (error.status, error.kind, error.message) == (400, "BadRequestError", "Only one message, please.")
    assert refusal(chat, serving, {}).message == "'nothing' is undefined"


def test_template_variables_come_from_flags_then_the_request(tmp_path: Path) -> None:
    source = "{{ bos_token }}{{ mood }}|{{ enable_thinking }}|{{ reasoning_effort }}|{{ documents }}"
    folder = make_folder(tmp_path, chat_template=source)
    serving = build_serving(config_of(folder, default_chat_template_kwargs={"mood": "calm", "unused": 1}))
    assert text_of(serving, {}) == "<|im_start|>calm|||None"
    assert text_of(serving, {"chat_template_kwargs": {"mood": "wild", "other": 1}}) == "<|im_start|>wild|||None"
    assert text_of(serving, {"reasoning_effort": "low"}) == "<|im_start|>calm|True|low|None"
    assert text_of(serving, {"reasoning_effort": "none"}) == "<|im_start|>calm|False|none|None"
    kept = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}
    assert text_of(serving, kept) == "<|im_start|>calm|True|none|None"
    assert "[{'t': 'x'}]" in text_of(serving, {"documents": [{"t": "x"}]})
    both = {"documents": [{"t": "x"}], "chat_template_kwargs": {"documents": [{"t": "y"}], "reasoning_effort": "high"}}
    assert text_of(serving, both) == "<|im_start|>calm||high|[{'t': 'x'}]"
    assert text_of(serving, {**both, "reasoning_effort": "low"}) == "<|im_start|>calm|True|low|[{'t': 'x'}]"
    assert refusal(chat, serving, {"reasoning_effort": "huge"}).param == "body.reasoning_effort"


@pytest.mark.parametrize(
    ("server", "asked", "meant"), [(False, None, False), (True, None, True), (True, False, False), (False, True, True)]
)
@pytest.mark.parametrize("more", [{}, {"bad_words": ["x"]}], ids=["usual", "unusual"])
def test_tokens_as_ids(serving: Serving, server: bool, asked: bool | None, meant: bool, more: dict[str, Any]) -> None:
    told = dataclasses.replace(serving, answers=AnswerOptions(tokens_as_ids=server))
    assert chat(told, {"logprobs": True, "return_tokens_as_token_ids": asked, **more}).tokens_as_ids == meant


@pytest.mark.parametrize(("server", "asked", "meant"), [(1, None, 1), (5, None, 5), (5, 2, 5), (1, 7, 7)])
@pytest.mark.parametrize("more", [{}, {"bad_words": ["x"]}], ids=["usual", "unusual"])
def test_the_larger_stream_interval_holds(
    serving: Serving, server: int, asked: int | None, meant: int, more: dict[str, Any]
) -> None:
    told = dataclasses.replace(serving, stream_interval=server)
    assert chat(told, {"stream_interval": asked, **more}).stream_interval == meant


def test_a_model_without_template_needs_one(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    write(folder / "tokenizer_config.json", eos_token="<|im_end|>")
    assert "chat template" in refusal(chat, build_serving(config_of(folder)), {}).message


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_tools_are_shown_to_the_template_when_none_shall_be_called(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | tojson }}"}]
    serving = build_serving(config_of(make_folder(tmp_path, chat_template=templates)))
    shown = '[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}}}]'
    assert text_of(serving, {"tools": [TOOL], "tool_choice": "none"}) == shown
    assert text_of(serving, {}) == "plain"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": []}, "tools", "must not be an empty array"),
        ({"tools": [TOOL]}, None, "--enable-auto-tool-choice"),
        ({"tools": [TOOL], "tool_choice": "required"}, None, "--tool-call-parser"),
        ({"tool_choice": "auto"}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": "required"}, "tool_choice", "`tools` must be set"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice", "Invalid value"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function", "Invalid value for `function`"),
        ({"tools": [TOOL], "tool_choice": {"function": {}}}, "tool_choice.function.name", "Expected field `name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": ""}}}, "tool_choice.function.name", "Invalid `name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "g"}}}, "tool_choice", "does not match any"),
    ],
)
def test_tools_that_cannot_be_called(serving: Serving, fields: dict[str, Any], param: str | None, words: str) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param) == (400, "BadRequestError", param)
    assert words in error.message


# --- fields that are known and not served ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"best_of": 2},
        {"guided_json": {"type": "object"}},
        {"mm_processor_kwargs": {"a": 1}},
    ],
)
def test_a_field_without_an_implementation_is_refused_by_name(serving: Serving, fields: dict[str, Any]) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param) == (400, "BadRequestError", next(iter(fields)))


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": False, "top_logprobs": 0, "prompt_logprobs": None, "structured_outputs": None},
        {"use_beam_search": False, "length_penalty": 2.0, "watermarking": False, "thinking_token_budget": -1},
        {"kv_transfer_params": {}, "mm_processor_kwargs": {}, "response_format": {"type": "text"}, "tools": None},
        {"response_format": None, "parallel_tool_calls": True, "include_reasoning": False, "tool_choice": "none"},
        {"best_of": 1, "guided_regex": None},
        {"return_tokens_as_token_ids": True, "spaces_between_special_tokens": False, "session_id": "s"},
    ],
)
def test_the_same_fields_asking_for_nothing_are_accepted(serving: Serving, fields: dict[str, Any]) -> None:
    assert chat(serving, fields).prompts == chat(serving, {}).prompts


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"top_logprobs": -2, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": "x"}, "top_logprobs"),
        ({"prompt_logprobs": -5}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"logprob_token_ids": [1] * 129, "logprobs": True}, "logprob_token_ids"),
        ({"logprob_token_ids": [VOCAB_SIZE], "logprobs": True}, "logprob_token_ids"),
        ({"top_logprobs": "1", "logprobs": True}, "top_logprobs"),
        ({"thinking_token_budget": -2}, "thinking_token_budget"),
        ({"thinking_token_budget": 5.0}, "thinking_token_budget"),
        ({"thinking_token_budget": 5}, None),
        ({"repetition_detection": {"max_pattern_size": 3}}, None),
        ({"repetition_detection": {"min_pattern_size": 3}}, None),
        ({"routed_experts_prompt_start": 5000}, "routed_experts_prompt_start"),
        ({"chat_template_kwargs": {"messages": []}}, None),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, None),
        ({"structured_outputs": {}}, None),
    ],
)
def test_rules_between_fields(serving: Serving, fields: dict[str, Any], param: str | None) -> None:
    error = refusal(chat, serving, fields)
    assert (error.status, error.kind, error.param) == (400, "BadRequestError", param)


def test_fields_that_only_an_engine_acts_on_reach_it(serving: Serving) -> None:
    detection = {"max_pattern_size": 3, "min_count": 2}
    fields = {
        "repetition_detection": detection, "watermarking": True, "routed_experts_prompt_start": 1, "kv_transfer_params": {"a": 1},
        "ec_transfer_params": {"b": 2}, "vllm_xargs": {"c": 3}, "logprobs": True, "top_logprobs": 2, "logprob_token_ids": [5, 6],
    }  # fmt: skip
    call = chat(serving, fields)
    sampling = call.sampling
    assert sampling["repetition_detection"] == {**detection, "min_pattern_size": 0}
    assert sampling["extra_args"] == {"c": 3, "kv_transfer_params": {"a": 1}, "ec_transfer_params": {"b": 2}}
    assert (sampling["watermarking"], sampling["routed_experts_prompt_start"]) == (True, 1)
    assert (sampling["logprob_token_ids"], "logprobs" in sampling, call.logprobs) == ([5, 6], False, -1)


def test_the_prompts_text_is_shown_if_asked_for(serving: Serving) -> None:
    assert chat(serving, {"return_prompt_text": False}).sink is None
    call = chat(serving, {"return_prompt_text": True})
    assert call.prompts[0].text == serving.tokenizer.decode(call.prompts[0].token_ids)
    assert call.sink is not None
    call.sink.add(0, "a", b"", b"", "stop", None, 1)
    body = json.loads(call.sink.end(3, 1))
    assert body["prompt_text"] == call.prompts[0].text
    assert body["choices"][0]["message"]["content"] == "a"


def test_parallel_requests_do_not_disturb_each_other(serving: Serving) -> None:
    def ask(i: int) -> tuple[int, str, object]:
        fields = {"messages": [{"role": "user", "content": f"number {i} " * (i % 7)}], "temperature": (i % 20) / 10, "seed": i}
        call = chat(serving, fields)
        text = serving.tokenizer.decode(call.prompts[0].token_ids)
        return text.count(f"number {i} "), text[:17], call.sampling.get("temperature", 1.0)

    with ThreadPoolExecutor(8) as pool:
        for i, found in enumerate(pool.map(ask, range(400))):
            assert found == (i % 7, "<|im_start|>user\n", (i % 20) / 10)


def test_a_budget_of_reasoning_goes_to_the_engine(serving: Serving) -> None:
    thinking = dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["qwen3"]), bounds_thinking=True)
    assert chat(thinking, {"thinking_token_budget": 5}).sampling["thinking_token_budget"] == 5
    assert chat(thinking, {"thinking_token_budget": 0}).sampling["thinking_token_budget"] == 0
    assert "thinking_token_budget" not in chat(thinking, {"thinking_token_budget": -1}).sampling


def test_whether_reasoning_has_ended_is_told_by_the_prompt_that_is_left(serving: Serving) -> None:
    thinking = dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["qwen3"]))
    begun = [*USER, {"role": "assistant", "content": "a</think> b c d e f"}]
    ask = {"messages": begun, "stream": True, "add_generation_prompt": False, "continue_final_message": True}
    assert chat(thinking, ask).reasoning_ended is True
    assert chat(thinking, {**ask, "truncate_prompt_tokens": 3}).reasoning_ended is None
    assert chat(thinking, {**ask, "truncate_prompt_tokens": 1000}).reasoning_ended is True


def test_constraints_may_hold_in_the_reasoning(serving: Serving) -> None:
    thinking = dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["qwen3"]))
    always = dataclasses.replace(thinking, structured=StructuredOptions(enable_in_reasoning=True))
    asked = {"structured_outputs": {"choice": ["a"]}}
    assert [chat(server, asked).reasoning_ended for server in (thinking, always)] == [None, True]
    assert [completion(server, {"prompt": "a", **asked}).reasoning_ended for server in (thinking, always)] == [None, True]
    assert chat(always, {}).reasoning_ended is None
    assert completion(always, {"prompt": "a"}).reasoning_ended is None


def test_reasoning_that_no_marker_ends_has_no_budget(serving: Serving, tmp_path: Path) -> None:
    for engine in ("native", "vllm"):
        config = config_of(make_folder(tmp_path / engine), engine=engine, parsers=ParserOptions(reasoning="granite"))
        assert not build_serving(config).bounds_thinking
    unbounded = dataclasses.replace(serving, parsers=Parsers(reasoning=REASONING_PARSERS["granite"]), bounds_thinking=False)
    assert "reasoning_config is not configured" in str(refusal(chat, unbounded, {"thinking_token_budget": 5}))
