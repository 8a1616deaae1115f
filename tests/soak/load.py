"""Many short requests over a fixed number of connections, bodies sent behind the heads in packets of their own."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass

from tests.support.http1 import Connection, head
from tests.support.processes import open_files, resident_bytes
from tests.support.server import CHAT, COMPLETIONS, Server

QUARTERS = 4
HANG_S = 60.0  # an answer takes milliseconds
CHAT_BODY = b'{"messages":[{"role":"user","content":"Say something short."}],"max_tokens":1,"stream":%s}'
TEXT_BODY = b'{"prompt":"Say something short.","max_tokens":1,"stream":%s}'


@dataclass(frozen=True)
class Figures:
    """What a run showed: memory and descriptors are of the frontend, at the end of each quarter of the requests."""

    requests: int
    answered: int
    elapsed_s: float
    requests_per_s: float
    resident_mb: list[float]
    descriptors: list[int]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class _Quarter:
    """One quarter's share of a connection's work; failures are collected, not raised."""

    def __init__(self) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def run(self, connection: Connection, count: int, number: int) -> None:
        parts = [
            (head("POST", path, content_type="application/json", content_length=str(len(body))), body)
            for path, form in ((CHAT, CHAT_BODY), (COMPLETIONS, TEXT_BODY))
            for body in (form % b"false", form % b"true")
        ]
        answered = 0
        try:
            for k in range(count):
                top, body = parts[(number + k) % len(parts)]
                connection.send(top)
                connection.send(body)
                response = connection.response()
                if response.status != 200 or (b"[DONE]" in response.body) != (b'"stream":true' in body):
                    raise AssertionError(f"{response.status} {response.body[:200]!r}")
                answered += 1
        except Exception as error:
            with self._lock:
                self.failures.append(f"connection {number}, request {answered}: {error!r}")
        with self._lock:
            self.answered += answered


def soak(server: Server, requests: int, connections: int) -> Figures:
    """Sends that many requests and fails unless every one is answered in time."""
    opened = [server.connect(HANG_S) for _ in range(connections)]
    began = time.monotonic()
    answered = 0
    memory, descriptors = [], []
    each = max(1, requests // QUARTERS // connections)
    for _ in range(QUARTERS):
        quarter = _Quarter()
        threads = [threading.Thread(target=quarter.run, args=(opened[k], each, k)) for k in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answered += quarter.answered
        memory.append(round(resident_bytes(server.pid) / 1e6, 2))
        descriptors.append(open_files(server.pid))
        assert not quarter.failures, f"{len(quarter.failures)} connections failed: {quarter.failures[:3]}\n{server.log()[-2000:]}"
    elapsed = time.monotonic() - began
    for connection in opened:
        connection.close()
    total = QUARTERS * each * connections
    assert answered == total
    return Figures(total, answered, round(elapsed, 2), round(total / elapsed, 1), memory, descriptors)
