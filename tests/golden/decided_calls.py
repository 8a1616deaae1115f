"""Which differences in what a model says, thinks and calls are decided on purpose, and why.

vLLM's parsers often say one thing in a stream and another in a complete answer. Here both ways say the same, so one of
vLLM's two must differ: that is the first of the rules below. The others are for what vLLM says wrongly both ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.golden.compare import Json, fold

# Where what a model says shows in folded answers; anything else that differs is no matter of parsers.
_PLACES = re.compile(
    r"\.choices\.\d+\.(delta|finish_reason)|\.body\.choices\[\d+\]\.(message|finish_reason)"
    r"|\.body\.(content|stop_reason|output|status)|\.kinds"
    r"|\.rest\.(arguments|content_block|content_index|delta|index|item|logprobs|name|output_index|part|text|response\.(output|status))"
)
_TEXT_FORMAT = re.compile(r"\.(body|rest\.response)\.text\b")
_REASONING_TOKENS = re.compile(r"\.reasoning_tokens$")
_ARRAY_OF_CALLS = re.compile(r"\[TOOL_CALLS\]\s*[\[{]")
# As a model writes it in arguments, in the JSON of a request: \\ud83d behind what is no other half.
_HALF_PAIR = re.compile(r"\\\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\\\u[dD][c-fC-F])")
_CALL_MARKER = "</tool_call>"
# What turn.jinja puts behind the model's text. A parser that drops special tokens leaves the role's name.
_TURN = re.compile(r"(<\|im_start\|>)?assistant\n(<think>\n\n</think>\n\n)?$")
_CALLED = ("tool_calls", "tool_use")
_CUT = ("length", "max_tokens")


class Said(NamedTuple):
    """One choice: reasoning and content ("" for none), names and arguments of calls, and why it ended."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


class Case(NamedTuple):
    """One choice of two answers to a request; `other` is vLLM's answer in the other way, None if it has none."""

    request: Json
    want: Said
    got: Said
    other: Said | None

    @property
    def is_stream(self) -> bool:
        return bool(self.request["json"].get("stream"))

    @property
    def is_forced(self) -> bool:
        choice = self.request["json"].get("tool_choice")
        return choice == "required" or (isinstance(choice, dict) and choice.get("type") in ("any", "tool", "function"))

    @property
    def text(self) -> str:
        """What the model wrote: the request's text, sent back. More can follow, if the template puts it there."""
        body = self.request["json"]
        return str(body["input"] if "input" in body else body["messages"][-1]["content"])

    def wrote(self, content: str) -> bool:
        """Whether the content is some of the model's text, or all of it."""
        return _TURN.sub("", content) in self.text or content.startswith(self.text)


def said(answer: Json) -> list[Said] | None:
    """What each choice of an answer says; None for an answer that is an error or holds no choices."""
    body = answer.get("json")
    if answer["status"] != 200 or (body is not None and not isinstance(body, dict)):
        return None
    if body is None:
        return _said_in_events(answer["events"], fold(answer)) if "events" in answer else None
    if "choices" in body:
        return [_said_in_message(choice["message"], choice["finish_reason"]) for choice in body["choices"]]
    if body.get("object") == "response":
        return [_said_in_items(body)]
    return [_said_in_blocks(body["content"], body["stop_reason"])] if body.get("type") == "message" else None


def other_way(request: Json) -> Json:
    """The request as a stream if it is none, and the other way round."""
    body = {key: value for key, value in request["json"].items() if key not in ("stream", "stream_options")}
    return {**request, "json": body if request["json"].get("stream") else {**body, "stream": True}}


def reason_for(request: Json, found: list[tuple[str, Any, Any]], want: Json, got: Json, other: Callable[[], Json]) -> str | None:
    """Why these differences are as they should be; None if they are not. `other` asks vLLM the other way."""
    if _is_late_error(want) and got["status"] in (400, 404):
        return "errors that vLLM finds after a stream's head has been sent come before it"
    if _HALF_PAIR.search(json.dumps(request["json"])) and got["status"] == 200 and not _is_whole(want):
        return "half a surrogate pair in arguments is no error"
    if formats := [item for item in found if _TEXT_FORMAT.match(item[0])]:
        if "tool_calling_response" not in json.dumps([item[1] for item in formats]):
            return None
        found = [item for item in found if item not in formats]
        if not found:
            return "a response's text.format is what the request asked for"
    counts = [item for item in found if _REASONING_TOKENS.search(item[0])]
    if any(item[1] >= item[2] for item in counts):
        return None
    found = [item for item in found if item not in counts]
    if not found:
        return "all tokens of reasoning that has not ended count"
    found = [item for item in found if not item[0].endswith("bytes") and ".bytes" not in item[0]]      # the tokens' own here
    if found and all("logprobs" in path for path, _, _ in found) and _shows_more_tokens(want, got):
        return "streams of Responses show the logprobs of all tokens"
    if not all(_PLACES.match(path) for path, _, _ in found):
        return None
    ours, theirs = said(got), said(want)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return None
    if [path for path, _, _ in found] == [".kinds"] and theirs == ours:
        empty = any(_normal(arguments) == "{}" for one in ours for _, arguments in one.calls)
        return "arguments without members are sent too" if empty else None
    others = said(other()) or [None] * len(ours)
    reasons = [
        next((reason for reason, holds in RULES if holds(case)), None)
        for case in (Case(request, *sides) for sides in zip(theirs, ours, others, strict=True))
        if case.want != case.got
    ]
    return reasons[0] if reasons and all(reasons) else None


def _is_late_error(answer: Json) -> bool:
    return [event.get("event") for event in answer.get("events", ())] == ["error"]


def _shows_more_tokens(want: Json, got: Json) -> bool:
    """Whether both are streams of responses, and each message has the tokens of vLLM's, in order, and more.

    Or vLLM's begin with tokens of thoughts, or go on with those of thoughts or a call, that came in one piece with text.
    """
    sides = []
    for answer in (want, got):
        datas = [event["data"] for event in answer.get("events", ()) if isinstance(event.get("data"), dict)]
        ended = [data["response"] for data in datas if data.get("type") in ("response.completed", "response.incomplete")]
        parts = [part for response in ended for item in response["output"] for part in item.get("content") or ()]
        sides.append([[entry["token"] for entry in part.get("logprobs") or ()] for part in parts])
    theirs, ours = sides
    called = any(f'"type": "{kind}"' in json.dumps(got) for kind in ("function_call", "reasoning"))
    for one, other in zip(theirs, ours, strict=False):
        first = next((token for token in other if token in one), None)
        if first is not None:
            one, other = one[one.index(first) :], other[other.index(first) :]
        if not _in_order(one, other) and not (called and _in_order(one[: len(other)], other)):
            return False
    return bool(ours) and len(theirs) == len(ours)


def _in_order(some: list[str], more: list[str]) -> bool:
    rest = iter(more)
    return all(token in rest for token in some)


def _is_whole(answer: Json) -> bool:
    """Whether it is no error and, if it is a stream, says why it ended."""
    ended = said(answer)
    return ended is not None and all(one.finish for one in ended)


def _said_in_message(message: Json, finish: str | None) -> Said:
    calls = message.get("tool_calls") or []
    pairs = [(call["function"].get("name") or "", call["function"].get("arguments") or "") for call in calls]
    return Said(message.get("reasoning") or "", message.get("content") or "", tuple(pairs), finish or "")


def _said_in_items(response: Json) -> Said:
    reasoning = content = ""
    calls = []
    for item in response["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        elif item["type"] == "reasoning":
            reasoning += "".join(part["text"] for part in item.get("content") or ())
        else:
            content += "".join(part["text"] for part in item["content"])
    return Said(reasoning, content, tuple(calls), response["status"])


def _said_in_blocks(blocks: list[Json], finish: str | None) -> Said:
    def all_of(key: str) -> str:
        return "".join(block.get(key) or "" for block in blocks)

    calls = tuple((block["name"], _dumped(block.get("input") or {})) for block in blocks if block["type"] == "tool_use")
    return Said(all_of("thinking"), all_of("text"), calls, finish or "")


def _said_in_events(events: list[Json], folded: Json) -> list[Said] | None:
    if folded["choices"]:
        found = []
        for _, choice in sorted(folded["choices"].items()):
            calls = choice.get("delta", {}).get("tool_calls") or {}
            message = {**choice.get("delta", {}), "tool_calls": [{"function": {}, **call} for _, call in sorted(calls.items())]}
            found.append(_said_in_message(message, choice.get("finish_reason")))
        return found
    datas = [event["data"] for event in events if isinstance(event.get("data"), dict)]
    for data in datas:
        if data.get("type") in ("response.completed", "response.incomplete"):
            return [_said_in_items(data["response"])]
    return [_said_in_message_events(datas)] if datas and datas[0].get("type") == "message_start" else None


def _said_in_message_events(datas: list[Json]) -> Said:
    blocks: dict[int, Json] = {}
    finish = None
    for data in datas:
        delta = data.get("delta") or {}
        if data["type"] == "content_block_start":
            blocks[data["index"]] = {**data["content_block"], "json": ""}
        elif data["type"] == "message_delta":
            finish = delta.get("stop_reason")
        for key, name in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
            if key in delta:
                blocks[data["index"]][name] += delta[key]
    calls = tuple((block["name"], _normal(block["json"])) for block in blocks.values() if block["type"] == "tool_use")
    return _said_in_blocks([block for block in blocks.values() if block["type"] != "tool_use"], finish)._replace(calls=calls)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _normal(arguments: str) -> str:
    """JSON as it is read; nothing and null are an object without members. What is no JSON stays."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return _dumped({} if value is None else value)


def _alike(one: Said, other: Said) -> bool:
    calls = [tuple((name, _normal(arguments)) for name, arguments in side.calls) for side in (one, other)]
    return one._replace(calls=()) == other._replace(calls=()) and calls[0] == calls[1]


def _as_the_other_way(case: Case) -> bool:
    if case.other is None:
        return False
    got = case.got
    if got.calls and not case.is_stream:   # complete answers have no white space around content beside calls
        return _alike(got, case.other._replace(content=case.other.content.strip()))
    return _alike(got, case.other) or (
        bool(got.calls) and _alike(got._replace(content=got.content.strip()), case.other)
    )


def _calls_shown_as_text(case: Case) -> bool:
    """vLLM's stream has the calls of its complete answer as text, here they are calls; what stands around them is text."""
    want, got, other = case.want, case.got, case.other
    if not case.is_stream or other is None or want.calls or not got.calls or not want.content:
        return False
    rest = _alike(got._replace(content="", calls=()), other._replace(content="", calls=())) and got.names == other.names
    # Arguments that are a string come as they are in streams.
    arguments = zip(got.calls, other.calls, strict=True)
    same = rest and all(_normal(one) in (_normal(two), _dumped(two)) for (_, one), (_, two) in arguments)
    return same and got.content.strip().startswith(other.content.strip()) and case.wrote(got.content[len(other.content) :])


def _told_not_to_think(case: Case) -> bool:
    """vLLM drops what stands before the next begin of thoughts in a complete answer."""
    body, want, got = case.request["json"], case.want, case.got
    off = (body.get("thinking") or {}).get("type") == "disabled" or (body.get("reasoning") or {}).get("effort") == "none"
    off = off or (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False
    known = case.wrote(got.content) and all(name in case.text for name in got.names)
    return off and not case.is_stream and not want.reasoning.strip() and not got.reasoning and known


def _calls_where_marked(case: Case) -> bool:
    """vLLM's stream has all of Granite's answer as text; here what stands behind markers are calls."""
    want, got = case.want, case.got
    if not case.is_stream or want.calls or not got.calls or "<|tool_call|>" not in case.text:
        return False
    known = all(name in case.text for name in got.names)
    known = known and all(word in case.text for word in _TURN.sub("", got.content).split())
    return known and want.content.startswith(case.text) and want.reasoning == got.reasoning


def _forced_but_lost(case: Case) -> bool:
    """vLLM's complete answer is empty, as something stands behind the array of calls."""
    want, got = case.want, case.got
    lost = case.is_forced and not case.is_stream and not want.calls and not want.content
    return lost and bool(got.calls) and want.reasoning == got.reasoning and all(name in case.text for name in got.names)


def _no_call_came(case: Case) -> bool:
    want, got = case.want, case.got
    if not case.is_forced or got.calls or want.calls or want.reasoning != got.reasoning or got.finish in _CALLED:
        return False
    as_other = case.other is not None and case.other[:3] == got[:3]
    return as_other or want.content == got.content or (not want.content and case.wrote(got.content))


def _lost_in_stream(case: Case) -> bool:
    want, got = case.want, case.got
    wrote = case.wrote(got.content) or (case.wrote(want.content) and case.wrote(got.content[len(want.content) :]))
    return (
        case.is_stream and want.reasoning == got.reasoning and wrote
        and got.content.startswith(want.content) and got.calls[: len(want.calls)] == want.calls
    )  # fmt: skip


def _lost_under_null(case: Case) -> bool:
    body, want, got = case.request["json"], case.want, case.got
    null = body.get("tool_choice", "") is None or (case.request["path"] == "/v1/messages" and not body.get("tools"))
    return null and bool(got.calls) and not want.calls and want[:2] == got[:2]


def _pairs(case: Case) -> Iterator[tuple[str, str]]:
    for (_, want), (_, got) in zip(case.want.calls, case.got.calls, strict=True):
        if want != got:
            yield want, got


def _same_but_arguments(case: Case, holds: Callable[[str, str], bool]) -> bool:
    """The same calls, and for arguments that differ it holds; content is the same or what vLLM's stream lost of it."""
    want, got = case.want, case.got
    if not want.calls or want.names != got.names or want.reasoning != got.reasoning or want.finish != got.finish:
        return False
    if want.content != got.content and (want.content or not case.wrote(got.content)):
        return False
    return all(holds(*pair) for pair in _pairs(case))


def _end(case: Case) -> bool:
    return _same_but_arguments(case, lambda want, got: got[-1:] in ("}", "]") and want.startswith(got)) and case.is_stream


def _as_far_as_come(case: Case) -> bool:
    return _same_but_arguments(case, lambda want, got: got.startswith(want.removesuffix("}"))) and case.is_stream


def _no_null(case: Case) -> bool:
    return _same_but_arguments(case, lambda want, got: want == "null" and got == "{}")


def _not_completed(case: Case) -> bool:
    return _same_but_arguments(case, lambda want, got: want.startswith(got) or not got) and case.got.finish in _CUT


RULES: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    ("vLLM's stream and its complete answer differ; here both say what one of them says", _as_the_other_way),
    ("calls that vLLM's stream shows as text are calls, as in its complete answer", _calls_shown_as_text),
    ("calls that vLLM's stream shows as text are calls", _calls_where_marked),
    ("all is the answer of a model that was told not to think", _told_not_to_think),
    ("a forced call is not lost for what stands behind it", _forced_but_lost),
    ("a forced call that did not come: the text, and the model's own reason to stop", _no_call_came),
    ("arguments are sent as far as they have come, and are an object if there are none", _as_far_as_come),
    ("null as the arguments of a forced call is an object without members", _no_null),
    ("text that turns out to be no call, and calls behind others, are not lost in streams", _lost_in_stream),
    ("calls of a model that was not asked for any are not lost", _lost_under_null),
    ("arguments end where their JSON ends", _end),
    ("arguments that a limit cut are not completed", _not_completed),
    (
        "an array of calls of older Mistral models is read as calls, not as one of a function named [",
        lambda case: _ARRAY_OF_CALLS.search(case.text) is not None
        and all(_TURN.sub("", f"{name.strip()}\n").strip() in ("", "[", "[]") for name in case.want.names),
    ),
    (
        "a call whose string holds the closing marker is read to its end",
        lambda case: any(_CALL_MARKER in arguments for _, arguments in case.got.calls)
        and case.want.content.startswith(case.text),
    ),
    ("a marker ends a name too", lambda case: any("[TOOL_CALLS]" in name for name in case.want.names) and bool(case.got.calls)),
    (
        "calls of Llama right behind each other are read too",
        lambda case: "}{" in case.text and bool(case.got.calls)
        and not case.want.calls and case.want.content.startswith(case.text),
    ),
    (
        "a call without a name is text",
        lambda case: "" in case.want.names and not case.got.calls and case.got.content.startswith(case.text),
    ),
)
