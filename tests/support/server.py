"""A running `fastfront serve` and clients for it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.http1 import Connection
from tests.support.mock import MockEngine
from tests.support.paths import ENGINE_PYTHON, FASTFRONT, ROOT, environment
from tests.support.processes import session_members, wait_gone, with_parent
from tests.support.sse import Chunk, chunks
from tests.support.waiting import wait_for

READY = re.compile(r"ready in \S+ s: https?://(\S+), model")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


class Server:
    """One server process in a session of its own, listening on a port of its own choice.

    With `mock` the server starts that mock engine. Its output goes to a file in `folder`. Use as a context manager:
    leaving stops it and fails if any of its processes stays.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        model: str | Path = "smollm2",
        mock: MockEngine | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = (str(FASTFRONT),),
    ) -> None:
        """`prefix` comes before the program on the command line, `program` stands for `fastfront`."""
        self.mock = mock
        self._log_path = folder / "server.log"
        command = [*with_parent(), *prefix, *program, "serve", str(model), "--port", "0", "--host", "127.0.0.1", *flags]
        if mock is not None:
            command += ["--engine", "mock", "--engine-args", shlex.join(mock.args)]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment(**(env or {})), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.port = 0
        self._connections: list[Connection] = []
        self._threads = threading.local()
        self._clients: list[httpx.Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # ---- life

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """Everything the server and its engines have printed; of a running server, only whole lines."""
        running = self.process.poll() is None
        text = self._log_path.read_text(errors="replace")
        return text[: text.rfind("\n") + 1] if running else text

    def wait_ready(self, timeout_s: float = 120.0) -> Self:
        """Waits until the server says that it is ready."""

        def look() -> re.Match[str] | None:
            found = READY.search(self.log())
            assert found or self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
            return found

        try:
            ready = wait_for(look, "a ready server", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error
        assert ready is not None
        self.port = int(ready[1].rpartition(":")[2])
        return self

    def wait_exit(self, timeout_s: float = 60.0) -> int:
        """The exit status."""
        return self.process.wait(timeout_s)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exits(self, timeout_s: float = 60.0) -> int:
        """Waits for the server to leave by itself, with all its processes; the exit status."""
        status = self.wait_exit(timeout_s)
        wait_gone(self.pid)
        return status

    def engine_pids(self) -> list[int]:
        """Processes besides the frontend itself."""
        return [pid for pid in session_members(self.pid) if pid != self.pid]

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, then the exit status; fails if the server does not leave or leaves a process behind."""
        self.hang_up()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # prints the stacks of all threads
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.process.kill()
            self.process.wait()
            for pid in session_members(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"did not leave after SIGTERM:\n{self.log()}") from None
        wait_gone(self.pid)
        return status

    def hang_up(self) -> None:
        """Closes everything on the clients' side."""
        for client in self._clients:
            client.close()
        for connection in self._connections:
            connection.close()

    def kill(self) -> None:
        """SIGKILL to the frontend alone."""
        self.hang_up()
        self.process.kill()
        self.process.wait()

    # ---- requests

    @property
    def client(self) -> httpx.Client:
        """This thread's HTTP client: pools of connections are not made for sharing without a GIL."""
        client: httpx.Client | None = getattr(self._threads, "client", None)
        if client is None:
            client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=120.0, trust_env=False, verify=False)
            self._threads.client = client
            self._clients.append(client)
        return client

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def connect(self, timeout_s: float = 60.0) -> Connection:
        """A raw connection; stopping the server closes it at the latest."""
        connection = Connection(self.address, timeout_s)
        self._connections.append(connection)
        return connection

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """A POST of JSON; bytes are sent as they are."""
        if isinstance(body, bytes):
            return self.client.post(path, content=body, headers={"content-type": "application/json", **headers})
        return self.client.post(path, json=body, headers=headers)

    def chat(self, *fields: Mapping[str, Any], **more: Any) -> httpx.Response:
        """A chat request of one message; the fields given come on top."""
        return self.post(CHAT, merged({"messages": HELLO}, *fields, more))

    def completion(self, *fields: Mapping[str, Any], **more: Any) -> httpx.Response:
        """A completion request with the prompt `hello`; the fields given come on top."""
        return self.post(COMPLETIONS, merged({"prompt": "hello"}, *fields, more))

    def chat_stream(self, *fields: Mapping[str, Any], **more: Any) -> list[Chunk]:
        """The chunks of a streamed chat answer."""
        return read_stream(self.chat(*fields, stream=True, **more))

    def completion_stream(self, *fields: Mapping[str, Any], **more: Any) -> list[Chunk]:
        """The chunks of a streamed completion."""
        return read_stream(self.completion(*fields, stream=True, **more))


def merged(*fields: Mapping[str, Any]) -> dict[str, Any]:
    """All fields in one map."""
    return {name: value for part in fields for name, value in part.items()}


def read_stream(response: httpx.Response) -> list[Chunk]:
    """The chunks of an answer that must be a whole stream."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return chunks(response.content)


def headless_mock(port: int, mock: MockEngine, index: int = 0, address: str = "127.0.0.1") -> subprocess.Popen[bytes]:
    """A mock engine started by hand that joins the frontend at `address` and `port`; the caller ends it."""
    command = [*with_parent(), str(ENGINE_PYTHON), "-m", "engine.mock", "--headless", "--data-parallel-rpc-port", str(port)]
    command += ["--data-parallel-address", address]
    with mock.log_path.open("ab") as log:
        return subprocess.Popen(
            [*command, "--index", str(index), *mock.args], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
