"""Odder outputs for parsers whose calls are markup: what models write when they do not quite keep to their format."""

from __future__ import annotations


def kimi() -> list[str]:
    begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    call, argue, done = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
    weather, now = f"{call}functions.get_weather:0{argue}", f"{call}functions.now:1{argue}{{}}{done}"
    return [
        f'{begin}{weather}{{"days": "3", "metric": "true", "city": 5}}{done}{end}',
        f'{begin}{weather}{{"opts": "{{\\"a\\": 1}}", "tags": "[\\"x\\"]", "ratio": "2.50", "any": 5, "either": "null"}}{done}{end}',
        f"{begin}{weather}[1]{done}{end}", f"{begin}{weather}null{done}{end}", f"{begin}{weather}5{done}{end}",
        f'{begin}{weather}{{\n  "city": "Paris",\n  "days": 3\n}}\n{done}{end}', f'{begin}{weather}{{"city":"\\u00e9","days":3.0}}{done}{end}',
        f"{begin}{call}functions.get_weather:0\n{argue}{{}}{done}{end}", f"{begin}{call}functions.get_weather:0{done}{end}",
        f'{begin}{weather}{{"city": "a"}}{end}', f'{begin}{weather}{{"city": "a"}}{end}{begin}{now}{end}', f'{begin}{weather}{{"city": "a"}}{now}{end}',
        f"{begin}{now}{end} text {begin}{now}{end} more", f"{now}", f"{argue}{{}}{done}", f"{end}text", f"text{end}", f"{begin}text only",
        f"{begin}{now}{end}{end}", f"{begin}{begin}{now}{end}", f'{begin}{weather}{{"city": "Paris"}} trailing{done}{end}',
        f'{begin}{weather}{{"city": "Paris", "city": "Rome"}}{done}{end}', f"{begin}{weather}{{'city': 'Paris'}}{done}{end}",
        f"<think>hm</think>{begin}{now}{end}", f"hm {begin}{now}{end}", f"<think>hm</think>\n\nSure.\n{begin}{now}{end}", f"</think>{begin}{now}{end}",
        f"<think></think>{begin}{now}{end}", f"<think>hm</think>a</think>b{begin}{now}{end}", f"  \n{begin}{now}{end}", f"Sure.{begin}{end}",
    ]  # fmt: skip


def glm() -> list[str]:
    def call(name: str, *pairs: tuple[str, str], gap: str = "") -> str:
        return f"<tool_call>{name}{gap}" + gap.join(f"<arg_key>{k}</arg_key>{gap}<arg_value>{v}</arg_value>" for k, v in pairs) + f"{gap}</tool_call>"

    typed = (("days", "03"), ("metric", "TRUE"), ("ratio", "1e5"), ("either", "None"), ("tags", "[1, 2]"), ("opts", "[]"), ("kind", "a"), ("any", "[1]"))
    return [
        call("get_weather", ("city", "Paris")), call("get_weather", *typed), call("get_weather", ("days", "0x10"), ("metric", "1"), ("ratio", "-0"), ("either", "")),
        call("get_weather", ("days", ""), ("metric", ""), ("opts", ""), ("tags", "")), call("get_weather", ("days", "3\n"), ("metric", " true ")),
        call("get_weather", ("opts", '{"a": {"b": [1, 2.50, null, true]}}'), ("tags", '["é", "日本"]')), call("get_weather", ("city", '"quoted"'), ("days", '"3"')),
        call("get_weather", (" city ", "Paris"), gap="  "), call(" get_weather ", ("city", "x"), gap="\n"), call("get_weather", ("", "x")), call("get_weather"), call("now", ("a", "1")),
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</tool_call>", "<tool_call>get_weather<arg_key>city</arg_key><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
        "<tool_call>get_weather<arg_value>3</arg_value></tool_call>", "<tool_call>get_weather text <arg_key>city</arg_key> text <arg_value>x</arg_value> text</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a<arg_key>b</arg_value></tool_call>", call("get_weather", ("city", "a")) + " and " + call("now"),
        "<tool_call>" + call("now"), call("now") + "</tool_call>", call("zzz") + call("now"), call("now") + call("zzz"), "a" + call("zzz") + "b", "<tool_call>zz", "text <tool_call>",
        "<think>hm</think>" + call("now"), "hm" + call("now"), "<think>hm</think>Sure." + call("now") + "Done.", "<think>a</think>b<think>c</think>d" + call("now"), call("now") + "<think>x</think>y",
        "<think>hm" + call("now"), "<think>\n</think>" + call("now"), '<tool_call>{"name": "now", "arguments": {}}</tool_call>', call("get_weather", ("city", "line\\nbreak\t\u2028é")),
    ]  # fmt: skip


def coder() -> list[str]:
    def call(body: str, name: str = "get_weather") -> str:
        return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"

    def value(key: str, text: str) -> str:
        return f"<parameter={key}>\n{text}\n</parameter>\n"

    now = call("", "now")
    return [
        call(value("city", "Paris")).replace("\n", ""), call(value("days", "03") + value("metric", "TRUE") + value("ratio", "1e5") + value("either", "None") + value("kind", "a")),
        call(value("opts", "[]") + value("tags", "{}") + value("any", "[1]")), call(value("days", "") + value("metric", "") + value("opts", "") + value("tags", "")),
        call(value("opts", '{"a": {"b": [1, 2.50, null, true]}}') + value("tags", '["é", "日本"]')), call(value("city", '"quoted"') + value("days", '"3"')),
        call("text " + value("city", "Paris") + " text "), call(value("city", "a < b > c <d>")), call(value("city", "<parameter> x")), call("<parameter=city>Paris"), call("<parameter=city>\nParis\n"),
        call("<parameter=city>\nParis\n<parameter=days>\n3\n"), call("<parameter=city\nParis\n</parameter>\n"), call(value("", "x")), call(value(" city ", "Paris")), call(value("city", "Paris"), " get_weather "),
        "<tool_call>\n<function=get_weather\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>", "<tool_call><function=now></tool_call>", "<tool_call><function=now></function>", "<function=now></function></tool_call>",
        "<tool_call>" + now, now + "</tool_call>", now + " and " + now, call(value("city", "x"), "zzz") + now, "<function=now>\n</function>\n<function=now>\n</function>", "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", "a <function b", "a <function=", "<tool_call>text</tool_call>" + now, "</think>" + now, "<think>hm</think>" + now, now + "\n\n",
        call("<parameter=city>\n\n  x  \n\n</parameter>\n"), call(value("city", "line\\nbreak\t\u2028é")), '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', "Sure. " + now + " Done.",
    ]  # fmt: skip


def deepseek() -> list[str]:
    begin, end, call, sep, done = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"

    def made(arguments: str, name: str = "now") -> str:
        return f"{call}function{sep}{name}\n```json\n{arguments}\n```{done}"

    return [
        begin + made('{"days": "3", "city": 5}', "get_weather") + end, begin + made("[1]") + end, begin + made("null") + end, begin + made('{"a":1}') + end, begin + made("{}", " now ") + end, begin + made("{}", "") + end,
        begin + " text " + made("{}") + " text " + made("{}") + end, begin + made("{}") + "\n\n" + end + "\n\n", begin + made("{}"), begin + made("{}") + begin + made("{}") + end, f"{begin}{call}{sep}now\n```json\n{{}}\n```{done}{end}",
        f"{begin}{call}function{sep}now\n```\n{{}}\n```{done}{end}", f"{begin}{call}function{sep}now\n```json\n{{}}{done}{end}", f"{begin}{call}function{sep}now\n```json\n{{}}\n```", f"{begin}{call}function{sep}now\n```json\n{{}}\n", f"{begin}{call}function",
        begin + made('{"a": "```"}') + end, begin + made('{"a": "x\\ny"}') + end, end, "text" + end, call, "a" + call + "b", "<think>hm</think>" + begin + made("{}") + end, "hm" + begin + made("{}") + end, "hm</think>\n\nSure.\n" + begin + made("{}") + end, "hm</think>" + made("{}"),
    ]  # fmt: skip


def granite() -> list[str]:
    now, weather = '{"name": "now", "arguments": {}}', '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    mark, head, middle = "<|tool_call|>", "Here is my thought process:", "Here is my response:"
    return [
        f"{mark}[\n  {now},\n  {weather}\n]", f"{mark}[{now} {weather}]", f"{mark}[{now},]", f"{mark}[{now}, 5]", f"{mark}[5, {now}]", f"{mark}[{weather[:-1]}]", f"{mark}[{now}", f"{mark}[{now}, ", f"{mark} {now}", f"{mark}[[{now}]]",
        f'{mark}[{{"arguments": {{"city": "x"}}, "name": "get_weather"}}]', f'{mark}[{{"name": "get_weather", "parameters": {{"city": "x"}}}}]', f'{mark}[{{"name": "get_weather", "arguments": {{"days": "3", "city": 5, "any": 5}}, "id": 1}}]',
        f'{mark}[{{"name": "now", "arguments": null}}]', f'{mark}[{{"name": "now", "arguments": []}}]', f'{mark}[{{"name": "now", "arguments": 5}}]', f'{mark}[{{"name": 5, "arguments": {{}}}}]', f'{mark}[{{"name": "", "arguments": {{}}}}]', f'{mark}[{{"name": "zzz", "arguments": {{}}}}]',
        f'{mark}[{{"name": "get_weather", "arguments": "{{\\"city\\": \\"x\\"}}"}}]', f'{mark}[{{"name": "get_weather", "arguments": {{"city":"a]b}}c","days":3.0}}}}]', f"{mark}[{now}]{mark}[{now}]", f"{mark}[{now}] text {mark}[{weather}] end", f"{mark}text{mark}[{now}]",
        f"a{mark}b", f"Sure.\n\n{mark}[{now}]\n\nDone.\n", f"{mark}[{now}]x[{now}]", f"{head} hm. {middle} Sure. {mark}[{now}]", f"{head} {mark}[{now}] {middle} x", f"{head} hm. {mark}[{now}]", f"<tool_call>{now}</tool_call>", f"{mark}[{{{now}}}]", f'{mark}[{{"function": {now}}}]',
    ]  # fmt: skip


ODDER = {"kimi_k2": kimi, "glm45": glm, "qwen3_coder": coder, "qwen3_xml": coder, "deepseek_v3": deepseek, "granite": granite}
