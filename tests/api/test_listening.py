"""Where and how the server listens."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import self_signed, signed_by
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
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, private key) of localhost, signed by itself."""
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_tls(start: StartServer, certificate: tuple[Path, Path], pieces: Pieces) -> None:
    """Answers, streams and disconnects as without it; plain HTTP is not served on that port."""
    cert, key = certificate
    a = pieces.byte_level("a")
    server = start("--ssl-certfile", str(cert), "--ssl-keyfile", str(key))
    port = int(at(server).rpartition(":")[2])
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
def test_tls_files_that_will_not_do(start: StartServer, certificate: tuple[Path, Path], tmp_path: Path, fault: str) -> None:
    cert, key = certificate
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
    assert "--ssl-certfile" in server.log() or "--ssl-keyfile" in server.log()
    assert not READY.search(server.log())


@pytest.mark.parametrize("reqs", ["0", "1", "2"])
def test_certificates_of_clients(start: StartServer, certificate: tuple[Path, Path], tmp_path: Path, reqs: str) -> None:
    cert, key = certificate
    stranger, signed = self_signed(tmp_path), signed_by(certificate, tmp_path, "client")
    flags = ("--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--ssl-ca-certs", str(cert), "--ssl-cert-reqs", reqs)
    url = f"https://localhost:{at(start(*flags)).rpartition(':')[2]}/health"

    def served(pair: tuple[Path, Path] | None) -> bool:
        context = ssl.create_default_context(cafile=str(cert))
        if pair is not None:
            context.load_cert_chain(*pair)
        try:
            return httpx.get(url, verify=context, trust_env=False, timeout=LIMIT_S).status_code == 200
        except httpx.HTTPError:
            return False

    assert (served(signed), served(None), served(stranger)) == {
        "0": (True, True, True), "1": (True, True, False), "2": (True, False, False)
    }[reqs]  # fmt: skip


def test_authorities_that_are_none(start: StartServer, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    (tmp_path / "ca.pem").write_text("none")
    for file in (tmp_path / "ca.pem", tmp_path / "nothing.pem"):
        flags = ("--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--ssl-ca-certs", str(file), "--ssl-cert-reqs", "2")
        server = start(*flags)
        assert server.exits(LIMIT_S) == 1
        assert f"--ssl-ca-certs {file}: " in server.log()


def test_tls_is_not_for_unix_sockets(start: StartServer, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
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
