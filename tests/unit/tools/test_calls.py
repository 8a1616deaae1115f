"""Every parser: any cut of a text gives the same calls, and they are those that were written."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfront.openai.tools.base import ToolParser
from fastfront.openai.tools.forced import NamedParser, RequiredParser
from fastfront.openai.tools.registry import TOOL_PARSERS
from tests.unit.tools.formats import FORMATS, PIECES, SIZES, TOOLS, Format, calls_of, cut_up, few, numbered, streamed, texts

PARSERS: dict[str, type[ToolParser]] = {parser.__name__: parser for parser in (*TOOL_PARSERS.values(), RequiredParser)}


def test_every_parser_has_a_format() -> None:
    assert {form.parser for form in FORMATS.values()} == set(PARSERS.values())


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@given(data=st.data(), sizes=SIZES)
@few
def test_reads_what_was_written(form: Format, data: st.DataObject, sizes: list[int]) -> None:
    before = data.draw(st.sampled_from(["", "Let me look. ", "a < b, {x} [y] 'z'\n", "\n\n"])) if form.has_text else ""
    calls = data.draw(calls_of(form))
    text = before + form.write(calls)
    message = streamed(form.parser(form.tools, numbered), cut_up(text, sizes))
    complete = form.parser.parse(text, form.tools, numbered)
    for found in (message, complete):
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == calls
        assert len({call.id for call in found.calls}) == len(calls)
    assert (message.content or "").rstrip("\n") == ("" if form.drops_blank and before.isspace() else before.rstrip("\n"))
    assert (complete.content or "").strip() == before.strip()


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.lists(st.sampled_from(PIECES), max_size=25).map("".join), sizes=SIZES)
@few
@example(text='<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call> <tool_call>x', sizes=[7])
@example(text='[f(a="b" \'c\', d={1: (2,), "e": {3}}, g=-1.5)] x', sizes=[7])
def test_any_cut_gives_the_same(name: str, text: str, sizes: list[int]) -> None:
    parser = PARSERS[name]
    whole = streamed(parser(TOOLS, numbered), [text])
    assert streamed(parser(TOOLS, numbered), list(text)) == whole
    assert streamed(parser(TOOLS, numbered), cut_up(text, sizes)) == whole
    parser.parse(text, TOOLS, numbered)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@given(data=st.data(), sizes=SIZES)
@few
def test_a_limit_leaves_a_prefix(form: Format, data: st.DataObject, sizes: list[int]) -> None:
    text = form.write(data.draw(calls_of(form)))
    whole = streamed(form.parser(form.tools, numbered), [text])
    size = data.draw(st.integers(0, len(text) - 1))
    cut = streamed(form.parser(form.tools, numbered), cut_up(text[:size], sizes), cut=True)
    assert len(cut.calls) <= len(whole.calls)
    for part, call in zip(cut.calls, whole.calls, strict=False):
        assert part.name == call.name
        assert call.arguments.startswith(part.arguments)


@given(text=texts(), sizes=SIZES)
def test_a_named_call_is_all_arguments(text: str, sizes: list[int]) -> None:
    message = streamed(NamedParser("f", TOOLS, numbered), cut_up(text, sizes))
    if text.strip():
        assert message.calls == (("call-0", "f", text),)
    else:
        assert not message.calls


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.text("abc \n.", max_size=40))
@few
def test_text_without_markers_is_content(name: str, text: str) -> None:
    if name == "HarmonyParser":
        text = "<|channel|>final<|message|>" + text
    assert (streamed(PARSERS[name](TOOLS, numbered), list(text)).content or "") == text.removeprefix(
        "<|channel|>final<|message|>"
    )
