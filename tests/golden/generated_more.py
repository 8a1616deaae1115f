"""More requests for differ.py: paths and methods, bodies that are no requests, headers, fields that are wrong together, odd
texts and token ids. What is drawn at random is the same every time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.golden.compare import Json
from tests.golden.generated import ASK, GROUPS, TOOL, values

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
POSTS = (
    CHAT, COMPLETIONS, RESPONSES, MESSAGES, "/v1/messages/count_tokens", "/v1/chat/completions/batch", "/tokenize", "/detokenize",
    "/invocations",
)  # fmt: skip
GETS = ("/v1/models", "/health", "/ping", "/version", "/load", "/metrics", "/v1/responses/resp_x")
ODD_PATHS = (
    "/v1/chat/completions/", "/V1/chat/completions", "/v1/chat//completions", "/v1//completions", "/v1/%63hat/completions",
    "/v1/chat/completions?x=1", "/v1/models?x=1", "/v1/models/", "/tokenize/", "/health/", "/v1/responses/", "/v1/messages/",
    "/v1", "/v1/", "/chat/completions", "/completions", "/v1/chat", "/v1/responses/resp_x/cancel", "/v1/responses/x/y", "/%",
    "/v1/chat/completions%20", "/docs/", "/openapi.json/", "/v1/models/m/", "/v1/embeddings", "/v1/audio/speech", "/v1/files",
    "/v1/score", "/rerank", "/classify", "/pooling", "/is_sleeping", "/reset_prefix_cache", "/server_info", "/v1/load_lora_adapter",
    "/tokenizer_info",
)  # fmt: skip
BODIES: tuple[str, ...] = (
    "", " ", "null", "[]", "5", '"x"', "true", "{", "}", "{}", "[{}]", '{"a":}', '{"model":"m",}', "{'model':'m'}", "{model:1}",
    '{"model":"m"} x', '{"model":"m"}{"model":"m"}', "NaN", '{"temperature":NaN}', '{"temperature":Infinity}', '{"temperature":-Infinity}',
    '{"model":"\\ud800"}', '{"model":"\\ud83d\\ude00"}', '{"model":"\\x"}', '{"model":"\t"}', '{"model":"a', '// c\n{}', "\ufeff{}",
    '{"n":1e400}', '{"n":' + "9" * 400 + "}", '{"n":01}', '{"n":1.}', '{"n":+1}', '{"model":"m","model":"other"}', "[" * 300 + "]" * 300,
    '{"a":' * 300 + "1" + "}" * 300, '{"model":"m","messages":' + "[" * 250 + "]" * 250 + "}", "{\"\\u0000\":1}", "\x00", "model=m&x=1",
)  # fmt: skip
HEX = ("ff", "7b22ff", "7b226d6f64656c223a22c3", "fffe7b007d00", "7b226d6f64656c223a22eda080227d", "1f8b0800", "efbbbf7b7d")
HEADERS: tuple[dict[str, str], ...] = (
    {"content-type": "application/json; charset=latin-1"}, {"content-type": "APPLICATION/JSON"}, {"content-type": "application/json;"},
    {"content-type": "application/vnd.api+json"}, {"content-type": "text/json"}, {"content-type": ""}, {"content-type": "application/jsonx"},
    {"content-type": "multipart/form-data; boundary=x"}, {"content-type": " application/json"}, {"content-type": "*/*"},
    {"accept": "text/event-stream"}, {"accept": "text/html"}, {"x-request-id": "abc"}, {"x-request-id": ""}, {"x-request-id": "a b/c"},
    {"x-vllm-priority": "5"}, {"x-vllm-priority": "x"}, {"x-vllm-priority": "99999999999999999999"}, {"x-data-parallel-rank": "0"},
    {"x-data-parallel-rank": "1"}, {"x-data-parallel-rank": "-1"}, {"x-data-parallel-rank": "x"}, {"authorization": "Bearer x"},
    {"authorization": "x"}, {"x-session-id": "s"}, {"origin": "http://example.com"}, {"content-encoding": "gzip"},
    {"endpoint-load-metrics-format": "text"}, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
)  # fmt: skip
TEXTS: tuple[str, ...] = (
    "naïve café", "日本語のテキスト", "👩‍👩‍👧‍👦 family 🇫🇷 flag", "a\u0301 e\u0308 combining", "שלום עולם العربية", "tab\tnew\nline\r\nend",
    "  leading and   many   spaces  ", "<|im_start|>x<|im_end|>y", "<|endoftext|>", "a<|im_end|>b", "\u0000\u0001\u001f\u007f\u0080",
    "\u200b\u200d\ufeff\u2028", "¹²³ ½ ﬁ ﬂ", "'quotes' \"double\" \\back", "{\"json\": [1, 2.5, null]}", "<b>html</b> &amp;", "x" * 300,
    "\U0010ffff\U0001f9d1\U0001f3fd", "क्षत्रिय ไทย", "end with half 👋🏽", "\n\n\n", ".", "def f(x):\n    return x  # c\n",
)  # fmt: skip
STOPS: tuple[Json, ...] = (
    {}, {"stop": ["e"]}, {"stop": [" "], "include_stop_str_in_output": True}, {"stop": ["\n", "é", "語"]}, {"stop": ["👩", "🏽"]},
    {"skip_special_tokens": False}, {"min_tokens": 3, "stop": ["a"]}, {"return_token_ids": True}, {"stop": ["im_end"], "skip_special_tokens": False},
)  # fmt: skip


def more_requests() -> Iterator[Json]:
    """All of them. Ids begin with the group's name."""
    yield from _http()
    yield from _raw()
    yield from _headers()
    yield from _texts()
    yield from _ids()
    yield from _messages()
    yield from _together(random.Random(1))


def _right(path: str) -> Json:
    found: Json = next((body for route, body, _, _ in GROUPS.values() if route == path), GROUPS["chat"][1])
    return found


def _http() -> Iterator[Json]:
    for path in (*POSTS, *GETS):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
            request: Json = {"id": f"http-{method}-{path}", "method": method, "path": path}
            if path in POSTS and method in ("PUT", "PATCH", "DELETE"):
                request["json"] = _right(path)
            if path != "/metrics":                 # counts what has been
                yield request
    for path in ODD_PATHS:
        yield {"id": f"http-GET-{path}", "method": "GET", "path": path}
        yield {"id": f"http-POST-{path}", "method": "POST", "path": path, "json": GROUPS["chat"][1]}


def _raw() -> Iterator[Json]:
    for path in POSTS:
        for number, body in enumerate(BODIES):
            yield {"id": f"raw-{path}-{number}", "method": "POST", "path": path, "raw": body}
        for number, digits in enumerate(HEX):
            yield {"id": f"raw-{path}-hex-{number}", "method": "POST", "path": path, "raw_hex": digits}


def _headers() -> Iterator[Json]:
    for path in POSTS[:8]:
        for number, headers in enumerate(HEADERS):
            yield {"id": f"head-{path}-{number}", "method": "POST", "path": path, "json": _right(path), "headers": headers}


def _texts() -> Iterator[Json]:
    for number, text in enumerate(TEXTS):
        chat: Json = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 80, "temperature": 0}
        completion: Json = {"model": "m", "prompt": text, "max_tokens": 80, "temperature": 0}
        shapes: list[tuple[str, Json, Json]] = [(CHAT, chat, {"logprobs": True, "top_logprobs": 1}), (COMPLETIONS, completion, {"logprobs": 1})]
        for path, body, logprobs in shapes:
            for other, more in enumerate((*STOPS, logprobs, {**logprobs, "skip_special_tokens": False})):
                for stream in (False, True):
                    named = f"text-{number}-{other}-{'chat' if path == CHAT else 'comp'}{'-stream' if stream else ''}"
                    yield {"id": named, "method": "POST", "path": path, "json": {**body, **more, "stream": stream}}
        for other, more in enumerate(({"echo": True}, {"echo": True, "logprobs": 1}, {"echo": True, "max_tokens": 0}, {"prompt_logprobs": 1})):
            yield {"id": f"text-{number}-echo-{other}", "method": "POST", "path": COMPLETIONS, "json": {**completion, **more}}
        yield {"id": f"text-{number}-tok", "method": "POST", "path": "/tokenize", "json": {"prompt": text, "return_token_strs": True}}
        for stream in (False, True):
            yield {"id": f"text-{number}-resp{stream}", "method": "POST", "path": RESPONSES, "json": {"model": "m", "input": text, "stream": stream, "max_output_tokens": 60}}
            yield {"id": f"text-{number}-msg{stream}", "method": "POST", "path": MESSAGES, "json": {"model": "m", "messages": chat["messages"], "stream": stream, "max_tokens": 60}}


def _ids() -> Iterator[Json]:
    """Tokens that an engine could come up with, also such as no text has."""
    draw = random.Random(2)
    for number in range(150):
        low, high = draw.choice(((0, 300), (0, 20), (0, 49151), (100, 260)))
        ids = [draw.randint(low, high) for _ in range(draw.randint(1, 25))]
        body: Json = {"model": "m", "prompt": ids, "max_tokens": 40, "temperature": 0, "ignore_eos": draw.random() < 0.5}
        more = draw.choice(({}, {"skip_special_tokens": False}, {"logprobs": 1}, {"stop": ["e", " t"]}, {"echo": True}, {"echo": True, "logprobs": 0}, {"stop_token_ids": ids[:1]}))
        for stream in (False, True):
            yield {"id": f"ids-{number}{'-stream' if stream else ''}", "method": "POST", "path": COMPLETIONS, "json": {**body, **more, "stream": stream}}
        yield {"id": f"ids-{number}-detok", "method": "POST", "path": "/detokenize", "json": {"tokens": ids}}


def _messages() -> Iterator[Json]:
    """Every odd message in the other routes that take messages, and in chats together with another error."""
    for number, messages in enumerate(GROUPS["chat"][2]["messages"]):
        yield {"id": f"odd-{number}-batch", "method": "POST", "path": "/v1/chat/completions/batch", "json": {"messages": [ASK, messages], "max_tokens": 5}}
        yield {"id": f"odd-{number}-model", "method": "POST", "path": CHAT, "json": {"model": "other", "messages": messages}}
        yield {"id": f"odd-{number}-tokens", "method": "POST", "path": CHAT, "json": {"messages": messages, "max_tokens": -1}}
        yield {"id": f"odd-{number}-type", "method": "POST", "path": CHAT, "json": {"messages": messages, "temperature": "x"}}
        yield {"id": f"odd-{number}-tools", "method": "POST", "path": CHAT, "json": {"messages": messages, "tools": [TOOL], "max_tokens": 5}}
        yield {"id": f"odd-{number}-ids", "method": "POST", "path": CHAT, "json": {"messages": messages, "return_token_ids": True, "max_tokens": 5}}
        yield {"id": f"odd-{number}-input", "method": "POST", "path": RESPONSES, "json": {"model": "m", "input": messages, "max_output_tokens": 5}}
        yield {"id": f"odd-{number}-claude", "method": "POST", "path": MESSAGES, "json": {"model": "m", "messages": messages, "max_tokens": 5}}


def _together(draw: random.Random) -> Iterator[Json]:
    """Some fields of a request at once, right and wrong ones: which error comes first?"""
    for group, most in (("chat", 900), ("comp", 700), ("resp", 400), ("msg", 300), ("batch", 200), ("tokchat", 150), ("count", 100)):
        path, base, fields, streams = GROUPS[group]
        names = [name for name in fields if name not in ("guided_json", "best_of")]
        for number in range(most):
            body = dict(base)
            for name in draw.sample(names, draw.randint(2, 4)):
                special = fields[name]
                options: list[Any] = list(special) if special and draw.random() < 0.7 else values(special)
                body[name] = draw.choice(options)
            if streams and draw.random() < 0.3:
                body["stream"] = True
            yield {"id": f"both-{group}-{number}", "method": "POST", "path": path, "json": body}
