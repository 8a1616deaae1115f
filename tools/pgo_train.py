"""Training run for a profile-guided build of CPython: the kinds of Python code that a request passes through.

Standard library only, no sockets, deterministic, a few seconds on an instrumented interpreter. CPython's own default
training run is its test suite, which takes minutes and fails as root.
"""

import asyncio
import collections
import dataclasses
import enum
import json
import queue
import re
import struct
import sys
import threading
import time
import uuid
from collections.abc import Iterator

_ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 400
_THREADS = 3
_HEADER = re.compile(rb"(?P<name>[A-Za-z-]+):\s*(?P<value>[^\r\n]*)\r\n")
_WORD = re.compile(r"\w+|[^\w\s]+|\s+")


class Role(enum.Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclasses.dataclass(slots=True)
class Message:
    role: Role
    content: str


@dataclasses.dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    extra: dict[str, object] = dataclasses.field(default_factory=dict)

    def validate(self) -> None:
        if not 0.0 <= self.temperature <= 2.0:
            raise ValueError(f"temperature must be in [0, 2], got {self.temperature}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")


def body(index: int) -> bytes:
    """A chat request as JSON."""
    messages = [{"role": "system", "content": "You are a helpful assistant. Ünïcode, 你好 and \U0001f389."}]
    messages += [{"role": "user", "content": f"Question {index}.{i}: " + "what is it? " * 8} for i in range(3)]
    fields = {"model": "m", "messages": messages, "stream": index % 2 == 0, "temperature": 0.5, "n": 1, "stop": ["\n"]}
    return json.dumps(fields, ensure_ascii=index % 3 == 0).encode()


def parse(raw: bytes) -> tuple[list[Message], Sampling]:
    """JSON to typed records, with the checks and the errors of a validator."""
    fields = json.loads(raw)
    messages = [Message(Role(item["role"]), item["content"]) for item in fields["messages"]]
    known = {name: fields.pop(name) for name in ("temperature", "max_tokens") if name in fields}
    sampling = Sampling(stop=tuple(fields.get("stop", ())), extra=fields, **known)
    sampling.validate()
    try:
        dataclasses.replace(sampling, temperature=3.0).validate()
    except ValueError as error:
        if "temperature" not in str(error):
            raise
    return messages, sampling


def render(messages: list[Message]) -> Iterator[str]:
    """What a compiled template does: yields pieces, looks names up, calls filters."""
    context = {"messages": messages, "add_generation_prompt": True}
    trim = str.strip
    for position, message in enumerate(context["messages"]):  # type: ignore[arg-type, var-annotated]
        if position == 0 and message.role is not Role.SYSTEM:
            yield "<|im_start|>system\n<|im_end|>\n"
        yield "<|im_start|>" + message.role.value + "\n"
        yield "%s" % trim(message.content)  # noqa: UP031
        yield "<|im_end|>\n"
    if context["add_generation_prompt"]:
        yield "<|im_start|>assistant\n"


def pack(value: object, out: bytearray) -> None:
    """A recursive binary writer: isinstance chains, struct, bytearray."""
    if value is None:
        out.append(0xC0)
    elif value is True or value is False:
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        out += value.to_bytes(1, "big") if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    elif isinstance(value, float):
        out += b"\xcb" + struct.pack(">d", value)
    elif isinstance(value, str):
        raw = value.encode()
        out += b"\xdb" + len(raw).to_bytes(4, "big")
        out += raw
    elif isinstance(value, (list, tuple)):
        out += b"\xdd" + len(value).to_bytes(4, "big")
        for item in value:
            pack(item, out)
    elif isinstance(value, dict):
        out += b"\xdf" + len(value).to_bytes(4, "big")
        for key, item in value.items():
            pack(key, out)
            pack(item, out)
    else:
        raise TypeError(type(value).__name__)


def headers(index: int) -> dict[str, str]:
    raw = b"Host: localhost:8000\r\nContent-Type: application/json\r\nX-Request-Id: %d\r\n" % index
    return {match["name"].decode().lower(): match["value"].decode() for match in _HEADER.finditer(raw)}


def request(index: int) -> int:
    """One request from bytes to bytes; returns a number that depends on all of it."""
    found = headers(index)
    messages, sampling = parse(body(index))
    prompt = "".join(render(messages))
    words = _WORD.findall(prompt)
    vocabulary = collections.Counter(words)
    ids = [len(word) * 131 % 151_936 for word in words]
    name = f"chatcmpl-{uuid.UUID(int=index).hex}"
    out = bytearray()
    pack([name, ids, dataclasses.asdict(sampling), found, time.monotonic(), None], out)
    chunks = [
        f"data: {json.dumps({'id': name, 'choices': [{'index': 0, 'delta': {'content': word}}]})}\n\n".encode()
        for word in sorted(vocabulary, key=lambda word: (-vocabulary[word], word))[:12]
    ]
    return len(out) + sum(map(len, chunks)) + len(b"".join(chunks).split(b"\n\n"))


async def loop_side(rounds: int) -> None:
    """Futures resolved from other threads, tasks and callbacks, as an accepting loop sees them."""
    loop = asyncio.get_running_loop()
    work: queue.SimpleQueue[tuple[int, asyncio.Future[int]] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (item := work.get()) is not None:
            index, future = item
            loop.call_soon_threadsafe(future.set_result, request(index))

    threads = [threading.Thread(target=serve) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()

    async def handle(index: int) -> int:
        future: asyncio.Future[int] = loop.create_future()
        work.put((index, future))
        return await future

    for start in range(0, rounds, 8):
        await asyncio.gather(*(handle(index) for index in range(start, start + 8)))
    for _ in threads:
        work.put(None)
    for thread in threads:
        thread.join()


def main() -> None:
    """Everything once on one thread, then through an event loop and worker threads."""
    for index in range(_ROUNDS):
        request(index)
    asyncio.run(loop_side(_ROUNDS))


if __name__ == "__main__":
    main()
