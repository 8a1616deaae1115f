"""ZMTP without sockets, against a small writer and reader of the specification's frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.zmtp import ZmtpConnection

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, flags: int = 0, long: bool | None = None) -> bytes:
    if len(body) > 255 or long:
        return bytes([flags | LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


def command(name: bytes, body: bytes = b"") -> bytes:
    return frame(bytes([len(name)]) + name + body, COMMAND)


def properties(**values: bytes) -> bytes:
    named = {name.replace("_", "-").encode(): value for name, value in values.items()}
    return b"".join(bytes([len(k)]) + k + struct.pack(">I", len(v)) + v for k, v in named.items())


def ready(kind: bytes = b"DEALER", identity: bytes = b"\1\0") -> bytes:
    return command(b"READY", properties(Socket_Type=kind, Identity=identity))


def message(parts: list[bytes]) -> bytes:
    return b"".join(frame(part, MORE if k + 1 < len(parts) else 0) for k, part in enumerate(parts))


def read_frames(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        flags, header = data[0], 9 if data[0] & LONG else 2
        size = struct.unpack(">Q", data[1:9])[0] if flags & LONG else data[1]
        assert len(data) >= header + size
        found.append((flags & ~LONG, data[header : header + size]))
        data = data[header + size :]
    return found


def opened(router: bool = True) -> ZmtpConnection:
    connection = ZmtpConnection(router=router)
    connection.feed(GREETING + ready(b"DEALER" if router else b"PUSH"))
    assert connection.open
    connection.take()
    return connection


def byte_by_byte(connection: ZmtpConnection, stream: bytes) -> None:
    for k in range(len(stream)):
        connection.feed(stream[k : k + 1])


messages = st.lists(st.lists(st.one_of(st.binary(max_size=20), st.binary(min_size=250, max_size=600)), min_size=1, max_size=4))


@given(messages, st.data())
def test_messages_do_not_depend_on_packets(sent: list[list[bytes]], data: st.DataObject) -> None:
    stream = GREETING + ready() + b"".join(command(b"PING", b"\0\0") + message(parts) for parts in sent)
    connection, found = ZmtpConnection(router=True), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += connection.feed(stream[start:end])
    assert found == sent
    assert connection.identity == b"\1\0"


def test_every_cut_waits_for_more() -> None:
    stream = GREETING + ready() + frame(b"a" * 300, MORE) + frame(b"b", long=True)
    for cut in range(len(stream)):
        connection = ZmtpConnection(router=True)
        assert connection.feed(stream[:cut]) == []
        assert connection.feed(stream[cut:]) == [[b"a" * 300, b"b"]]


@given(messages)
def test_what_is_put_is_read_back(sent: list[list[bytes]]) -> None:
    connection = opened()
    for parts in sent:
        connection.put(parts)
    frames = read_frames(connection.take())
    assert frames == [(MORE if k + 1 < len(parts) else 0, part) for parts in sent for k, part in enumerate(parts)]


@pytest.mark.parametrize(("router", "kind", "properties_"), [
    (True, b"DEALER", {"Socket_Type": b"ROUTER", "Identity": b""}), (False, b"PUSH", {"Socket_Type": b"PULL"}),
])  # fmt: skip
def test_greeting_and_ready(router: bool, kind: bytes, properties_: dict[str, bytes]) -> None:
    connection = ZmtpConnection(router=router)
    assert connection.take() == GREETING
    connection.feed(GREETING)
    assert read_frames(connection.take()) == [(COMMAND, b"\x05READY" + properties(**properties_))]
    assert not connection.open
    connection.feed(ready(kind))
    assert connection.open


def test_pings_are_answered_with_their_context() -> None:
    connection = opened()
    connection.feed(command(b"PING", b"\0\x10context") + command(b"PONG", b"late") + command(b"WHATEVER"))
    assert read_frames(connection.take()) == [(COMMAND, b"\x04PONGcontext")]
    connection.ping()
    assert read_frames(connection.take()) == [(COMMAND, b"\x04PING\0\0")]
    for _ in range(10_000):
        connection.feed(command(b"PING", b"\0\0" + b"c" * 16))
    assert len(connection.take()) < 70_000  # one that asks and never reads costs no more than this


@pytest.mark.parametrize("stream", [
    b"GET / HTTP/1.1\r\n",
    b"\xff" + bytes(9),
    b"\xff" + bytes(8) + b"\x7f\x01",
    GREETING[:12] + b"PLAIN" + bytes(15) + bytes(32),
    GREETING[:12] + b"NULLS" + bytes(15) + bytes(32),
    GREETING + message([b"early"]),
    GREETING + command(b"ERROR", b"\x03bad"),
    GREETING + frame(b"", COMMAND),
    GREETING + frame(b"\x09READY", COMMAND),
    GREETING + ready(b"PUSH"),
    GREETING + command(b"READY"),
    GREETING + command(b"READY", b"\x0bSocket-Type\0\0\0\x07DEALER"),
    GREETING + command(b"READY", b"\xffSocket-Type"),
    GREETING + command(b"READY", b"\x0bSocket"),
    GREETING + ready(identity=b"x" * 256),
    GREETING + ready() + frame(b"", 8),
    GREETING + ready() + frame(b"", COMMAND | MORE),
    GREETING + ready() + bytes([COMMAND | LONG]) + struct.pack(">Q", 1 << 20),
], ids=range(18))  # fmt: skip
def test_what_breaks_the_protocol_is_refused_for_good(stream: bytes) -> None:
    connection = ZmtpConnection(router=True)
    with pytest.raises(ValueError, match=r"."):
        byte_by_byte(connection, stream)
    with pytest.raises(ValueError, match=r"."):
        connection.feed(GREETING + ready())


def test_names_of_properties_ignore_case() -> None:
    connection = ZmtpConnection(router=False)
    connection.feed(GREETING + command(b"READY", b"\x0bsocket-type\0\0\0\x04PUSH\x08IDENTITY\0\0\0\x01x\x01a\0\0\0\0"))
    assert connection.open
    assert connection.identity == b"x"


def test_a_size_beyond_memory_costs_nothing() -> None:
    connection = opened()
    assert connection.feed(bytes([LONG]) + b"\xff" * 8 + b"x" * 1000) == []


def test_large_messages_between_small_ones() -> None:
    connection, sent = opened(), [[b"a"], [b"b" * 9_000_000, b"c"], [b"d"], [b"e" * 200_000]]
    assert connection.feed(b"".join(message(parts) for parts in sent)) == sent
    assert connection.feed(message([b"f"])) == [[b"f"]]
