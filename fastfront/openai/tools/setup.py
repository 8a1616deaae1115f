"""The parsers of a server, from its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastfront.config import ParserOptions
from fastfront.errors import SetupError
from fastfront.openai.tools.auto import parsers_for
from fastfront.openai.tools.choice import Parsers
from fastfront.openai.tools.registry import Registry

_AUTO = "auto"


def build_parsers(options: ParserOptions, model_config: Mapping[str, Any], templates: Iterable[str]) -> Parsers:
    """Load plugins and look the parsers up; `model_config` is the model's config.json, `templates` are its chat templates' texts.

    A model of which no reasoning is known gets no reasoning parser under "auto". Raises SetupError for names and files
    that are no parsers, and for tool calls under "auto" of a model of which none are known.
    """
    registry = Registry()
    for plugin in options.plugins:
        registry.load_plugin(plugin)
    tools, reasoning = options.tools, options.reasoning
    if _AUTO in (tools, reasoning):
        found = parsers_for(model_config, "\n".join(templates))
        if tools == _AUTO:
            tools = found.tools
            if tools is None:
                raise SetupError("--tool-call-parser auto: how this model calls tools is not known; name a parser")
        if reasoning == _AUTO:
            reasoning = found.reasoning
    return Parsers(
        None if tools is None else registry.tools(tools),
        None if reasoning is None else registry.reasoning(reasoning),
        options.strict_level,
    )
