"""Parsers for a model, by its configuration and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ParserNames(NamedTuple):
    """Names for the registry; None where the model is not known to call tools, or to think."""

    tools: str | None = None
    reasoning: str | None = None


# What a template says about tool calls, the more special first: (texts it must hold, tool parser).
_TOOL_MARKS: Sequence[tuple[tuple[str, ...], str]] = (
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("<arg_key>", "<arg_value>"), "glm45"),
    (("<function=", "<parameter="), "qwen3_coder"),
    (("<｜tool▁calls▁begin｜>", "```json"), "deepseek_v3"),
    (("<｜tool▁calls▁begin｜>",), "deepseek_v31"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<|tool_call>", "<tool_call|>"), "gemma4"),
    (("<|channel|>", "functions."), "openai"),
    (("functools[",), "phi4_mini_json"),
    (("<|tool|>", "<|/tool|>"), "phi4_mini_json"),
    (("<|python_start|>",), "llama4_pythonic"),
    (("<|python_tag|>",), "llama3_json"),
    (("<|start_header_id|>", '"parameters":'), "llama3_json"),
    (("<|tool_call|>",), "granite"),
    (("<tool_call>", "</tool_call>"), "hermes"),
)
# model_type, or the beginning of an architecture's name -> parsers, where the template leaves it open.
_MODELS: Mapping[str, ParserNames] = {
    "gpt_oss": ParserNames("openai", "openai_gptoss"),
    "kimi_k2": ParserNames("kimi_k2", "kimi_k2"),
    "glm4_moe": ParserNames("glm45", "glm45"),
    "granitemoehybrid": ParserNames("granite4", None),
    "gemma4": ParserNames("gemma4", "gemma4"),
    "seed_oss": ParserNames(None, "seed_oss"),
    "nemotron_h": ParserNames("qwen3_coder", "nemotron_v3"),
}
_ARCHITECTURES: Mapping[str, str] = {
    "GptOss": "gpt_oss", "Glm4Moe": "glm4_moe", "Kimi": "kimi_k2", "GraniteMoeHybrid": "granitemoehybrid",
    "Gemma4": "gemma4", "SeedOss": "seed_oss", "NemotronH": "nemotron_h",
}  # fmt: skip
_REASONING_OF: Mapping[str, str] = {
    "kimi_k2": "kimi_k2", "glm45": "glm45", "deepseek_v3": "deepseek_r1", "deepseek_v31": "deepseek_v3",
    "mistral": "mistral", "gemma4": "gemma4", "openai": "openai_gptoss", "qwen3_coder": "qwen3",
}  # fmt: skip


def parsers_for(config: Mapping[str, Any], template: str | None) -> ParserNames:
    """The parsers of a model, from its config.json and the text of its chat template."""
    template = template or ""
    known = _MODELS.get(_model_type(config), ParserNames())
    found = next((name for marks, name in _TOOL_MARKS if all(mark in template for mark in marks)), None)
    tools = known.tools or found
    return ParserNames(tools, known.reasoning or _reasoning(template, tools))


def _model_type(config: Mapping[str, Any]) -> str:
    kind = str(config.get("model_type", ""))
    if kind in _MODELS:
        return kind
    architectures = config.get("architectures") or ()
    for architecture in architectures if isinstance(architectures, (list, tuple)) else ():
        for begin, name in _ARCHITECTURES.items():
            if str(architecture).startswith(begin):
                return name
    return kind


def _reasoning(template: str, tools: str | None) -> str | None:
    """By the markers of reasoning in the template."""
    if "Here is my thought process" in template:
        return "granite"
    if "<seed:think>" in template:
        return "seed_oss"
    if not any(mark in template for mark in ("</think>", "[THINK]", "<|channel|>", "<|channel>")):
        return None
    named = _REASONING_OF.get(tools or "")
    if named is not None:
        return named
    return "qwen3" if "enable_thinking" in template and "<think>" in template else "deepseek_r1"
