"""Parsers by the names that vLLM gives them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from fastfront.errors import SetupError
from fastfront.openai.reasoning import think
from fastfront.openai.reasoning.base import ReasoningParser
from fastfront.openai.reasoning.granite import GraniteReasoning
from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.deepseek_v3 import DeepSeekV3Parser, DeepSeekV31Parser
from fastfront.openai.tools.gemma4 import Gemma4Parser
from fastfront.openai.tools.glm45 import Glm45Parser
from fastfront.openai.tools.granite import GraniteParser
from fastfront.openai.tools.harmony import GptOssReasoning, HarmonyParser
from fastfront.openai.tools.hermes import Granite4Parser, HermesParser
from fastfront.openai.tools.kimi_k2 import KimiK2Parser
from fastfront.openai.tools.llama3_json import Llama3JsonParser
from fastfront.openai.tools.mistral import MistralParser
from fastfront.openai.tools.phi4_mini import Phi4MiniParser
from fastfront.openai.tools.pythonic import Llama4PythonicParser, PythonicParser
from fastfront.openai.tools.qwen3_coder import Qwen3CoderParser

TOOL_PARSERS: Mapping[str, type[ToolParser]] = MappingProxyType({
    "deepseek_v3": DeepSeekV3Parser,
    "deepseek_v31": DeepSeekV31Parser,
    "gemma4": Gemma4Parser,
    "glm45": Glm45Parser,
    "glm47": Glm45Parser,
    "granite": GraniteParser,
    "granite4": Granite4Parser,
    "hermes": HermesParser,
    "kimi_k2": KimiK2Parser,
    "llama3_json": Llama3JsonParser,
    "llama4_json": Llama3JsonParser,
    "llama4_pythonic": Llama4PythonicParser,
    "mistral": MistralParser,
    "openai": HarmonyParser,
    "phi4_mini_json": Phi4MiniParser,
    "pythonic": PythonicParser,
    "qwen3_coder": Qwen3CoderParser,
    "qwen3_json": HermesParser,
    "qwen3_xml": Qwen3CoderParser,
})  # fmt: skip
REASONING_PARSERS: Mapping[str, type[ReasoningParser]] = MappingProxyType({
    "deepseek_r1": think.DeepSeekR1Reasoning,
    "deepseek_v3": think.DeepSeekV3Reasoning,
    "gemma4": think.Gemma4Reasoning,
    "glm45": think.Glm45Reasoning,
    "glm47": think.Glm45Reasoning,
    "granite": GraniteReasoning,
    "holo2": think.Holo2Reasoning,
    "kimi_k2": think.KimiK2Reasoning,
    "mistral": think.MistralReasoning,
    "nemotron_v3": think.NemotronV3Reasoning,
    "openai_gptoss": GptOssReasoning,
    "qwen3": think.Qwen3Reasoning,
    "seed_oss": think.SeedOssReasoning,
})  # fmt: skip


class Registry:
    """The parsers a server can use: those above and those of its plugins. Filled before serving, then only read."""

    def __init__(self) -> None:
        self._tools = dict(TOOL_PARSERS)
        self._reasoning = dict(REASONING_PARSERS)

    def add_tools(self, name: str, parser: type[ToolParser]) -> None:
        """Add a tool parser, or put it in the place of another."""
        if not issubclass(parser, ToolParser):
            raise SetupError(f"tool parser {name!r} is no subclass of {ToolParser.__module__}.ToolParser")
        self._tools[name] = parser

    def add_reasoning(self, name: str, parser: type[ReasoningParser]) -> None:
        """Add a reasoning parser, or put it in the place of another."""
        if not issubclass(parser, ReasoningParser):
            raise SetupError(f"reasoning parser {name!r} is no subclass of {ReasoningParser.__module__}.ReasoningParser")
        self._reasoning[name] = parser

    def tools(self, name: str) -> type[ToolParser]:
        """A tool parser by name. Raises SetupError naming those there are."""
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(sorted(self._tools))
            raise SetupError(f"--tool-call-parser {name}: no such parser; there are: {known}") from None

    def reasoning(self, name: str) -> type[ReasoningParser]:
        """A reasoning parser by name. Raises SetupError naming those there are."""
        try:
            return self._reasoning[name]
        except KeyError:
            known = ", ".join(sorted(self._reasoning))
            raise SetupError(f"--reasoning-parser {name}: no such parser; there are: {known}") from None

    def load_plugin(self, path: Path) -> None:
        """Run a Python file and call its function `register(registry)`, which adds its parsers.

        Raises SetupError if there is no such file or function, or if either fails.
        """
        name = f"fastfront_plugin_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise SetupError(f"plugin {path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module         # as import does: dataclasses and pickles look their module up
        try:
            spec.loader.exec_module(module)
            module.register(self)
        except SetupError:
            raise
        except Exception as error:
            del sys.modules[name]
            raise SetupError(f"plugin {path}: {type(error).__name__}: {error}") from error
