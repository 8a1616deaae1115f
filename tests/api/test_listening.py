"""Where and how the server listens."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Certificate, make
from tests.support.fixtures import StartServer
from tests.support.http1 import Closed, head, post
from tests.support.mock import scripted
from tests.support.processes import title
from tests.support.server import COMPLETIONS, READY, Server
from tests.support.sse import chunks, joined
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

LIMIT_S = 60.0


def at(server: Server) -> str:
    """HOST:PORT as the ready line has it."""
    wait_for(lambda: READY.search(server.log()), "a ready server", LIMIT_S)
    found = READY.search(server.log())
    assert found is not None
    return found[1]


def test_ipv6(start: StartServer) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = start("--host", "::1")
    where = at(server)
    assert where.startswith("[::1]:")
    answer = httpx.post(
        f"http://{where}{COMPLETIONS}", json={"prompt": "hello", "max_tokens": 1}, trust_env=False, verify=False, timeout=LIMIT_S
    )
    assert answer.status_code == 200


def test_the_process_says_what_it_serves_and_where(start: StartServer) -> None:
    server = start("--served-model-name", "name").wait_ready()
    assert title(server.pid) == f"fastfront serve name 127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of localhost, signed by itself."""
    return make(tmp_path_factory.mktemp("tls"), "localhost")


def test_tls(start: StartServer, certificate: Certificate, pieces: Pieces) -> None:
    """Answers, streams and disconnects as without it; plain HTTP is not served on that port."""
    cert, key = certificate.cert, certificate.key
    a = pieces.byte_level("a")
    server = start("--ssl-certfile", str(cert), "--ssl-keyfile", str(key))
    port = int(at(server).rpartition(":")[2])
    assert f" s: https://127.0.0.1:{port}, model" in server.log()
    mock = server.mock
    assert mock is not None
    context = ssl.create_default_context(cafile=str(cert))
    with httpx.Client(base_url=f"https://localhost:{port}", verify=context, trust_env=False, timeout=LIMIT_S) as client:
        for _ in range(3):
            body = {"prompt": "hello", **scripted(a, a, then="stop")}
            assert client.post(COMPLETIONS, json=body).json()["choices"][0]["text"] == "aa"
            assert joined(chunks(client.post(COMPLETIONS, json={**body, "stream": True}).content)) == "aa"
        since = mock.mark()
        slow = {"prompt": "hello", "stream": True, "max_tokens": 5000, **scripted({"tokens": [a], "delay_ms": 20}, then="loop")}
        with client.stream("POST", COMPLETIONS, json=slow) as stream:
            next(stream.iter_raw())
            ids = [mock.wait_adds(1, since)[0]["id"]]
        mock.wait_aborts(ids, since, LIMIT_S)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, verify=False, timeout=5)


@pytest.mark.parametrize("fault", ["no certificate", "no key", "swapped", "garbage"])
def test_tls_files_that_will_not_do(start: StartServer, certificate: Certificate, tmp_path: Path, fault: str) -> None:
    cert, key = certificate.cert, certificate.key
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    files = {
        "no certificate": (Path("/no/file"), key),
        "no key": (cert, Path("/no/file")),
        "swapped": (key, cert),
        "garbage": (garbage, key),
    }
    wrong = files[fault]
    server = start("--ssl-certfile", str(wrong[0]), "--ssl-keyfile", str(wrong[1]))
    assert server.exits(LIMIT_S) == 1
    flag = "--ssl-keyfile" if fault == "no key" else "--ssl-certfile"
    assert f"fastfront: {flag} {wrong[0] if flag == '--ssl-certfile' else wrong[1]}" in server.log()
    assert not READY.search(server.log())


def test_certificates_of_clients_and_a_new_one_of_the_server(start: StartServer, tmp_path: Path) -> None:
    authority, own = make(tmp_path, "authority"), make(tmp_path, "own")
    member = make(tmp_path, "member", authority)
    server = start(*own.flags, "--ssl-ca-certs", str(authority.cert), "--ssl-cert-reqs", "2", "--enable-ssl-refresh")
    url = f"https://localhost:{at(server).rpartition(':')[2]}/health"

    def status(trusted: bytes, shown: Certificate | None) -> int:
        context = ssl.create_default_context(cadata=trusted.decode())
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        return httpx.get(url, verify=context, trust_env=False, timeout=LIMIT_S).status_code

    before = own.cert.read_bytes()
    assert status(before, member) == 200
    for stranger in (None, own):
        with pytest.raises(httpx.HTTPError):
            status(before, stranger)
    renewed = make(tmp_path, "renewed")
    renewed.key.replace(own.key)
    after = renewed.cert.read_bytes()
    renewed.cert.replace(own.cert)

    def changed() -> bool:
        with suppress(httpx.HTTPError):
            return status(after, member) == 200
        return False

    wait_for(changed, "the new certificate", LIMIT_S)
    with pytest.raises(httpx.HTTPError):
        status(before, member)


def test_tls_is_not_for_unix_sockets(start: StartServer, certificate: Certificate, tmp_path: Path) -> None:
    cert, key = certificate.cert, certificate.key
    server = start("--uds", str(tmp_path / "s"), "--ssl-certfile", str(cert), "--ssl-keyfile", str(key))
    assert server.exits(LIMIT_S) == 1
    assert "--uds and --ssl-certfile" in server.log()


def test_socket_files_are_removed_even_those_of_killed_servers(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    killed = start("--uds", str(path))
    wait_for(lambda: "ready in" in killed.log(), "a ready server")
    killed.kill()
    assert path.is_socket()
    second = start("--uds", str(path))
    wait_for(lambda: "ready in" in second.log(), "a ready server")
    third = start("--uds", str(path))
    assert third.exits(LIMIT_S) == 1, "nobody's socket is taken away"
    assert "--uds" in third.log()
    assert second.stop() == 0
    assert not path.exists()


def test_the_socket_file_of_a_server_that_cannot_start_is_removed(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    failing = start("--uds", str(path), "--engine-ready-timeout", "1", mock_flags=("--startup", "silent"))
    wait_for(path.is_socket, "a bound socket")
    assert failing.exits(LIMIT_S) == 1
    assert "engines were ready" in failing.log()
    assert not path.exists()


def test_max_connections(start: StartServer) -> None:
    """Clients beyond it wait; they are served when others have gone."""
    server = start("--max-connections", "4").wait_ready()
    request = head("GET", "/health")
    first = [server.connect() for _ in range(4)]
    for connection in first:
        connection.send(request)
        assert connection.response().status == 200
    with server.connect() as waiting:
        waiting.send(request)
        assert waiting.silent(0.3)
        first[0].close()
        assert waiting.response().status == 200
    for connection in first[1:]:
        connection.send(request)
        assert connection.response().status == 200


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_long_headers(server: Server, size: int) -> None:
    with server.connect() as connection:
        connection.send(post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, x_long="x" * size))
        assert connection.response().status == 200


def test_headers_beyond_the_limit_are_refused(server: Server) -> None:
    with server.connect() as connection, suppress(ConnectionError, Closed):
        connection.send(head("GET", "/health", x_long="x" * 2_000_000))
        assert connection.response().status == 431
    assert server.get("/health").status_code == 200
