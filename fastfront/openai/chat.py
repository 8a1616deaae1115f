"""POST /v1/chat/completions: from the body to a `PreparedCall`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from fastfront._speedups.token_ids import count_of, unpack
from fastfront.errors import ApiError
from fastfront.openai import field_order
from fastfront.openai.beams.answers import ChatBeams, beam_sampling
from fastfront.openai.bodies import BodyReader, Header, require_json
from fastfront.openai.calls import (
    priority_of,
    rank_of,
    request_id,
    require_model,
    sampling_of,
    seed_of,
    shows_token_ids,
    stop_strings,
    stream_interval_of,
    usage_flags,
)
from fastfront.openai.chat_sink import ChatSink
from fastfront.openai.checks import check_chat, refuse_unserved
from fastfront.openai.fields import ChatBody
from fastfront.openai.logprobs import NOTHING, LogprobsWanted, chat_logprobs
from fastfront.openai.message_types import checked_messages, require_shapes_of, shape_errors
from fastfront.openai.plain_shapes import plain_bodies
from fastfront.openai.prompts import (
    encode_prompt,
    require_output_fits,
    require_routed_start,
    require_vocabulary,
    tokens_left,
)
from fastfront.openai.reading import Reading
from fastfront.openai.reasoning.prompt import reasoning_ended
from fastfront.openai.serving import Serving
from fastfront.openai.structured import holds_at_once, put_structure, structured_map
from fastfront.openai.tools.choice import Plan, choice_of
from fastfront.render.messages import Message
from fastfront.streams.prepared import PreparedCall, PreparedPrompt

# A request with no other fields than these needs no check of how fields go together, but that only streams have stream_options.
_PLAIN = frozenset({
    "messages", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stream", "stop",
    "seed", "n", "user", "frequency_penalty", "presence_penalty", "stream_options", "ignore_eos", "min_tokens", "min_p",
    "repetition_penalty", "stop_token_ids", "chat_template_kwargs", "return_token_ids",
})  # fmt: skip
_ARGUMENTS = ("messages", "conversation")  # of whoever renders a template, not of a request
_TEMPLATE_FIELDS = frozenset({"chat_template_kwargs", "documents", "reasoning_effort"})
CHAT: TypeAdapter[ChatBody] = TypeAdapter(ChatBody)
CHATS = plain_bodies(ChatBody)
_READER: BodyReader[ChatBody] = BodyReader(CHAT, check_chat, field_order.CHAT, shape_errors, CHATS)


def prepare_chat(body: bytes, header: Header, serving: Serving) -> PreparedCall:
    """Everything up to the engine: validated, rendered, tokenized. `header` gives a request header by lower-case name.

    Raises ApiError; nothing has been sent anywhere then.
    """
    require_json(header)
    return _prepare(_READER.read(body), header, serving)


def prepare_chat_object(data: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    """The same from a body that has been parsed, of the right media type."""
    return _prepare(_READER.read_object(data), header, serving)


def _prepare(fields: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    if serving.quick_chats is not None and type(fields) is dict:
        quick = serving.quick_chats.prepare(fields, header)
        if quick is not None:
            return quick
    if not fields.keys() <= _PLAIN or ("stream_options" in fields and not fields.get("stream")):
        check_chat(fields)
    try:
        return prepare_chat_fields(fields, header, serving)
    except ApiError:
        require_shapes_of(fields["messages"])      # what is wrong with them is told first
        raise


def prepare_chat_fields(fields: Mapping[str, Any], header: Header, serving: Serving) -> PreparedCall:
    """The same from fields that are already read and checked. Raises ApiError."""
    prepared, reading = prepare_reading(fields, header, serving)
    if fields.get("use_beam_search"):
        prepared.steps = ChatBeams(prepared, reading, fields, serving)
        return prepared
    if reading is None and not fields.get("return_prompt_text"):
        return prepared
    return with_chat_sink([prepared], [reading], fields, serving)


def with_chat_sink(
    calls: Sequence[PreparedCall],
    readings: Sequence[Reading | None],
    fields: Mapping[str, Any],
    serving: Serving,
    *,
    in_batch: bool = False,
) -> PreparedCall:
    """One call of the prompts of all, whose answers are read. `in_batch`: what belongs to one of them is not shown."""
    shows_ids = bool(fields.get("return_token_ids"))
    call = calls[0]
    if len(calls) > 1:
        call = call.replace(prompts=[prompt for each in calls for prompt in each.prompts])
    call.return_token_ids = shows_ids or serving.parsers.reasoning is not None
    hides = fields.get("include_reasoning") is False and serving.parsers.reasoning is not None
    call.sink = ChatSink(
        call, readings, serving.fingerprint, shows_ids=shows_ids, shows_prompt_ids=shows_ids and not in_batch,
        hides_details=hides, in_batch=in_batch, echoes=bool(fields.get("echo")),
        echo_texts=[each.echo_content for each in calls],
    )  # fmt: skip
    return call


def prepare_reading(
    fields: Mapping[str, Any], header: Header, serving: Serving, request_type: str = "chat_completions"
) -> tuple[PreparedCall, Reading | None]:
    """For other APIs that end as a chat: from fields that are already read and checked to a call without a sink.

    Besides, how its answers are read; None for text as it is, which needs no sink in a chat. `request_type` is the API's
    name in metrics. Raises ApiError.
    """
    adapter = require_model(fields, serving)
    stop = stop_strings(fields, serving)
    if not fields.keys() <= _PLAIN:
        refuse_unserved(fields)
    get = fields.get
    plan = _plan(fields, serving)
    requested, param = get("max_completion_tokens"), "max_completion_tokens"
    if requested is None:
        requested, param = get("max_tokens"), "max_tokens"
    if requested is not None:
        require_output_fits(requested, param, serving.max_model_len)

    last, text = render_chat(fields, serving)
    truncate, side = get("truncate_prompt_tokens"), get("truncation_side")
    special = _misses_begin(text, serving) if request_type == "responses" else get("add_special_tokens", False)
    ids = encode_prompt(text, special, requested or 0, serving, truncate, side)
    max_tokens = tokens_left(requested, count_of(ids), serving)
    n = get("n")
    n = 1 if n is None else n
    if get("use_beam_search"):
        sampling = beam_sampling(fields, n, serving)
        wanted = NOTHING._replace(sample=get("top_logprobs") or 0) if get("logprobs") else NOTHING
    else:
        sampling, wanted = _sampling(fields, serving, plan, n, max_tokens)
    require_vocabulary(ids, serving)
    require_routed_start(fields, count_of(ids))
    role = serving.response_role if get("add_generation_prompt", True) else last["role"]
    stream = bool(get("stream"))
    include_usage, continuous_usage = usage_flags(fields, serving)
    start = None if plan is None else plan.start(text if truncate is None else serving.tokenizer.decode(unpack(ids)))
    ended = None if start is None else reasoning_ended(serving.parsers.reasoning, start)
    prepared = PreparedCall(
        kind="chat",
        external_id="chatcmpl-" + request_id(fields, header),
        created=int(time.time()),
        model=serving.model if adapter is None else adapter.name,
        prompts=[PreparedPrompt(ids, max_tokens, text=text if get("return_prompt_text") else None)],
        sampling=sampling,
        n=n,
        seed=seed_of(fields),
        stream=stream,
        include_usage=stream and include_usage,
        continuous_usage=stream and continuous_usage,
        return_token_ids=bool(get("return_token_ids")),
        prompt_details=serving.answers.prompt_details,
        metrics=serving.answers.metrics,
        stop=stop,
        include_stop_str_in_output=get("include_stop_str_in_output", False),
        min_tokens=get("min_tokens", 0),
        skip_special_tokens=get("skip_special_tokens", True) and not (plan is not None and plan.keeps_special_tokens),
        logprobs=wanted.sample,
        prompt_logprobs=wanted.prompt,
        tokens_as_ids=shows_token_ids(fields, serving),
        role=role,
        echo_content=_echo_content(last, role) if get("echo") else "",
        priority=priority_of(fields, header),
        cache_salt=get("cache_salt"),
        lora_request=None if adapter is None else adapter.wire,
        data_parallel_rank=rank_of(header, serving),
        stream_interval=stream_interval_of(fields, serving),
        reasoning_ended=holds_at_once(sampling, serving.structured) or ended,
        reasoning_kwargs=None if plan is None else plan.engine_kwargs(),
    )
    if plan is None or start is None:
        return prepared, None
    return prepared, Reading(plan, start, serving.tokenizer, serving.special_ids, serving.tool_calls, request_type)


def _misses_begin(text: str, serving: Serving) -> bool:
    """Whether a prompt lacks the model's begin token. Of the chats only those of Responses have it added."""
    begin = serving.tokenizer.special_tokens.get("bos_token")
    return not (isinstance(begin, str) and begin and text.startswith(begin))


def _sampling(
    fields: Mapping[str, Any], serving: Serving, plan: Plan | None, n: int, max_tokens: int
) -> tuple[dict[str, object], LogprobsWanted]:
    """The sampling map, and which logprobs are wanted. Raises ApiError."""
    sampling, wanted = sampling_of(fields, serving, n, max_tokens, chat_logprobs)
    forced = None if plan is None else plan.constraint()
    if forced is None:
        put_structure(fields, serving.structured, sampling)
    else:
        sampling["structured_outputs"] = structured_map(forced, serving.structured)
    return sampling, wanted


def _plan(fields: Mapping[str, Any], serving: Serving) -> Plan | None:
    """How the answers are read. Raises ApiError for a tool choice that the server cannot serve."""
    parsers = serving.parsers
    if parsers.reasoning is None and choice_of(fields)[0] == "none":
        tools = parsers.tools
        if tools is None or not (tools.hides_when_off or tools.keeps_special_tokens == "always"):
            return None                    # the text is the answer
    kwargs = serving.chat.all_kwargs(None if _TEMPLATE_FIELDS.isdisjoint(fields) else _template_kwargs(fields))
    return parsers.plan(fields, kwargs, bool(fields.get("stream")))


def render_chat(fields: Mapping[str, Any], serving: Serving) -> tuple[Message, str]:
    """The last message as the template saw it, and the prompt's text. Raises ApiError."""
    get = fields.get
    given = get("chat_template")
    kwargs = get("chat_template_kwargs")
    if (given is not None or (kwargs and "chat_template" in kwargs)) and not serving.trust_request_chat_template:
        raise ApiError(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )
    chat = serving.chat
    tools = get("tools")
    template = chat.template_for(bool(tools), given or None)
    generation_prompt = get("add_generation_prompt", True)
    no_names = _TEMPLATE_FIELDS.isdisjoint(fields)
    if no_names and not tools and not get("continue_final_message"):
        quick = chat.quick(template, fields["messages"], generation_prompt)
        if quick is not None:
            return quick
    conversation = chat.conversation(template, checked_messages(fields["messages"]), serving.model)
    for name in _ARGUMENTS:
        if kwargs and name in kwargs:
            raise ApiError(f"jinja2.environment.Template.render() got multiple values for keyword argument '{name}'")
    own = None if no_names else _template_kwargs(fields)
    extra = chat.kwargs(template, own)
    if serving.hides_unused_tools and get("tool_choice") == "none":
        tools = None
    shown_tools = chat.shown_tools.shown(tools) if tools else None
    if not get("continue_final_message"):
        text = template.render(conversation, generation_prompt, extra, shown_tools)
        return conversation[-1], text
    if generation_prompt:
        raise ApiError(
            "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you "
            "want the model to continue the final message, and add_generation_prompt when you want to add a header "
            "that will prompt it to start a new assistant message instead."
        )
    text = template.render_continued(conversation, extra, shown_tools)
    return conversation[-1], text


def _template_kwargs(fields: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = dict(fields.get("chat_template_kwargs") or {})
    effort = fields.get("reasoning_effort")
    if effort is not None:
        kwargs["reasoning_effort"] = effort
        kwargs.setdefault("enable_thinking", effort != "none")
    documents = fields.get("documents")
    if documents is not None:
        kwargs["documents"] = documents
    kwargs.pop("add_generation_prompt", None)  # the field of the request decides
    return kwargs


def _echo_content(last: Message, role: str) -> str:
    """The text of the last message if the answer goes on in its role."""
    if last.get("role") != role:
        return ""
    content = last.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
