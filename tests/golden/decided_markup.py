"""Further rules: calls that are markup (Kimi, GLM, Qwen3-Coder, DeepSeek, Granite), and streams that contradict themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.golden.compare import Json
from tests.golden.decided_calls import RULES, Case, said

Rules = tuple[tuple[str, Callable[[Case], bool]], ...]
_COUNT = re.compile(r"\.reasoning_tokens$")
_NO_BUDGET = "reasoning_config is not configured"
_NOT_SAID = re.compile(r"^\.(status|type|body\.error)|\.(usage|token_ids)\b|choices.*\.logprobs\b")
_MARKERS = (
    "<|tool_call_end|>", "<|tool_calls_section_end|>", "</arg_value>", "</parameter>", "</function>", "</tool_call>",
    "<｜tool▁call▁end｜>", "<think>", "</think>",
)  # fmt: skip
_ANNOUNCED = "Here is my thought process:"
_SPECIAL = re.compile(r"<\|[a-z_]+\|>")
_CUT, _CALLED = ("length", "max_tokens"), ("tool_calls", "tool_use")


def markup_reason(
    request: Json, found: list[tuple[str, Any, Any]], want: Json, got: Json, other: Callable[[], Json]
) -> str | None:
    """As decided_calls.reason_for, for what is left over there."""
    thinks = request["path"] == "/v1/messages" and request["json"].get("thinking") and got["status"] == 200
    if thinks and _NO_BUDGET in _error_of(want if want["status"] != 200 else other()):
        return "Messages ask those to think whom no engine can bound too"
    if all(_COUNT.search(path) for path, _, _ in found):
        same = request["json"].get("stream") and _counts(other()) == _counts(got)
        return "streams count reasoning tokens as complete answers do" if same else None
    if got["status"] == 200 and _error_of(want) and _broken_call(request):
        return "arguments end before an unfinished marker"
    ours, theirs, others = said(got), said(want), said(other())
    if ours is None:
        return None
    is_text = ours[0].content.startswith(_text_of(request))
    if want["status"] != 200 and got["status"] == 200 and "name" in _error_of(want) and is_text:
        return "a call whose name is no text is text"
    if theirs is None and "events" in want and want["status"] == 200:
        whole = others and others[0]
        same = whole and (whole == ours[0] or _reason(Case(request, whole, ours[0], None)))
        return "a stream is not broken off" if same else None
    if any(_NOT_SAID.search(path) and not _COUNT.search(path) for path, _, _ in found):
        return None
    if theirs is None or len(ours) != len(theirs):
        return None
    if theirs == ours:
        return _of_the_same(found, want)
    cases = [Case(request, *sides) for sides in zip(theirs, ours, others or [None] * len(ours), strict=True)]
    reasons = [_reason(case) for case in cases if case.want != case.got]
    return reasons[0] if reasons and all(reasons) else None


def _reason(case: Case) -> str | None:
    """By a rule, or in a stream by a rule for vLLM's complete answer."""
    tried = [case, case._replace(want=case.other, other=None)] if case.is_stream and case.other else [case]
    for one in tried:
        if one.want == one.got:
            return "a stream says what vLLM's complete answer says"
        for reason, holds in (*RULES, *MARKUP_RULES):
            if holds(one):
                return reason
    return None


def _of_the_same(found: list[tuple[str, Any, Any]], want: Json) -> str | None:
    """Both say the same, told in another way."""
    if all((one, other) in (("", "missing"), ("missing", "")) for _, one, other in found):
        return "an empty text is none"
    if all(".tool_calls." in path for path, _, _ in found):
        return "indexes of calls have no gaps"
    events = [event for event in want.get("events", ()) if event.get("event", "").startswith("response.")]
    pieces = "".join(event["data"]["delta"] for event in events if event["event"] == "response.function_call_arguments.delta")
    whole = "".join(arguments for one in said(want) or () for _, arguments in one.calls)
    return "the pieces of a stream join to its response" if events and pieces != whole else None


def _error_of(answer: Json) -> str:
    if answer["status"] != 200:
        return json.dumps(answer.get("json"))
    return json.dumps([event["data"] for event in answer.get("events", ()) if event.get("event") == "error"])[1:-1]


def _counts(answer: Json) -> list[str]:
    """Every count of reasoning tokens, the last one of a stream."""
    return re.findall(r'"reasoning_tokens": (\d+)', json.dumps(answer.get("json") or answer.get("events")))[-1:]


def _text_of(request: Json) -> str:
    body = request["json"]
    return str(body["input"] if "input" in body else body["messages"][-1]["content"])


def _broken_call(request: Json) -> bool:
    """Whether the model ended within a marker."""
    text = _text_of(request)
    return any(text.endswith(mark[:size]) for mark in _MARKERS for size in range(2, len(mark)))


def _same_texts(case: Case) -> bool:
    return (case.want.reasoning, case.want.content.strip()) == (case.got.reasoning, case.got.content.strip())


def _without_marker(case: Case) -> bool:
    want, got = case.want, case.got
    if want.names != got.names or want.finish != got.finish or not _same_texts(case):
        return False
    unequal = [(one, other) for (_, one), (_, other) in zip(want.calls, got.calls, strict=True) if one != other]
    return bool(unequal) and all(
        one.startswith(other) and any(mark.startswith(one[len(other) :]) for mark in _MARKERS) for one, other in unequal
    )


def _no_half_name(case: Case) -> bool:
    """vLLM calls what stands where a name began; the text goes on in the same word, or holds no end of a name."""
    want, got = case.want, case.got
    if not want.calls or want.calls[:-1] != got.calls or not _same_texts(case) or want.calls[-1][1] not in ("", "{}"):
        return False
    name = want.names[-1].strip()
    return name not in case.text or re.search(re.escape(name) + r"(?:[\w:]|$)", case.text) is not None


def _not_numbered(case: Case) -> bool:
    heads = re.findall(r"<\|tool_call_begin\|>(.*?)<\|tool_call_argument_begin\|>", case.text)
    lost = [head for head in heads if not re.search(r".:\d", head)]
    return bool(lost) and len(case.got.calls) == len(case.want.calls) + len(lost) and _same_texts(case)


def _told_limit(case: Case) -> bool:
    """A limit ended the answer: its arguments are left as they came, and it is told."""
    want, got = case.want, case.got
    if got.finish not in _CUT or want.finish not in (*_CALLED, *_CUT) or want.names != got.names or not _same_texts(case):
        return False
    unequal = [(one, other) for (_, one), (_, other) in zip(want.calls, got.calls, strict=True) if one != other]
    return all(want_one == "{}" or want_one.startswith(got_one) for want_one, got_one in unequal) and not any(
        _is_object(got_one) for _, got_one in unequal
    )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _white_space(case: Case) -> bool:
    rest = case.want._replace(content="") == case.got._replace(content="")
    words = ["".join(one.content.split()) for one in (case.want, case.got)]
    hidden = "</tool_call>" in case.text
    return case.is_stream and (bool(case.got.calls) or hidden) and rest and words[0] == words[1]


def _text_behind(case: Case) -> bool:
    want, got = case.want, case.got
    more = got.content.removeprefix(want.content)
    rest = want._replace(content="") == got._replace(content="")
    longer = got.content.startswith(want.content) and bool(more)
    return case.is_stream and rest and bool(got.calls) and longer and all(word in case.text for word in more.split())


def _other_name(case: Case) -> bool:
    """`[{"name": "f", "arguments": {...}}]` where `parameters` was asked for."""
    unequal = [(one, other) for (_, one), (_, other) in zip(case.want.calls, case.got.calls, strict=False) if one != other]
    named = case.is_forced and case.want.names == case.got.names and '"arguments"' in case.text
    return named and bool(unequal) and all(one in ("null", "{}") and _is_object(other) for one, other in unequal)


def _forced_as_it_comes(case: Case) -> bool:
    """A stream cannot take back a call that turns out to be none in the end."""
    want, got = case.want, case.got
    return (
        case.is_forced and case.is_stream and bool(got.calls) and not want.calls and not _is_object(got.calls[-1][1])
        and got.calls[-1][1] in case.text and want.reasoning == got.reasoning
    )  # fmt: skip


def _no_announcement(case: Case) -> bool:
    """Granite announces its reasoning in words, of which vLLM's streams show some."""
    want, got = case.want, case.got
    shown = want.reasoning.removesuffix(got.reasoning) if got.reasoning else want.reasoning
    rest = want._replace(reasoning="") == got._replace(reasoning="")
    return case.is_stream and rest and want.reasoning != got.reasoning and shown.strip() != "" and _ANNOUNCED.endswith(shown)


def _as_a_string(case: Case) -> bool:
    """Arguments that are a string of JSON: a stream has them as they come."""
    want, got = case.want, case.got
    if not case.is_stream or want.names != got.names or want.finish != got.finish or not _same_texts(case):
        return False
    unequal = [(one, other) for (_, one), (_, other) in zip(want.calls, got.calls, strict=True) if one != other]
    return bool(unequal) and all(json.dumps(one, ensure_ascii=False) == other for one, other in unequal)


def _no_special_tokens(case: Case) -> bool:
    return case.want._replace(content=_SPECIAL.sub("", case.want.content)) == case.got


def _arguments_by(case: Case, holds: Callable[[Json, Json], bool]) -> bool:
    """The same but for arguments that are objects both times, and of which it holds."""
    want, got = case.want, case.got
    if want.names != got.names or want.finish != got.finish or not _same_texts(case):
        return False
    unequal = [(one, other) for (_, one), (_, other) in zip(want.calls, got.calls, strict=True) if one != other]
    return bool(unequal) and all(
        _is_object(one) and _is_object(other) and holds(json.loads(one), json.loads(other)) for one, other in unequal
    )


def _with_open_arguments(case: Case) -> bool:
    return _arguments_by(
        case, lambda one, other: len(one) < len(other) and one.items() <= other.items() and all(key in case.text for key in other)
    )


def _plain_names(case: Case) -> bool:
    return _arguments_by(
        case, lambda one, other: "</arg_key>" in "".join(one) or [key.strip() for key in one] == list(other) != list(one)
    )


def _types(case: Case) -> bool:
    """Only the types of values differ, which the schema gives to complete answers."""
    return case.is_stream and _arguments_by(
        case, lambda one, other: list(one) == list(other) and list(map(str, one.values())) == list(map(str, other.values()))
    )


def _marker_alone(case: Case) -> bool:
    rest = case.want._replace(content="") == case.got._replace(content="")
    plain = case.got.content.replace("<|tool_call|>", "")
    return rest and len(plain) < len(case.got.content) and plain.strip() == case.want.content.strip()


MARKUP_RULES: Rules = (
    ("an argument without an end is not lost", _with_open_arguments),
    ("names of arguments are without markers and the white space around them", _plain_names),
    ("values of JSON come in streams as the model wrote them", _types),
    ("a marker without calls behind it is text", _marker_alone),
    ("arguments end before an unfinished marker", _without_marker),
    ("a call whose name is cut off is no call", _no_half_name),
    ("a call of Kimi's without a number is a call", _not_numbered),
    ("arguments that a limit cut off are left so, and the limit is told", _told_limit),
    ("white space between calls and text is none, whatever the tokens", _white_space),
    ("text behind calls is not lost", _text_behind),
    ("arguments of a forced call may have their other name", _other_name),
    ("a forced call in a stream is sent as it comes", _forced_as_it_comes),
    ("Granite's announcements are no reasoning", _no_announcement),
    ("arguments that are a string come as they are in a stream", _as_a_string),
    ("special tokens that mean nothing to parsers are no text", _no_special_tokens),
)
