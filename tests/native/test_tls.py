"""HTTPS: handshakes, client certificates, and what a connection may do, as without TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastfront._speedups.http_request import HttpRequest, HttpStream
from fastfront._speedups.http_server import HttpServer
from fastfront._speedups.tls import TlsContext, TlsError
from tests.support.certificates import Certificate, make
from tests.support.http1 import head
from tests.support.waiting import wait_for

HELLO = head("GET", "/hello")
LONG = bytes(range(256)) * 8192


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def own(folder: Path) -> Certificate:
    return make(folder, "server")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Certificate:
    return make(folder, "authority")


@pytest.fixture(scope="module")
def member(folder: Path, authority: Certificate) -> Certificate:
    return make(folder, "member", authority)


def context_of(own: Certificate, **options: object) -> TlsContext:
    return TlsContext(str(own.cert), str(own.key), **options)  # type: ignore[arg-type]


def client_of(own: Certificate, member: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(own.cert))
    if member is not None:
        context.load_cert_chain(member.cert, member.key)
    return context


def echo(request: HttpRequest) -> None:
    """Answers with what came."""
    request.read_body(10_000_000, lambda body, _: request.response_bytes(200, [], body if body else b"hello"))


class Running:
    def __init__(self, server: HttpServer, address: tuple[str, int]) -> None:
        self.server = server
        self.address = address

    def plain(self) -> socket.socket:
        made = socket.create_connection(self.address, 60)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def connect(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        return context.wrap_socket(self.plain(), server_hostname="localhost", suppress_ragged_eofs=False)

    def ask(self, context: ssl.SSLContext, data: bytes = HELLO) -> bytes:
        """What comes for one request on a connection of its own, up to the body that `echo` gives."""
        with self.connect(context) as connection:
            connection.sendall(data)
            return answer(connection)


def answer(connection: ssl.SSLSocket) -> bytes:
    """The body of an answer with a length."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65536)
        assert more, got
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    assert len(body) == length
    return body


def rest(connection: ssl.SSLSocket) -> bytes:
    """All that comes. An end without TLS's own is an error."""
    got = bytearray()
    while more := connection.recv(65536):
        got += more
    return bytes(got)


@contextmanager
def serving(
    tls: TlsContext, intake: Callable[[HttpRequest], None] = echo, keep_alive_s: float = 60.0, stall_s: float = 60.0
) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server = HttpServer(listener.fileno(), intake, 16, keep_alive_s, stall_s, tls)
        threads = [threading.Thread(target=server.run) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield Running(server, listener.getsockname())
        finally:
            server.quit()
            for thread in threads:
                thread.join(60)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_on_one_connection(own: Certificate, version: ssl.TLSVersion) -> None:
    client = client_of(own)
    client.minimum_version = client.maximum_version = version
    client.set_alpn_protocols(["h2", "http/1.1"])
    with serving(context_of(own)) as running, running.connect(client) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() == version.name.replace("_", ".")
        for _ in range(3):
            connection.sendall(HELLO)
            assert answer(connection) == b"hello"
        connection.sendall(head("POST", "/", content_length=str(len(LONG))) + LONG)
        assert answer(connection) == LONG
        connection.sendall(HELLO * 50)
        assert rest_of(connection, 50) == b"hello" * 50


def rest_of(connection: ssl.SSLSocket, count: int) -> bytes:
    """The bodies of that many short answers."""
    got = b""
    while got.count(b"hello") < count:
        got += connection.recv(65536)
    return b"hello" * got.count(b"hello")


def test_older_versions_are_refused(own: Certificate) -> None:
    """TLS 1.1 is not even offered."""
    with serving(context_of(own)) as running:
        made = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{running.address[1]}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            input=b"", capture_output=True, timeout=60,
        )  # fmt: skip
        assert made.returncode != 0
        assert running.ask(client_of(own)) == b"hello"


def test_sessions_are_resumed(own: Certificate, authority: Certificate, member: Certificate) -> None:
    """Also where clients' certificates are checked."""
    client = client_of(own, member)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context_of(own, ca_certs=str(authority.cert), verify=2)) as running:
        with running.connect(client) as first:
            first.sendall(HELLO)
            answer(first)
            session = first.session
        plain = running.plain()
        with client.wrap_socket(plain, server_hostname="localhost", session=session) as second:
            second.sendall(HELLO)
            assert answer(second) == b"hello"
            assert second.session_reused


@pytest.mark.parametrize(("verify", "shown", "served"), [
    (0, None, True), (0, "stranger", True), (1, None, True), (1, "member", True), (1, "stranger", False),
    (2, None, False), (2, "member", True), (2, "stranger", False),
])  # fmt: skip
def test_certificates_of_clients(
    own: Certificate, authority: Certificate, member: Certificate, folder: Path, verify: int, shown: str | None, served: bool
) -> None:
    shows = None if shown is None else member if shown == "member" else make(folder, "stranger")
    calls: list[str] = []

    def intake(request: HttpRequest) -> None:
        calls.append(request.path)
        echo(request)

    with serving(context_of(own, ca_certs=str(authority.cert), verify=verify), intake) as running:
        if served:
            assert running.ask(client_of(own, shows)) == b"hello"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                running.ask(client_of(own, shows))
            wait_for(lambda: running.server.open == 0, "a closed connection")
        assert bool(calls) is served


def test_ciphers(own: Certificate) -> None:
    """Those named, for TLS 1.2."""
    name = "ECDHE-ECDSA-AES256-GCM-SHA384"
    client = client_of(own)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context_of(own, ciphers=name)) as running:
        with running.connect(client) as connection:
            assert (connection.cipher() or ("",))[0] == name
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError):
            running.connect(client)


def test_what_will_not_do_is_named(own: Certificate, folder: Path) -> None:
    garbage = folder / "garbage.pem"
    garbage.write_text("no certificate")
    locked = folder / "locked.pem"
    subprocess.run(["openssl", "ec", "-in", str(own.key), "-aes256", "-passout", "pass:secret", "-out", str(locked)],
                   check=True, capture_output=True)  # fmt: skip
    cert, key = str(own.cert), str(own.key)
    for arguments, part in [
        ((str(garbage), key), "certfile"), ((key, key), "certfile"), ((cert, str(garbage)), "keyfile"),
        ((cert, str(make(folder, "other").key)), "keyfile"), ((cert, str(locked)), "keyfile"),
        ((cert, key, str(garbage)), "ca_certs"), ((cert, key, None, 0, "NO-SUCH-CIPHER"), "ciphers"),
    ]:  # fmt: skip
        with pytest.raises(TlsError) as raised:
            TlsContext(*arguments)  # type: ignore[arg-type]
        assert raised.value.args[0] == part
        assert raised.value.args[1]


def test_a_new_certificate_is_for_new_connections(own: Certificate, folder: Path) -> None:
    other = make(folder, "renewed")
    with serving(context_of(own)) as running, running.connect(client_of(own)) as connection:
        running.server.use_tls(context_of(other))
        connection.sendall(HELLO)
        assert answer(connection) == b"hello"
        assert running.ask(client_of(other)) == b"hello"
        with pytest.raises(ssl.SSLError):
            running.ask(client_of(own))


def test_bytes_one_by_one(own: Certificate) -> None:
    """Handshake and request in the smallest pieces."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_of(own).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with serving(context_of(own)) as running, running.plain() as connection:

        def turn(work: Callable[[], object]) -> None:
            """Until `work` needs nothing more from the server."""
            while True:
                done = False
                with contextlib.suppress(ssl.SSLWantReadError):
                    work()
                    done = True
                for byte in outgoing.read():
                    connection.sendall(bytes([byte]))
                if done:
                    return
                incoming.write(connection.recv(65536))

        turn(client.do_handshake)
        turn(lambda: client.write(HELLO))
        got: list[bytes] = []
        turn(lambda: got.append(client.read(65536)))
        assert got[0].endswith(b"hello")


def test_streams_end_with_a_goodbye(own: Certificate) -> None:
    """Large pieces, to a client that is slow; then an end that could not be that of a cut."""
    streams: list[HttpStream] = []

    def intake(request: HttpRequest) -> None:
        stream = request.response_stream(200, [])
        streams.append(stream)
        for _ in range(20):
            stream.send_bytes(LONG)
            stream.send_bytes(b"small")
        stream.end()

    with serving(context_of(own), intake) as running, running.connect(client_of(own)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        got = rest(connection)
        assert got.partition(b"\r\n\r\n")[2] == (LONG + b"small") * 20


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nhost: test\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\0" * 10_000])
def test_what_is_no_tls_is_closed(own: Certificate, said: bytes) -> None:
    with serving(context_of(own)) as running, running.plain() as connection:
        connection.sendall(said)
        with contextlib.suppress(ConnectionError):
            while got := connection.recv(65536):
                assert not got.startswith(b"HTTP"), got
        connection.close()
        wait_for(lambda: running.server.open == 0, "a closed connection")
        assert running.ask(client_of(own)) == b"hello"


def test_handshakes_have_to_come_in_time(own: Certificate) -> None:
    """Also if something comes all the time."""
    with serving(context_of(own), keep_alive_s=0.5) as running, running.plain() as silent, running.plain() as drip:
        drip.setblocking(False)
        hello = b"\x16\x03\x01\x10\x00" + b"\x01\x00\x0f\xfc\x03\x03"

        def both_closed() -> bool:
            with contextlib.suppress(OSError):
                drip.send(hello[:1] if len(sent) >= len(hello) else hello[len(sent) : len(sent) + 1])
                sent.append(0)
            return running.server.open == 0

        sent: list[int] = []
        wait_for(both_closed, "both closed")
        assert select.select([silent], [], [], 60)[0]


def test_a_client_that_leaves_is_noticed(own: Certificate) -> None:
    """With or without a goodbye."""
    gone = threading.Semaphore(0)
    kept: list[HttpRequest] = []

    def intake(request: HttpRequest) -> None:
        kept.append(request)
        if request.watch(gone.release):
            gone.release()

    with serving(context_of(own), intake) as running:
        for polite in (True, False):
            connection = running.connect(client_of(own))
            connection.sendall(HELLO)
            wait_for(lambda: bool(kept), "a request")
            if polite:
                connection.setblocking(False)
                with contextlib.suppress(ssl.SSLWantReadError):
                    connection.unwrap()
            connection.close()
            assert gone.acquire(timeout=60)
            kept.pop().abandon()
        wait_for(lambda: running.server.open == 0, "no connection")


class Client:
    """What comes in and goes out is in the test's hands."""

    def __init__(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._connection = connection
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")
        self._until(self.tls.do_handshake)

    def ask(self) -> None:
        self.tls.write(HELLO)
        self.answer()

    def answer(self) -> None:
        self._until(lambda: self.tls.read(65536))

    def _until(self, work: Callable[[], object]) -> None:
        while True:
            done = False
            with contextlib.suppress(ssl.SSLWantReadError):
                work()
                done = True
            self._connection.sendall(self.outgoing.read())
            if done:
                return
            self._incoming.write(self._connection.recv(65536))


def test_a_request_that_begins_late_has_its_time(own: Certificate) -> None:
    """Part of a record is a beginning, too; all connections are looked at every second."""
    keep_alive_s, idle_s, looked_s = 2.0, 1.5, 1.2
    with serving(context_of(own), keep_alive_s=keep_alive_s) as running:
        while True:
            with running.plain() as connection:
                client = Client(client_of(own), connection)
                client.ask()
                answered = time.monotonic()
                time.sleep(idle_s)
                client.tls.write(HELLO)
                record = client.outgoing.read()
                connection.sendall(record[:20])
                begun = time.monotonic()
                time.sleep(looked_s)
                is_open = running.server.open
                if begun - answered < keep_alive_s and time.monotonic() - begun < keep_alive_s:  # else this thread was held up
                    assert is_open
                    connection.sendall(record[20:])
                    client.answer()
                    return
