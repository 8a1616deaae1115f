"""Chat templates: compiled and rendered as transformers does."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from fastfront.config import ContentFormat
from fastfront.errors import ApiError, SetupError
from fastfront.render.chat import ChatRenderer
from fastfront.render.lookup import find_chat_templates, read_chat_template
from fastfront.render.template import ChatTemplate, TemplateSyntaxError
from fastfront.render.tokenizer import load_tokenizer
from tests.unit.support import make_folder, write

HI = [{"role": "user", "content": "Hi"}]


def render(source: str, messages: list[dict[str, Any]] | None = None, **extra: Any) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"})
    return template.render(HI if messages is None else messages, True, template.accepted(extra))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}", "<s>HiTrue"),
        ("{% for m in messages %}\n    {{ m.role }}\n    {% endfor %}\nx", "    user\nx"),  # blocks trimmed both ways
        ("{{ {'a': '<&ü>', 'b': [1, none]} | tojson }}", '{"a": "<&ü>", "b": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ {'a': 1} | tojson(separators=(',', ':')) }}", '{"a":1}'),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hi!"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{{ dict(a=1) }}{{ dict.fromkeys('b') }}", "{'a': 1}{'b': None}"),
        ("{{ tools is none }}{{ documents is none }}{{ missing is defined }}", "TrueTrueFalse"),
        ("{{ messages[::-1][0]['content'] | upper | trim }}", "HI"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].content) }}", "[Hi]"),
    ],
)
def test_the_language(source: str, text: str) -> None:
    assert render(source) == text


def test_the_date_can_be_asked_for() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__ }}x{{ ''.__class__.__base__ }}",
        "{{ dict.__call__.__globals__ }}",
        "{% set ns = namespace(_a=1) %}",
        "{{ raise_exception('no') }}",
        "{{ range(10000000) | list }}",
        "{{ missing.field }}",
        "{{ 1 + 'a' }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_what_a_template_may_not_do_is_the_requests_failure(source: str) -> None:
    with pytest.raises(ApiError) as caught:
        render(source)
    assert caught.value.status == 400
    assert caught.value.message


def test_a_template_that_does_not_compile_says_so() -> None:
    with pytest.raises(TemplateSyntaxError, match="endfor"):
        ChatTemplate("{% for m in messages %}", {})


def test_variables_are_those_a_caller_can_set() -> None:
    template = ChatTemplate("{{ mood }}{{ messages }}{{ tools }}{% set x = 1 %}{{ x }}{{ add_generation_prompt }}", {})
    assert template.variables == {"mood", "add_generation_prompt"}
    assert template.accepted({"mood": 1, "messages": [], "y": 2}) == {"mood": 1}


def test_nothing_of_one_rendering_is_left_for_the_next() -> None:
    template = ChatTemplate("{{ a }}{{ b }}{{ tools }}", {"a": "1"})
    assert template.render(HI, True, {"a": "2", "b": "3"}, [{"t": 1}]) == "23[{'t': 1}]"
    assert template.render(HI, True) == "1None"


# --- continuing a message --------------------------------------------------------------------------------------------

PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}</s>{% endfor %}"
TRIMMING = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}"
PARTS = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %} {{ p.text }}{% endfor %}</s>{% endfor %}"


@pytest.mark.parametrize(
    ("source", "content", "end"),
    [
        (PLAIN, "There are ", "[assistant] There are "),
        (TRIMMING, "There are ", "[assistant] There are"),
        (PLAIN, "", "[assistant] "),
        (PARTS, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "[assistant] a b"),
    ],
)
def test_the_prompt_ends_where_the_last_message_does(source: str, content: Any, end: str) -> None:
    first = [{"type": "text", "text": "Hi"}] if source is PARTS else "Hi"
    messages = [{"role": "user", "content": first}, {"role": "assistant", "content": content}]
    assert ChatTemplate(source, {}).render_continued(messages) == f"[user] Hi</s>{end}"
    assert messages[-1]["content"] == content


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (PLAIN, []),
        (PLAIN, [{"role": "user"}]),
        (PARTS, [{"role": "user", "content": [{"type": "image"}]}]),
        ("nothing of it", HI),
        ("{{ messages[0].content[:1] }}", HI),
    ],
)
def test_what_cannot_be_continued(source: str, messages: list[dict[str, Any]]) -> None:
    with pytest.raises(ApiError, match="continue_final_message"):
        ChatTemplate(source, {}).render_continued(messages)


# --- content format --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "string"),
        ("{% for m in messages %}{% for p in m['content'] %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages[1:] %}{% for p in m.content | list %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% set all = messages %}{% for m in all %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% set a = messages %}{% set b = a[1:] %}{% for m in b %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for t in m.tool_calls %}{{ t }}{% endfor %}{% endfor %}", "string"),
        ("{% for p in messages[0].content %}{% endfor %}", "string"),
        ("{% for m in others %}{% for p in m.content %}{% endfor %}{% endfor %}", "string"),
        ("{% set messages = messages %}{{ messages }}", "string"),
    ],
)
def test_content_format(source: str, expected: str) -> None:
    assert ChatTemplate(source, {}).content_format == expected


@pytest.mark.parametrize("given", ["string", "openai"])
def test_a_given_content_format_is_not_looked_for(given: ContentFormat) -> None:
    assert ChatTemplate("{{ messages }}", {}, given).content_format == given


# --- where templates come from ---------------------------------------------------------------------------------------


def test_files_come_before_the_tokenizer_configuration(tmp_path: Path) -> None:
    assert find_chat_templates(tmp_path, {}) == {}
    config = {"chat_template": "config"}
    assert find_chat_templates(tmp_path, config) == {"default": "config"}
    write(tmp_path / "chat_template.json", chat_template="json")
    assert find_chat_templates(tmp_path, config) == {"default": "json"}
    (tmp_path / "chat_template.jinja").write_text("jinja")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert find_chat_templates(tmp_path, config) == {"default": "jinja", "tool_use": "tools"}
    (tmp_path / "chat_template.json").write_text("[")
    with pytest.raises(SetupError, match=r"chat_template\.json"):
        find_chat_templates(tmp_path, config)


def test_several_templates_in_the_tokenizer_configuration(tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert find_chat_templates(tmp_path, {"chat_template": listed}) == {"default": "a", "tool_use": "b"}
    broken: list[Any] = [5, {}, {"name": 5, "template": "a"}, {"name": "b", "template": 6}]
    assert find_chat_templates(tmp_path, {"chat_template": broken}) == {}
    assert find_chat_templates(tmp_path, {"chat_template": {"default": "c"}}) == {"default": "c"}


def test_the_flag_takes_a_file_or_a_template(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("{{ messages }}\n")
    assert read_chat_template(str(path)) == "{{ messages }}\n"
    assert read_chat_template("{{ bos_token }}") == "{{ bos_token }}"
    assert read_chat_template("x" * 5000 + "{{ a }}").startswith("xx")
    with pytest.raises(SetupError, match="--chat-template"):
        read_chat_template(str(tmp_path / "none.jinja"))


def test_a_given_template_serves_tools_too_and_a_broken_one_stops_the_start(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(make_folder(tmp_path))
    renderer = ChatRenderer.build(tmp_path, tokenizer, "{{ bos_token }}", "auto", {})
    assert renderer.template_for(True, None) is renderer.template_for(False, None) is renderer.default
    with pytest.raises(SetupError, match="does not compile"):
        ChatRenderer.build(tmp_path, tokenizer, "{% if %}", "auto", {})


def test_templates_of_requests_are_kept_but_not_for_ever(tmp_path: Path) -> None:
    renderer = ChatRenderer.build(tmp_path, load_tokenizer(make_folder(tmp_path)), None, "auto", {})
    first = renderer.template_for(False, "{{ 0 }}")
    assert renderer.template_for(False, "{{ 0 }}") is first
    for i in range(1, 40):
        renderer.template_for(False, f"{{{{ {i} }}}}")
    assert renderer.template_for(False, "{{ 0 }}") is not first


# --- real templates; expected texts are what transformers renders ----------------------------------------------------

CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Bye"},
]
REAL = {
    "qwen3": "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
    "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "gemma3": "<bos><start_of_turn>user\nBe short.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "llama3_1": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe short.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "deepseek_v3": "<｜begin▁of▁sentence｜>Be short.<｜User｜>Hi<｜Assistant｜>Hello!<｜end▁of▁sentence｜><｜User｜>Bye"
    "<｜Assistant｜>",
}


@pytest.mark.parametrize("name", REAL)
def test_real_templates(tokenizer_folders: Path, name: str) -> None:
    tokenizer = load_tokenizer(tokenizer_folders / name)
    renderer = ChatRenderer.build(tokenizer_folders / name, tokenizer, None, "auto", {})
    template = renderer.template_for(False, None)
    assert template.render(renderer.conversation(template, [dict(m) for m in CHAT], "m"), True) == REAL[name]


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set _fastfront_deadline = 1e30 %}{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for a in [1] recursive %}{% for b in range(99999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_of_a_request_has_a_time_limit(source: str) -> None:
    template = ChatTemplate(source, {}, timeout_s=0.05)
    started = time.monotonic()
    with pytest.raises(ApiError, match=r"rendering timed out after 0\.05s") as refused:
        template.render([{"role": "user", "content": "Hi"}], True, {"_fastfront_deadline": 1e30})
    assert time.monotonic() - started < 30
    assert (refused.value.status, refused.value.kind) == (500, "InternalServerError")


def test_the_time_limit_changes_no_text(tokenizer_folders: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hey"}]
    for name in ("llama3_1", "qwen3"):
        for source in find_chat_templates(tokenizer_folders / name, load_tokenizer(tokenizer_folders / name).config).values():
            free, limited = (ChatTemplate(source, {"bos_token": "<s>"}, timeout_s=limit) for limit in (None, 60))
            assert free.render(messages, True) == limited.render(messages, True)
            assert (free.variables, free.content_format) == (limited.variables, limited.content_format)


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", False),
        ("{% for m in messages %}{{ raise_exception('no') if m.role == 'system' and not loop.first }}{% endfor %}", True),
    ],
)
def test_whether_system_messages_must_come_first(tmp_path: Path, source: str, first: bool) -> None:
    folder = make_folder(tmp_path, chat_template=source)
    assert ChatRenderer.build(folder, load_tokenizer(folder), None, "auto", {}).system_comes_first() is first


@pytest.mark.parametrize(
    ("source", "effort"),
    [
        ("{{ messages[0].content }}", "low"),
        ("{{ messages[0].content }}{% if not enable_thinking %}<think></think>{% endif %}", "none"),
        ("{{ reasoning_effort }}", "none"),
        ("{{ {'low': 'a', 'none': 'b'}.get(reasoning_effort, 'b') }}", "low"),
        ("{{ raise_exception('no') if reasoning_effort == 'none' }}", "low"),
    ],
)
def test_the_least_effort_that_a_template_knows(tmp_path: Path, source: str, effort: str) -> None:
    folder = make_folder(tmp_path, chat_template=source)
    assert ChatRenderer.build(folder, load_tokenizer(folder), None, "auto", {}).no_effort() == effort
