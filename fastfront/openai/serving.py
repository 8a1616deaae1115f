"""What every request is checked against and rendered with: built once, then only read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastfront._speedups.quick_chat import QuickChats
from fastfront._speedups.quick_completion import QuickCompletions
from fastfront._speedups.quick_fields import QuickFields
from fastfront.config import AnswerOptions, Limits, ServeConfig, StructuredOptions
from fastfront.errors import SetupError
from fastfront.metrics.tool_calls import ToolCallCounts
from fastfront.openai.adapters import Adapters
from fastfront.openai.fingerprint import fingerprint
from fastfront.openai.reasoning.engine_flags import bounds_reasoning, told_markers
from fastfront.openai.sampling import (
    GREEDY_EPSILON,
    MIN_TEMPERATURE,
    MOST_MIN_P_WITH_DRAFTS,
    SamplingDefaults,
    StopTokens,
    sampling_defaults,
)
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.setup import build_parsers
from fastfront.render.chat import ChatRenderer
from fastfront.render.messages import BILLING_HEADER
from fastfront.render.model_info import ModelInfo, load_model_info, read_config, read_json
from fastfront.render.segments import SegmentEncoder
from fastfront.render.tokenizer import TextTokenizer, load_tokenizer

DEFAULT_COMPLETION_TOKENS = 16
_LARGEST_BELIEVED_LENGTH = 2**30  # some tokenizer configurations say 1e30 for "no limit"


@dataclass(frozen=True, slots=True)
class Serving:
    """One served model.

    `vocab_size` is the model's, `max_prompt_token_id` the larger of the tokenizer's and the model's last id.
    """

    model: str                                  # the first served name: the one in answers
    model_names: frozenset[str]
    served_names: tuple[str, ...]
    model_root: str
    max_model_len: int
    vocab_size: int
    max_prompt_token_id: int
    tokenizer: TextTokenizer
    segments: SegmentEncoder
    chat: ChatRenderer
    defaults: SamplingDefaults
    stops: StopTokens
    response_role: str
    trust_request_chat_template: bool
    force_usage: bool
    max_logprobs: int                           # -1: no bound
    ranks: range                                # of the engines that requests go to
    limits: Limits
    structured: StructuredOptions
    any_model_name: bool                        # names that are not served mean the first one
    fingerprint: str                            # "": none
    answers: AnswerOptions
    parsers: Parsers
    hides_unused_tools: bool                    # templates get no tools when none may be called
    tool_calls: ToolCallCounts
    special_ids: frozenset[int]                 # of tokens that the tokenizer calls special
    no_effort: str                              # the least effort of reasoning that the template knows: none, or low
    merges_system: bool                         # the templates take a system message at the front only
    stream_interval: int                        # least tokens per event of a stream, but for its first and last
    bounds_thinking: bool                       # whether the engine can end reasoning at a number of tokens
    drafts: bool                                # engines decode speculatively and refuse what does not go with it
    adapters: Adapters | None                   # None: without --enable-lora

    quick_chats: QuickChats | None = field(init=False)  # None: every chat needs the long way
    quick_completions: QuickCompletions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "quick_chats", self._quick_chats())
        object.__setattr__(self, "quick_completions", self._quick_completions())

    def _quick_chats(self) -> QuickChats | None:
        tools, fill = self.parsers.tools, self.chat.fill()
        if fill is None or self.parsers.reasoning is not None or (
            tools is not None and (tools.hides_when_off or tools.keeps_special_tokens == "always")
        ):
            return None
        return QuickChats(
            self._quick_fields("chat"), fill=fill, encode=self.segments.packed, billing_header=BILLING_HEADER,
        )  # fmt: skip

    def _quick_completions(self) -> QuickCompletions:
        return QuickCompletions(
            self._quick_fields("completion"), encode=self.segments.packed_wrapped, max_tokens=DEFAULT_COMPLETION_TOKENS,
        )  # fmt: skip

    def _quick_fields(self, kind: Literal["chat", "completion"]) -> QuickFields:
        defaults = dataclasses.asdict(self.defaults)
        return QuickFields(
            kind=kind, model=self.model, model_names=self.model_names, any_model_name=self.any_model_name,
            max_model_len=self.max_model_len, max_token_id=self.max_prompt_token_id,
            max_chars=self.tokenizer.max_chars_per_token, vocab_size=self.vocab_size,
            max_new_tokens=defaults.pop("max_new_tokens"), max_tokens_cap=defaults.pop("max_tokens_cap"), defaults=defaults,
            max_stop_strings=self.limits.max_stop_strings, max_n=self.limits.max_n, max_logprobs=self.max_logprobs,
            stop_map=self.stops.wire_map, role=self.response_role if kind == "chat" else "assistant",
            force_usage=self.force_usage, prompt_details=self.answers.prompt_details, metrics=self.answers.metrics,
            tokens_as_ids=self.answers.tokens_as_ids, greedy_below=GREEDY_EPSILON, min_temperature=MIN_TEMPERATURE,
            most_min_p=MOST_MIN_P_WITH_DRAFTS if self.drafts else 1.0,
            stream_interval=self.stream_interval, adapters=self.adapters,
        )  # fmt: skip

    def with_engine_limits(self, max_model_len: int) -> Serving:
        """The same with the length an engine announced, if that is smaller than what was known."""
        if max_model_len <= 0 or max_model_len >= self.max_model_len:
            return self
        return dataclasses.replace(self, max_model_len=max_model_len)

    def valid_names(self) -> str:
        """The served names as error messages list them."""
        return ", ".join(self.served_names)


def build_serving(config: ServeConfig) -> Serving:
    """Read the model's folder and everything the flags name. Raises SetupError naming the flag or file at fault."""
    info = load_model_info(config.model_path, config.hf_overrides)
    tokenizer = load_tokenizer(config.tokenizer or config.model_path)
    vocab_size = info.vocab_size or tokenizer.max_token_id + 1
    generation, caps = _generation_config(config, info)
    chat = ChatRenderer.build(
        config.model_path,
        tokenizer,
        config.chat_template,
        config.chat_template_content_format,
        config.default_chat_template_kwargs,
        config.render_timeout_s,
    )
    defaults = sampling_defaults(generation, caps)
    drafts = config.speculative is not None and config.engine != "native"
    if drafts and defaults.min_p > MOST_MIN_P_WITH_DRAFTS:
        raise SetupError(
            f"--speculative-config: engines refuse the model's default min_p={defaults.min_p} with it; "
            "--override-generation-config '{\"min_p\": 0}' changes that"
        )
    special = _texts(tokenizer.special_tokens)
    parsers = build_parsers(config.parsers, read_config(config.model_path, config.hf_overrides), chat.sources()).dropping(special)
    return Serving(
        model=config.served_model_name[0],
        model_names=frozenset(config.served_model_name),
        served_names=config.served_model_name,
        model_root=config.model,
        max_model_len=_max_model_len(config, info, tokenizer),
        vocab_size=vocab_size,
        max_prompt_token_id=max(tokenizer.max_token_id, vocab_size - 1),
        tokenizer=tokenizer,
        segments=SegmentEncoder(tokenizer, (*chat.sources(), *special)),
        chat=chat,
        defaults=defaults,
        stops=StopTokens(tokenizer.eos_token_id, info.eos_token_ids),
        response_role=config.response_role,
        trust_request_chat_template=config.trust_request_chat_template,
        force_usage=config.enable_force_include_usage,
        max_logprobs=config.max_logprobs,
        ranks=config.ranks,
        limits=config.limits,
        structured=config.structured,
        any_model_name=config.any_model_name,
        fingerprint=fingerprint(config),
        answers=config.answers,
        parsers=parsers,
        hides_unused_tools=config.parsers.hides_unused_tools,
        tool_calls=ToolCallCounts(config.served_model_name[0], parsers.tools is not None),
        special_ids=tokenizer.special_ids(),
        merges_system=chat.system_comes_first(),
        no_effort=chat.no_effort(),
        stream_interval=config.stream_interval,
        bounds_thinking=bounds_reasoning(parsers.reasoning) or (config.engine != "native" and told_markers(config.parsers)),
        drafts=drafts,
        adapters=Adapters(frozenset(config.served_model_name)) if config.lora.enabled else None,
    )


def _texts(values: Mapping[str, object]) -> list[str]:
    """The texts among the values, and in lists that are among them."""
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    return [value for items in lists for value in items if isinstance(value, str)]


def _generation_config(config: ServeConfig, info: ModelInfo) -> tuple[Mapping[str, Any], bool]:
    """The sampling defaults' source, and whether its max_new_tokens is a bound and not just a default."""
    kind = config.generation_config
    override = config.override_generation_config
    if kind == "vllm":
        values: Mapping[str, Any] = {}
    elif kind == "auto":
        values = info.generation_defaults
    else:
        folder = Path(kind)
        if not folder.is_dir():
            raise SetupError(f"--generation-config {kind}: neither auto, vllm, nor a folder")
        values = read_json(folder / "generation_config.json")
    caps = kind not in ("auto", "vllm") or "max_new_tokens" in override
    return {**values, **override}, caps


def _max_model_len(config: ServeConfig, info: ModelInfo, tokenizer: TextTokenizer) -> int:
    known = info.max_model_len
    said = tokenizer.config.get("model_max_length")
    if isinstance(said, (int, float)) and 0 < said < _LARGEST_BELIEVED_LENGTH:
        known = min(known, int(said)) if known else int(said)
    asked = config.max_model_len
    if asked is None:
        if not known:
            raise SetupError(f"{config.model_path} does not say how long its sequences may be: give --max-model-len")
        return known
    if known and asked > known and os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        raise SetupError(
            f"--max-model-len {asked} is more than the model's {known} (VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 allows it)"
        )
    return asked
