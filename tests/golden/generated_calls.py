"""Outputs with tool calls and reasoning for differ.py: texts that the echoing engine sends back, and requests around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.golden.compare import Json
from tests.golden.generated_markup import ODDER
from tests.golden.generated_thinking import thinking_requests

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"}, "opts": {"type": "object"},
                "tags": {"type": "array", "items": {"type": "string"}}, "ratio": {"type": "number"}, "any": {},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "kind": {"type": "string", "enum": ["a", "b"]},
            },
            "required": ["city"],
        },
    },
}  # fmt: skip
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, NOW]

_JSON = '{"name": "get_weather", "%s": {"city": "Paris", "days": 3}}'
_ODD_JSON = '{"name": "get_weather", "%s": {"city": "Saint-\\"Denis\\" \\u00e9 é 日本 👩‍👧", "opts": {"a": {"b": [1, 2.50, -3e5, null, true]}}, "tags": ["x", "<y>", "}"]}}'
_COMMON = ["Just text.", "", " ", "\n\n", "Three.\n", "{}", "[]", "null", "5", '{"a": 1}', "é 日本 👩‍👧 text", "a < b > c", "</tool_call>", "<tool_call>", "[get", "{"]


def _hermes() -> list[str]:
    one, odd = _JSON % "arguments", _ODD_JSON % "arguments"
    now, bad = '{"name": "now", "arguments": {}}', '{"name": "get_weather", "arguments": {"city": Paris}}'
    call = "<tool_call>\n%s\n</tool_call>"
    return [
        call % one, call % odd, call % now, "<tool_call>" + now + "</tool_call>", call % one + "\n" + call % now, call % one + call % one + call % now,
        "Let me look.\n" + call % one, "Let me look. \n\n" + call % one + "\nDone.\n" + call % now + " End.", call % bad, call % bad + "\n" + call % now,
        call % "nonsense", call % "", call % '{"name": "now"}', call % '{"arguments": {}}', call % '{"name": "now", "arguments": null}', call % '{"name": "now", "arguments": []}',
        call % '{"name": "now", "arguments": "x"}', call % '{"name": "now", "arguments": {"a": "b"}, "extra": 1}', call % '{"name": "now", "parameters": {"a": 1}}',
        call % ("[" + one + "]"), call % (one + "\n" + now), "<tool_call>\n" + one, "<tool_call>\n" + one[:-1], "<tool_call>\n" + one[:20], "<tool_call>\n" + one + "\n</tool_", one, "[" + one + "]",
        call % '{"name":   "now" ,  "arguments":   { "a" :  1 } }', call % '{"name": "", "arguments": {}}', call % '{"name": 5, "arguments": {}}', call % "{'name': 'now', 'arguments': {}}",
        "<tool_call>" + call % now, call % now + "</tool_call>", "text <tool_call> text", "```json\n" + one + "\n```",
        call % '{"name": "get_weather", "arguments": {"city": "a</tool_call>b"}}', call % '{"name": "get_weather", "arguments": {"city": "line\\nbreak\\ttab"}}', "<TOOL_CALL>" + now,
        call % '{"name": "get_weather", "arguments": {"days": 3.0, "ratio": 1e400}}', call % '{"name": "now", "arguments": {}}\n\n', "  " + call % now, call % now + "   \n",
        call % '{"name": "now", "arguments": {"a": 1,}}', call % now + call % bad, call % '{"name": "now", "arguments": {}, "x": 1{}', call % '{"arguments": {"a": 1}, "name": "now"}', now + call % now, "<tool_call>" * 2,
    ]  # fmt: skip


def _coder() -> list[str]:
    def call(name: str, *pairs: tuple[str, str]) -> str:
        return f"<tool_call>\n<function={name}>\n" + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs) + "</function>\n</tool_call>"

    paris = call("get_weather", ("city", "Paris"), ("days", "3"))
    return [
        paris, call("now"), paris + "\n" + call("now"), "Let me look.\n" + paris, "Let me look.\n\n" + paris + "\nDone.\n" + call("now") + " End.",
        call("get_weather", ("city", "12"), ("days", "x"), ("metric", "True"), ("opts", '{"a": [1]}'), ("tags", '["x", "y"]'), ("ratio", "2.5"), ("any", "5"), ("either", "null"), ("kind", "a")),
        call("get_weather", ("city", "null"), ("days", "null"), ("metric", "maybe"), ("opts", "{'a': None}"), ("tags", "x, y"), ("ratio", "nan"), ("any", "true"), ("either", "7")),
        call("get_weather", ("city", "line one\nline two <b>&amp; \"q\" \\n é 日本 👩‍👧"), ("days", " 5 ")), call("get_weather", ("city", "")), call("get_weather", ("unknown", "x")),
        call("zzz", ("a", "1")), call("bare", ("a", "1"), ("b", "true")), call(""), "<tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter></function></tool_call>",
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>", "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n",
        "<tool_call>\n<function=get_weather>\n", "<tool_call>\n<func", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\nnonsense\n</tool_call>", "<tool_call></tool_call>", call("get_weather", ("city", "a</parameter>b")), call("get_weather", ("city", "Paris"), ("city", "Rome")), "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>" * 2,
        call("get_weather", ("opts", '{"a": ')), call("get_weather", ("days", "-3"), ("ratio", "3")), call("get_weather", ("days", "3.0"), ("ratio", "1e3")), call("get_weather", ("city", "  padded  ")), call("get_weather", ("city", "\n\nParis\n\n")),
    ]  # fmt: skip


def _llama() -> list[str]:
    one, odd, other = _JSON % "parameters", _ODD_JSON % "parameters", _JSON % "arguments"
    now = '{"name": "now", "parameters": {}}'
    return [
        one, odd, other, now, "<|python_tag|>" + one, one + "; " + now, one + ";" + now, one + "\n" + now, "Sure: " + one, one + " Done.", "  " + one, one + "\n", "[" + one + "]", "[" + one + ", " + now + "]",
        '{"name": "now"}', '{"parameters": {}}', '{"name": "now", "parameters": null}', '{"name": "now", "parameters": "x"}', '{"name": "now", "parameters": []}', one[:-1], one[:20], one[:30], '{"name": "get_w',
        '{"name": 5, "parameters": {}}', '{"type": "function", "function": {"name": "now", "parameters": {}}}', '{"name": "now", "parameters": {"a": "b"}, "extra": 1}', "```json\n" + one + "\n```", "<|python_tag|>Just text.",
        "<|python_tag|>" + one + "; " + now, one + ", " + now, '{"parameters": {"city": "Rome"}, "name": "get_weather"}', "{" + one + "}", '{"name": "now", "parameters": {}} {', '{ "name" : "now" , "parameters" : { "a" : 1 } }',
        '{"name": "zzz", "parameters": {}}', '{"name": "get_weather", "parameters": {"city": "a}b{c"}}', '{"name": "now", "parameters": {}, "arguments": {"a": 1}}', one + "; " + one + "; " + now,
        one + one, one + " and " + one, '{"name": "now", "parameters": {"a": }}', now + "\n\n" + one, "Text {braces} " + one, '{"name": "now", "parameters": {"a": "\\ud83d"}}',
    ]  # fmt: skip


def _pythonic() -> list[str]:
    return [
        "[get_weather(city='Paris', days=3)]", "[get_weather(city='Paris'), now()]", "[now()]", "[]", "[now(), now(), now()]", "get_weather(city='Paris')", "Sure: [now()]", "[now()] done", " [now()]", "[now()]\n",
        "[get_weather(city=\"a'b\", metric=True, opts={'a': [1, None]}, tags=['x'], ratio=-2.5)]", "[get_weather('Paris')]", "[get_weather(city=Paris)]", "[get_weather(city='Paris', days=1+2)]", "[get_weather(city='Par", "[get_weather(city=",
        "[get_weather(", "[get_weather", "[now(", "[now()", "[now(),", "[now(), get_weather(city='x'", "[a.b(c=1)]", "[get_weather(opts={'a': {'b': (1, 2)}})]", "[get_weather(city='é 日本 👩‍👧 \\n \"q\"')]", "[get_weather(tags=[])]",
        "[get_weather(opts={})]", "[get_weather(city='a]b')]", "[get_weather(city='a', city='b')]", "[zzz(a=1)]", "[1, 2]", "['x']", "[x]", "[get_weather(days=-3, metric=False, any=None)]", "[get_weather(**{'a': 1})]", "[f(a=b'x')]",
        "[get_weather(city='Paris',\n days=3)]", "[ now( ) ]", "[get_weather(city='Paris'); now()]", "[get_weather(days=1_000, ratio=1e3)]", "[get_weather(city='''x''')]", "[get_weather(city='a' 'b')]", "[get_weather(any={1, 2})]",
        "[now()]\n[now()]", "[now()]\nDone.", "[now( )]", "[get_weather( city = 'Paris' , days = 3 )]", "[ get_weather(city='Paris') ]", "[get_weather(city='Paris',)]", "[now()]; now()", "[get_weather(city='a', 'b')]", "[now()][now()]",
    ]  # fmt: skip


def _mistral() -> list[str]:
    one, odd = _JSON % "arguments", _ODD_JSON % "arguments"
    now = '{"name": "now", "arguments": {}}'
    mark = "[TOOL_CALLS]"
    return [
        f"{mark}[{one}]", f"{mark}[{one}, {now}]", f"{mark} [{odd}]", f"{mark}[{now}]", f"Sure. {mark}[{now}]", f"{mark}[{now}] Done.", f'{mark}get_weather{{"city": "Paris", "days": 3}}', f'{mark}now{{}}', f'{mark}now{{}}{mark}get_weather{{"city": "x"}}',
        f'{mark}get_weather[ARGS]{{"city": "Paris"}}', f'{mark}get_weather[ARGS]{{"city": "Paris"}}{mark}now[ARGS]{{}}', f"Text {mark}now{{}}", f"{mark}", f"{mark}[", f"{mark}[{one[:30]}", f"{mark}nonsense", f"{mark}[]", f'{mark}get_weather{{"city": "Par', f"{mark}get_wea",
        f'{mark}{now}', f'{mark}[{{"name": "now"}}]', f'{mark}[{{"arguments": {{}}}}]', f'{mark}[{{"name": "now", "arguments": "x"}}]', f'{mark} get_weather {{"city": "Paris"}}', f'{mark}[{now}]{mark}[{now}]', f'{mark}get_weather{{"city": "a{{b}}c é 日本"}}', one, f"[{one}]",
        f"{mark}now{{a: b}} c", f'{mark}get_weather[ARGS]{{"city": "Paris"}} Done.', f"{mark}now[ARGS]", f"{mark}now[ARGS]5", f'{mark}now[ARGS]{{"a": 1{mark}now[ARGS]{{}}', f"{mark}now{mark}now{{}}", f"  {mark}now{{}}  ", f'{mark}get_weather\n{{"city":\n"x"}}\n',
    ]  # fmt: skip


def _kimi() -> list[str]:
    def call(name: str, arguments: str) -> str:
        return f"<|tool_call_begin|>{name}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"

    begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    paris, now = call("functions.get_weather:0", '{"city": "Paris", "days": 3}'), call("functions.now:1", "{}")
    return [
        begin + paris + end, begin + paris + now + end, "Sure. " + begin + paris + end, begin + paris + end + " Done.", begin + paris, begin + paris[:-10], begin + "<|tool_call_begin|>functions.get_wea", begin + "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"ci",
        begin, begin + end, begin + call("get_weather:0", "{}") + end, begin + call("functions.now", "{}") + end, begin + call("now", "{}") + end, begin + call("functions.a.b:7", "{}") + end, begin + call("functions.now:0", "nonsense") + end, begin + call("functions.now:0", "") + end,
        begin + call(" functions.now:0 ", ' {"a": 1} ') + end, begin + "text" + paris + "text" + now + end, paris, begin + paris + end + begin + now + end, begin + call("functions.zzz:0", "{}") + end, begin + call("functions.get_weather:0", '{"city": "é 日本 👩‍👧 \\"q\\""}') + end,
        begin + "\n" + paris + "\n" + now + "\n" + end, "Sure.\n\n" + begin + paris + end, begin + call("functions.now:0", "{}") + call("functions.now:0", "{}") + end,
    ]  # fmt: skip


def _glm() -> list[str]:
    def call(name: str, *pairs: tuple[str, str]) -> str:
        return f"<tool_call>{name}\n" + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs) + "</tool_call>"

    paris = call("get_weather", ("city", "Paris"), ("days", "3"))
    return [
        paris, call("now"), "<tool_call>now</tool_call>", paris + "\n" + call("now"), "Sure.\n" + paris, paris + "\nDone.", call("get_weather", ("city", "12"), ("days", "x"), ("metric", "true"), ("opts", '{"a": [1]}'), ("tags", '["x"]'), ("ratio", "2.5"), ("any", "5"), ("either", "null")),
        call("get_weather", ("city", "line\nbreak <b> é 日本 👩‍👧 \"q\""),), call("get_weather", ("city", "")), call("get_weather", ("unknown", "x")), call("zzz", ("a", "1")), call("bare", ("a", "1"), ("b", "true")), "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par",
        "<tool_call>get_weather\n<arg_key>ci", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n", "<tool_call>get_wea", "<tool_call>", "<tool_call></tool_call>", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        call("get_weather", ("city", "  padded  "), ("days", " 5 ")), call("get_weather", ("city", "Paris"), ("city", "Rome")), call("get_weather", ("opts", "{'a': None}"), ("metric", "True")), "<tool_call>get_weather\n<arg_key>city</arg_key>\n</tool_call>", "text <arg_key>x</arg_key>",
        call("get_weather", ("days", "3.0"), ("ratio", "3")), paris + paris, "  " + paris, paris + "  \n",
    ]  # fmt: skip


def _deepseek() -> list[str]:
    def call(name: str, arguments: str) -> str:
        return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"

    begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    paris, now = call("get_weather", '{"city": "Paris", "days": 3}'), call("now", "{}")
    return [
        begin + paris + end, begin + paris + "\n" + now + end, begin + paris + now + end, "Sure. " + begin + paris + end, begin + paris + end + " Done.", begin + paris, begin + paris[:-12], begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_wea", begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"ci",
        begin, begin + end, begin + call("now", "nonsense") + end, begin + call("now", "") + end, begin + call("zzz", "{}") + end, paris, begin + "<｜tool▁call▁begin｜>now<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>" + end, begin + call("get_weather", '{"city": "é 日本 👩‍👧 \\"q\\"", "opts": {"a": [1]}}') + end,
        begin + call("get_weather", '{\n  "city": "Paris"\n}') + end, begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n{}<｜tool▁call▁end｜>" + end, begin + paris + end + begin + now + end, "Sure.\n\n" + begin + now + end,
    ]  # fmt: skip


def _granite() -> list[str]:
    one, odd = _JSON % "arguments", _ODD_JSON % "arguments"
    now = '{"name": "now", "arguments": {}}'
    return [
        f"<|tool_call|>[{one}]", f"<|tool_call|> [{one}, {now}]", f"[{one}]", f"<|tool_call|>[{odd}]", f"<|tool_call|>{one}", f"Sure. <|tool_call|>[{now}]", f"<|tool_call|>[{now}] Done.", "<|tool_call|>", "<|tool_call|>[", f"<|tool_call|>[{one[:30]}", "<|tool_call|>[]", f"[{now}]",
        f"<|tool_call|>[{one},", '<|tool_call|>[{"name": "now"}]', '<|tool_call|>[{"arguments": {}}]', '<|tool_call|>[{"name": "now", "arguments": "x"}]', "<|tool_call|>nonsense", f"<tool_call>[{now}]", f"  <|tool_call|>[{now}]", f"<|tool_call|>[{now}]\n",
        '<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "x"}}]',
    ]  # fmt: skip


CALLS = {
    "hermes": _hermes, "qwen3_coder": _coder, "qwen3_xml": _coder, "llama3_json": _llama, "pythonic": _pythonic, "mistral": _mistral,
    "kimi_k2": _kimi, "glm45": _glm, "deepseek_v3": _deepseek, "granite": _granite,
}  # fmt: skip
_THINK = ("<think>", "</think>")
THOUGHTS = {"hermes": _THINK, "kimi_k2": _THINK, "glm45": _THINK, "deepseek_v3": _THINK}


def thoughts(server: str) -> list[str]:
    if server == "granite":
        head, middle = "Here is my thought process:", "Here is my response:"
        return [
            f"{head} hm. {middle} Three.", f"{head} hm.", f"{head} hm. {middle}", f"{middle} Three.", f"{head}\nhm\n{middle}\nThree.", f"{head} {middle} Three.", "Here is my thought", "Here's my thought process: hm. Here's my response: Three.",
            f"text {head} hm. {middle} Three.", f"{head} a {middle} b {middle} c", f"{head} hm. {middle} <|tool_call|>[" + '{"name": "now", "arguments": {}}]', "Here is", "Here is a list.", f"{head}hm{middle}Three.",
        ]  # fmt: skip
    if server not in THOUGHTS:
        return []
    begin, end = THOUGHTS[server]
    calls = CALLS[server]()
    return [
        f"{begin}hm{end}Three.", f"{begin}\nhm\n{end}\n\nThree.", f"hm{end}Three.", f"{begin}hm", "hm", f"{begin}{end}Three.", f"{begin}\n\n{end}\n\nThree.", f"{end}Three.", f"{begin}hm{end}", f"{begin}hm{end}\n", f"{begin}hm {begin} hm{end}Three.", f"{begin}hm{end}Three {end} four.",
        f"{begin}hm{end}Three.{begin}again{end}Four.", f"text {begin}hm{end}Three.", f"\n{begin}hm{end}Three.", f"{begin}hm</thi", f"{begin}é 日本 👩‍👧{end}é 日本 👩‍👧", begin, end, f"{begin}hm{end} ", f"{begin}a < b{end}c < d", f"{begin}hm{end}{calls[0]}", f"{begin}hm{end}\n\n{calls[0]}",
        f"{begin}hm {calls[0]}{end}Three.", f"{begin}hm {calls[0]}", f"hm{end}{calls[0]}", f"{begin}hm{end}Sure. {calls[0]}", calls[0],
    ]  # fmt: skip


def call_requests(server: str) -> Iterator[Json]:
    """Chats whose answers are these texts, with every kind of tool choice, alone and in streams."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    ways: dict[str, dict[str, Any]] = {"auto": {"tools": TOOLS}, "off": {}}
    for number, text in enumerate([*CALLS[server](), *_COMMON]):
        for way, fields in ways.items():
            yield from _both(server, f"call-{number}-{way}", text, fields)
    for number, text in enumerate(ODDER[server]() if server in ODDER else ()):
        for way, fields in {**ways, "none": {"tools": TOOLS, "tool_choice": "none"}}.items():
            yield from _both(server, f"odd-{number}-{way}", text, fields)
    more: dict[str, dict[str, Any]] = {
        "none": {"tools": TOOLS, "tool_choice": "none"},
        "single": {"tools": TOOLS, "parallel_tool_calls": False},
        "length": {"tools": TOOLS, "max_tokens": 14},
        "stop": {"tools": TOOLS, "stop": ["days"]},
        "two": {"tools": TOOLS, "n": 2, "temperature": 1},
        "ids": {"tools": TOOLS, "return_token_ids": True},
        "logprobs": {"tools": TOOLS, "logprobs": True, "top_logprobs": 1},
        "usage": {"tools": TOOLS, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        "null": {"tools": TOOLS, "tool_choice": None},
        "bare": {"tools": [NOW]},
        "special": {"tools": TOOLS, "skip_special_tokens": False},
        "hidden": {"tools": TOOLS, "skip_special_tokens": True},
        "echo": {"tools": TOOLS, "echo": True, "add_generation_prompt": False},
        "format": {"tools": TOOLS, "response_format": {"type": "json_object"}},
    }
    for number, text in enumerate(CALLS[server]()[:8]):
        for way, fields in more.items():
            yield from _both(server, f"way-{number}-{way}", text, fields)
    forced = [
        '{"city": "Paris", "days": 3}', '[{"name": "get_weather", "parameters": {"city": "Paris"}}]', '[{"name": "now", "parameters": {}}, {"name": "get_weather", "parameters": {"city": "x"}}]', "[]", "{}", "Hello", "", '{"city": "Par', '[{"name": "get_weather", "parameters": {"ci',
        '[{"name": "now"}]', '[{"parameters": {}}]', '[{"name": "now", "arguments": {}}]', '  {"city": "x"}  ', "null", '{"name": "now", "parameters": {}}', '{"city": "é 日本 \\"q\\""}', "5", '[{"name": "now", "parameters": "x"}]', *CALLS[server]()[:3],
    ]  # fmt: skip
    for number, text in enumerate(forced):
        for way, choice in (("required", "required"), ("named", named), ("requiredsingle", "required")):
            fields = {"tools": TOOLS, "tool_choice": choice, **({"parallel_tool_calls": False} if "single" in way else {})}
            yield from _both(server, f"forced-{number}-{way}", text, fields)
    for number, text in enumerate(thoughts(server)):
        for way, fields in {
            "plain": {}, "tools": {"tools": TOOLS}, "hidden": {"include_reasoning": False}, "off": {"chat_template_kwargs": {"enable_thinking": False}}, "ids": {"return_token_ids": True, "logprobs": True},
            "usage": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, "short": {"max_tokens": 4}, "effort": {"reasoning_effort": "none"}, "required": {"tools": TOOLS, "tool_choice": "required"}, "format": {"response_format": {"type": "json_object"}},
            "hiddentools": {"include_reasoning": False, "tools": TOOLS, "logprobs": True, "return_token_ids": True}, "prompt": {"prompt_logprobs": 1},
        }.items():  # fmt: skip
            yield from _both(server, f"think-{number}-{way}", text, fields)
    texts = [*CALLS[server]()[:6], *thoughts(server)[:10], "Just text."]
    for number, text in enumerate(texts):
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        for way, fields in {"plain": {}, "tools": {"tools": tools}, "required": {"tools": tools, "tool_choice": "required"}, "short": {"max_output_tokens": 4}}.items():
            for stream in (False, True):
                body = {"model": "m", "input": text, "max_output_tokens": 400, "temperature": 0, "store": False, **fields, **({"stream": True} if stream else {})}
                yield {"id": f"{server}-resp-{number}-{way}{'-stream' if stream else ''}", "method": "POST", "path": "/v1/responses", "json": body}
        schemas = [{"name": tool["function"]["name"], "input_schema": tool["function"].get("parameters", {"type": "object"})} for tool in TOOLS]
        for way, fields in {"plain": {}, "tools": {"tools": schemas}, "any": {"tools": schemas, "tool_choice": {"type": "any"}}, "short": {"max_tokens": 4}, "thinking": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}}.items():
            for stream in (False, True):
                body = {"model": "m", "messages": [{"role": "user", "content": text or "x"}], "max_tokens": 400, "temperature": 0, **fields, **({"stream": True} if stream else {})}
                yield {"id": f"{server}-msg-{number}-{way}{'-stream' if stream else ''}", "method": "POST", "path": "/v1/messages", "json": body}
    if thoughts(server):
        yield from thinking_requests(server, [*thoughts(server), CALLS[server]()[0], "Just text."], tools, schemas)


def _both(server: str, name: str, text: str, fields: dict[str, Any]) -> Iterator[Json]:
    for stream in (False, True):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 400, "temperature": 0, **fields}
        if stream:
            body["stream"] = True
        elif "stream_options" in fields:
            continue
        if stream and fields.get("prompt_logprobs"):
            continue
        yield {"id": f"{server}-{name}{'-stream' if stream else ''}", "method": "POST", "path": "/v1/chat/completions", "json": body}
