"""Parsers by name, by model and from plugins; many at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fastfront.errors import SetupError
from fastfront.openai.tools.auto import ParserNames, parsers_for
from fastfront.openai.tools.deltas import Delta, Message, joined
from fastfront.openai.tools.registry import REASONING_PARSERS, TOOL_PARSERS, Registry
from tests.unit.tools.formats import FORMATS, numbered, streamed

PLUGIN = '''
from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.registry import TOOL_PARSERS
from fastfront.openai.reasoning.think import ThinkParser

class Shout(ToolParser):
    def _text(self, text, at, last):
        self._say(text[at:].upper())
        return len(text)

class Musing(ThinkParser):
    opens = ("<muse>",)
    closes = ("</muse>",)
    begins_inside = True

def register(registry):
    registry.add_tools("shout", Shout)
    registry.add_reasoning("musing", Musing)
'''


def test_names() -> None:
    registry = Registry()
    assert registry.tools("qwen3_xml") is registry.tools("qwen3_coder") is TOOL_PARSERS["qwen3_xml"]
    assert registry.reasoning("qwen3") is REASONING_PARSERS["qwen3"]
    with pytest.raises(SetupError, match=r"--tool-call-parser x: no such parser; there are: .*hermes"):
        registry.tools("x")
    with pytest.raises(SetupError, match=r"--reasoning-parser hermes: no such parser; there are: .*qwen3"):
        registry.reasoning("hermes")


def test_a_plugin_adds_parsers_to_its_registry_only(tmp_path: Path) -> None:
    path = tmp_path / "shout.py"
    path.write_text(PLUGIN)
    registry = Registry()
    registry.load_plugin(path)
    assert registry.tools("shout").parse("hi") == Message(content="HI")
    assert registry.reasoning("musing").parse("a</muse>b") == ("a", "b")
    with pytest.raises(SetupError):
        Registry().tools("shout")


BROKEN = [
    ("import nothing_of_this_name", "ModuleNotFoundError"),
    ("x = 1", "register"),
    ("def register(registry): registry.add_tools('a', dict)", "no subclass"),
    ("def register(registry): registry.add_reasoning('a', dict)", "no subclass"),
    ("def register(registry): 1 / 0", "ZeroDivisionError"),
]


@pytest.mark.parametrize(("source", "told"), BROKEN)
def test_broken_plugins(tmp_path: Path, source: str, told: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(SetupError, match=told):
        Registry().load_plugin(path)


def test_plugins_that_are_not_there(tmp_path: Path) -> None:
    for name in ("missing.py", "missing.txt"):
        with pytest.raises(SetupError, match="missing"):
            Registry().load_plugin(tmp_path / name)


MODELS: list[tuple[dict[str, Any], str, ParserNames]] = [
    ({"model_type": "qwen3"}, "<tool_call> </tool_call> <think> </think> enable_thinking", ParserNames("hermes", "qwen3")),
    ({"model_type": "qwen2"}, "<tool_call> </tool_call>", ParserNames("hermes", None)),
    ({"model_type": "qwen3_next"}, "<tool_call></tool_call><function= <parameter=", ParserNames("qwen3_coder", None)),
    ({"model_type": "llama"}, '<|start_header_id|> {"name": ..., "parameters": ...}', ParserNames("llama3_json", None)),
    ({"model_type": "llama"}, "<|im_start|>", ParserNames(None, None)),
    ({"model_type": "llama4"}, "<|python_start|>", ParserNames("llama4_pythonic", None)),
    ({"model_type": "mistral"}, "[TOOL_CALLS] [THINK]", ParserNames("mistral", "mistral")),
    ({"model_type": "mistral"}, "[TOOL_CALLS]", ParserNames("mistral", None)),
    ({"model_type": "deepseek_v3"}, "<｜tool▁calls▁begin｜> ```json </think>", ParserNames("deepseek_v3", "deepseek_r1")),
    ({"model_type": "deepseek_v3"}, "<｜tool▁calls▁begin｜> </think>", ParserNames("deepseek_v31", "deepseek_v3")),
    ({"model_type": "qwen2"}, "<｜tool▁calls▁begin｜> ```json <think></think>", ParserNames("deepseek_v3", "deepseek_r1")),
    ({"model_type": "glm4_moe"}, "<tool_call> <arg_key> <arg_value> </think>", ParserNames("glm45", "glm45")),
    ({"model_type": "kimi_k2"}, "<|tool_calls_section_begin|>", ParserNames("kimi_k2", "kimi_k2")),
    ({"architectures": ["GptOssForCausalLM"]}, "", ParserNames("openai", "openai_gptoss")),
    ({"model_type": "granite"}, "<|tool_call|> Here is my thought process", ParserNames("granite", "granite")),
    ({"model_type": "granitemoehybrid"}, "<tool_call></tool_call>", ParserNames("granite4", None)),
    ({"model_type": "phi3"}, "<|tool|><|/tool|>", ParserNames("phi4_mini_json", None)),
    ({"model_type": "gemma4"}, "<|tool_call> <tool_call|>", ParserNames("gemma4", "gemma4")),
    ({"model_type": "smollm3"}, "<tool_call></tool_call><think></think>", ParserNames("hermes", "deepseek_r1")),
    ({}, "", ParserNames(None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("config", "template", "names"), MODELS)
def test_parsers_of_models(config: dict[str, Any], template: str, names: ParserNames) -> None:
    assert parsers_for(config, template) == names
    registry = Registry()
    assert names.tools is None or registry.tools(names.tools)
    assert names.reasoning is None or registry.reasoning(names.reasoning)


def test_parsers_share_nothing_between_threads() -> None:
    texts = {
        name: form.write([("get_weather", {"city": "Paris"}), ("now", {})]) for name, form in FORMATS.items()
    }
    wanted = {name: streamed(FORMATS[name].parser(FORMATS[name].tools, numbered), [text]) for name, text in texts.items()}
    start = threading.Barrier(8)
    wrong: list[str] = []

    def work() -> None:
        start.wait()
        for _ in range(5):
            for name, form in FORMATS.items():
                parser = form.parser(form.tools, numbered)
                deltas: list[Delta] = []
                for char in texts[name]:
                    deltas += parser.feed(char)
                if joined([*deltas, *parser.finish()]) != wanted[name]:
                    wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert json.loads(wanted["hermes"].calls[0].arguments) == {"city": "Paris"}
