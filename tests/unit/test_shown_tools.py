"""Tools kept as templates see them, and the short ways of the templates' sandbox: the same results as without."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from jinja2 import Undefined
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fastfront.render.jinja import chat_environment
from fastfront.render.shown_tools import ShownTool, ShownTools


def tool(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "é": [1, 1.5, True, None]}, **more}}


SHOWN = {
    "type": "function",
    "function": {"name": "f", "description": None, "parameters": {"type": "object", "é": [1, 1.5, True, None]}},
}


def test_tools_are_shown_with_what_templates_know() -> None:
    tools = ShownTools()
    assert tools.shown([tool()]) == [SHOWN]
    assert tools.shown([tool(strict=True)])[0]["function"]["strict"] is True
    assert tools.shown([{**tool(), "defer_loading": True}])[0]["function"]["defer_loading"] is True
    assert "defer_loading" not in tools.shown([tool()])[0]["function"]


def test_equal_tools_are_kept_and_others_told_apart() -> None:
    tools = ShownTools()
    assert tools.shown([tool()]) is tools.shown([tool()])
    for number in (0, False, 0.0, "0", None):
        assert json.dumps(tools.shown([tool(parameters={"default": number})])[0]["function"]["parameters"]) == json.dumps(
            {"default": number}
        )


def test_too_many_are_forgotten_and_large_ones_not_kept() -> None:
    tools = ShownTools(most_bytes=4000)
    first = tools.shown([tool("a")])
    assert tools.shown([tool("a")]) is first
    for k in range(100):
        tools.shown([tool(f"b{k}")])
    assert tools.shown([tool("a")]) is not first
    assert tools.shown([tool("x" * 4000)]) is not tools.shown([tool("x" * 4000)])
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    assert tools.shown([tool(parameters={"a": deep})])[0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    "expression",
    [
        "tool | tojson",
        "tool | tojson(indent=2)",
        "tool | tojson(ensure_ascii=True)",
        "tool | tojson(separators=(',', ':'))",
        "tools | tojson",
        "tool.function | tojson",
        "tool | tojson(sort_keys=True)",
        "tool",
        "tool is mapping",
        "tool.function.name",
        "tool['function']['name']",
        "tool.type.upper()",
        "tool.missing is defined",
        "tool._texts is defined",
        "tool.items() | list",
        "tool.get('type')",
        "tool | length",
    ],
)
def test_templates_see_what_plain_dicts_are(expression: str) -> None:
    template = chat_environment().from_string("{% for tool in tools %}{{ " + expression + " }}{% endfor %}")
    kept = ShownTools().shown([tool("f"), tool("g")])
    plain = json.loads(json.dumps(kept))
    for _ in range(2):
        assert template.render(tools=kept) == template.render(tools=plain)


@pytest.mark.parametrize(
    "change", ["tool.update({'a': 1})", "tool.clear()", "tool.pop('type')", "tool.function.update({})", "tools.append(1)"]
)
def test_templates_cannot_change_them(change: str) -> None:
    kept = ShownTools().shown([tool()])
    with pytest.raises(SecurityError):
        chat_environment().from_string("{% for tool in tools %}{{ " + change + " }}{% endfor %}").render(tools=kept)
    assert kept == [SHOWN]


OBJECTS: list[Any] = [
    {},
    {"a": 1, "items": 2, "_b": 3, "__class__": 4, "format": 5},
    ShownTool({"a": 1}),
    "text",
    "",
    [],
    [1],
    5,
    None,
    (1,),
]


@pytest.mark.parametrize("value", OBJECTS)
def test_attributes_are_those_of_the_sandbox(value: Any) -> None:
    ours, theirs = chat_environment(), ImmutableSandboxedEnvironment()
    for name in {*dir(value), *dir(dict), *dir(str), "a", "_b", "missing", "__missing__", "_texts"}:
        if isinstance(value, ShownTool) and name in vars(ShownTool):
            continue  # of the class, not of the tool
        found, expected = ours.getattr(value, name), theirs.getattr(value, name)
        assert type(found) is type(expected)
        if isinstance(expected, Undefined):
            assert found._undefined_message == expected._undefined_message
        elif not callable(expected):
            assert found == expected
        else:
            assert getattr(found, "__name__", "") == getattr(expected, "__name__", "")


def test_threads_share_them() -> None:
    tools = ShownTools(most_bytes=2000)
    start = threading.Barrier(4)
    wrong: list[object] = []

    def work() -> None:
        start.wait()
        for k in range(500):
            (found,) = tools.shown([tool(f"n{k % 20}")])
            if found["function"]["name"] != f"n{k % 20}" or json.loads(found.as_json(False, None, None, False)) != found:
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
