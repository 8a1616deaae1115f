"""Prompts made without running the template: the same as with it, or not made at all."""

from __future__ import annotations

import json
import random
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfront._speedups.plain_chat import Form, Guards, plain_chat
from fastfront.render import skeleton
from fastfront.render.chat import ChatRenderer
from fastfront.render.lookup import find_chat_templates
from fastfront.render.messages import conversation_of
from fastfront.render.template import ChatTemplate
from tests.unit.model_templates import GATHERED, LLAMA_3, MACRO, PREFIXED

LOOP = "{% for m in messages %}"
CHATML = (
    LOOP + "<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
THINKING = (
    LOOP + "{% set content = m.content %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}"
    "{% elif m.content.startswith('<r>') and not m.content.endswith('</r>') %}{{ 'r' + content | upper }}{% endif %}"
    "{{ m.role ~ ': ' ~ content.lstrip('\n') }}{{ '100 %s' }}{% endfor %}"
)
TRIMMED = (
    "{% set all = messages %}" + LOOP + "{% set text = '[' + m['content'] | trim + ']' %}"
    "{% if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}{{ text }}{% endfor %}"
)
SYSTEM_FIRST = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content + '\n' }}{% endif %}"
    "{% for m in messages[1:] %}{% if m.role != 'user' and m.role != 'assistant' %}{{ raise_exception('roles') }}{% endif %}"
    "{{ '<' ~ m.role ~ '>' }}{{ m.content }}{% if 'name' in m or m.content is not string %}never{% endif %}{% endfor %}"
    "{% set ns = namespace(n=0) %}{% set ns.n = messages | length %}{{ ns.n }}"
)
PROVED = [
    CHATML, THINKING, TRIMMED, SYSTEM_FIRST, LLAMA_3, MACRO, GATHERED, PREFIXED,
    LOOP + "{% if m.content %}{{ m.content }}{% endif %}{% endfor %}",
    LOOP + "{% if m.role in m.content %}b{% endif %}{{ m.content }}{% endfor %}",
    LOOP + "{% if m.content == '' or m.content == none %}b{% endif %}{{ (' ' + m.content + ' ') | trim }}{% endfor %}",
    LOOP + "{{ ('x' ~ m.content).strip() }}{{ (m.content ~ m.content).strip('a') }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}{{ messages[0].content }}",
    "{% for m in messages recursive %}{{ m.content }}{% endfor %}",
    "{% set x %}[{{ messages[0].content }}]{% endset %}{{ x }}{% filter trim %} {{ messages[0].content }}{% endfilter %}",
    "{% generation %}{{ messages | map(attribute='content') | first }}{% endgeneration %}",
    "{{ messages[0].content.removeprefix('a').removesuffix('b').partition('%')[0] }}{{ messages[0].content | d('x', true) }}",
]  # fmt: skip
FOR_FEWER_TEXTS = [
    LOOP + "{{ m.content.replace('a', 'b') }}{% endfor %}",
    LOOP + "{{ m.content.strip(m.role) }}{% endfor %}",
    "{{ messages[0].content }}{{ messages[0].content.find('a') }}{{ messages[0].content.count('%') }}",
]


@cache
def template_of(source: str, **limits: Any) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>"}, **limits)


def renderer_of(template: ChatTemplate) -> ChatRenderer:
    return ChatRenderer(template, None, {}, "auto", {})


texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", " ", "\n", "a ", "\na", "%s", "%", "%%", "{}", "</think>b", "<r>x", "<r>y</r>", "x</r>", "u2028\u2028"]),
)
chats = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), texts), min_size=1, max_size=5)


@pytest.mark.parametrize("source", PROVED + FOR_FEWER_TEXTS)
@given(chats, st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_prompt_is_the_same_or_the_template_has_to_be_run(source: str, chat: list[tuple[str, str]], prompt: bool) -> None:
    template = template_of(source)
    renderer = renderer_of(template)
    messages = [{"role": role, "content": text} for role, text in chat]
    for _ in range(2):  # once made, once kept
        quick = renderer.quick(template, messages, prompt)
        if quick is not None:
            conversation = renderer.conversation(template, [dict(message) for message in messages], "m")
            assert quick == (conversation[-1], template.render(conversation, prompt))


@pytest.mark.parametrize("source", PROVED)
def test_usual_chats_need_no_run_of_the_template(source: str) -> None:
    template = template_of(source)
    chat = [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Hello there"}]
    quick = renderer_of(template).quick(template, chat, True)
    shown = conversation_of(chat, template.content_format == "openai", "m")
    assert quick == (shown[-1], template.render(shown, True))


@pytest.mark.parametrize(
    "source",
    [
        LOOP + "{{ m.content | upper }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content | length }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content | int(7) }}{% endfor %}",
        LOOP + "{{ m.content[:3] }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content.parts }}{{ m.content._parts }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content.strip }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content.split() | length }}{% endfor %}",
        LOOP + "{% if m.content == 'a' %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if 'a' in m.content.lower() %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if m.content in ['a', 'b'] %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if m.content in m.content %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if {'a': 1}[m.content] %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if m.content is lower %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if m.content is sameas 'a' %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{% if m.content < 'a' %}b{% endif %}{{ m.content }}{% endfor %}",
        LOOP + "{{ '%s' % m.content }}{% endfor %}",
        LOOP + "{{ '{}'.format(m.content) }}{% endfor %}",
        LOOP + "{{ [m.content] | join }}{% endfor %}",
        LOOP + "{{ m.content }}{{ [m.content] | map('int') | list }}{% endfor %}",
        LOOP + "{{ m.content }}{{ [m.content] | unique | list | length }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m.content is sequence and m.content[0] == 'a' }}{% endfor %}",
        LOOP + "{{ m }}{% endfor %}",
        LOOP + "{{ m.content }}{{ m | tojson }}{% endfor %}",
        LOOP + "{% for key in m %}{{ key }}{% endfor %}{{ m.content }}{% endfor %}",
        LOOP + "{{ m.items() | list | length }}{{ m.content }}{% endfor %}",
        LOOP + "{{ m['values']() | list }}{% endfor %}",
        LOOP + "{{ loop.previtem }}{{ m.content }}{% endfor %}",
        LOOP + "{{ m.content }}{{ loop.changed(m.content) }}{{ loop.changed(m.content ~ 'a') }}{% endfor %}",
        LOOP + "{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}",
        LOOP + "{% set x = 'a' %}{% if 1 %}{% set x = m.content %}{% endif %}{% if x == 'a' %}b{% endif %}{{ x }}{% endfor %}",
        "{{ messages }}",
        "{{ messages | tojson }}",
        "{% set ns = namespace(c='') %}" + LOOP + "{% set ns.c = m.content %}{% endfor %}{{ ns.c }}{{ ns.c | length }}",
        "{% set ns = namespace(now=strftime_now) %}{{ ns.now('%s') }}{{ messages[0].content }}",
        "{{ strftime_now('%S') }}{{ messages[0].content }}",
        "{{ strftime_now('%d%%') }}{{ messages[0].content }}",
        "{{ lipsum(1) }}{{ messages[0].content }}",
        "{{ [1, 2, 3] | random }}{{ messages[0].content }}",
        "{% macro m(x) %}{{ x }}{{ x | length }}{% endmacro %}{{ m(messages[0].content) }}",
        "{% set x %}{{ messages[0].content }}{% endset %}{{ x }}{{ x | length }}",
        "{% filter upper %}{{ messages[0].content }}{% endfilter %}",
        "{{ messages[0].content }}{{ dict(a=messages[0]).a.content | length }}",
        "{{ messages[0].content }}{{ (messages[0].content + 'a').endswith('ba') }}",
        "{{ messages[0].content }}{{ 'b' in messages[0].content ~ 'a' }}",
        "{{ messages[0].content }}{{ messages[0].content.startswith('') }}",
        "no text at all",
    ],
)
def test_templates_that_look_at_texts_otherwise_are_always_run(source: str) -> None:
    template = template_of(source)
    chat = [{"role": role, "content": "a"} for role in ("system", "user", "assistant", "user")]
    assert renderer_of(template).quick(template, chat, True) is None


def test_a_template_with_a_time_limit_is_always_run() -> None:
    assert template_of(CHATML, timeout_s=1.0).skeletons is None


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma3", "llama3_1", "qwen3"])
def test_templates_of_models(tokenizer_folders: Path, name: str) -> None:
    folder = tokenizer_folders / name
    template = template_of(find_chat_templates(folder, json.loads((folder / "tokenizer_config.json").read_text()))["default"])
    renderer = renderer_of(template)
    words = ["Hello there", " a", "b\n", "", "</think>c", "<think>\nd\n</think>\n\ne", "<tool_response>f", "%s {g}"]
    quick_ones = 0
    for seed in range(300):
        choose = random.Random(seed)
        chat = ["user" if k % 2 == 0 else "assistant" for k in range(choose.randrange(1, 6))]
        roles = ["system"] * (seed % 2) + (chat if seed % 5 else choose.sample(chat, len(chat)))
        messages = [{"role": role, "content": choose.choice(words[: 1 + seed % len(words)])} for role in roles]
        quick = renderer.quick(template, messages, bool(seed % 3))
        if quick is not None:
            quick_ones += 1
            conversation = renderer.conversation(template, [dict(message) for message in messages], "m")
            assert quick == (conversation[-1], template.render(conversation, bool(seed % 3)))
    assert quick_ones > 60


def test_a_day_in_a_prompt_is_the_day_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    template = template_of("{{ strftime_now('%-d %b %Y') }} {{ messages[0].content }}")
    assert template.skeletons is not None
    form = template.skeletons._flow.form("u", True)
    assert form is not None
    assert form.fill(["a"]) == f"{datetime.now().strftime('%-d %b %Y')} a"
    assert not form.expired
    for begun, until in ((1, 2), (2**40, 2**41)):  # of another day: it is made anew
        past = Form(("past", 0), form.guards, begun, until)
        assert past.expired
        assert past.fill(["a"]) is None
        monkeypatch.setitem(template.skeletons._forms, "u+", past)
        assert template.skeletons.fill("u", ["a"], True) == form.fill(["a"])


def test_what_the_template_refuses_is_refused_each_time() -> None:
    refusal = "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    template = template_of(LOOP + refusal + "{{ m.content }}{% endfor %}")
    renderer = renderer_of(template)
    for _ in range(2):
        assert renderer.quick(template, [{"role": "system", "content": "a"}], True) is None
    assert renderer.quick(template, [{"role": "user", "content": "a"}], True) is not None


def test_a_line_for_billing_is_taken_out_elsewhere() -> None:
    template = template_of(CHATML)
    chat = [{"role": "system", "content": "x-anthropic-billing-header: 1\nBe nice."}]
    assert renderer_of(template).quick(template, chat, True) is None


def test_names_for_all_chats_need_the_template() -> None:
    template = template_of(CHATML)
    assert ChatRenderer(template, None, {}, "auto", {"a": 1}).quick(template, [{"role": "user", "content": "a"}], True) is None


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "MOST_SKELETONS", 2)
    template = ChatTemplate(CHATML, {})
    assert template.skeletons is not None
    made = [template.skeletons.fill("u" * n, ["a"] * n, True) is not None for n in range(1, 5)]
    assert made == [True, True, False, False]
    assert template.skeletons.fill("u", ["b"], True) is not None


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([{"role": "user", "content": "a"}], ("u", ["a"])),
        ([{"role": "system", "content": "a"}, {"content": "b", "role": "assistant"}], ("sa", ["a", "b"])),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], ("u", ["a"])),
        ([], ("", [])),
        ([{"role": "developer", "content": "a"}], None),
        ([{"role": "user", "content": "a", "name": "b"}], None),
        ([{"role": "user", "content": None}], None),
        ([{"role": "user", "text": "a"}], None),
        ([{"role": 1, "content": "a"}], None),
        ([{"role": "user", "content": []}], None),
        ([{"role": "user", "content": ["a"]}], None),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}], None),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], None),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], None),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "more": 1}]}], None),
        ([{"role": "user", "content": "a"}, "b"], None),
    ],
)
def test_chats_of_nothing_but_texts(messages: list[Any], found: tuple[str, list[str]] | None) -> None:
    assert plain_chat(messages) == found


@pytest.mark.parametrize(
    ("text", "passes"),
    [("a", True), ("", False), (" a", False), ("a\u2028", False), ("a!b", False), ("<a", False), ("a>", False), ("a<b", True)],
)
def test_guards(text: str, passes: bool) -> None:
    assert Guards(("!",), ("<",), (">",), True, True).pass_all(["x", text]) is passes
