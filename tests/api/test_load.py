"""Big requests, many requests, many connections: each pays for itself only."""

from __future__ import annotations

import random
import threading
import time

from tests.support.clients import at_once
from tests.support.fixtures import StartServer
from tests.support.http1 import head, post
from tests.support.mock import MockEngine, scripted
from tests.support.processes import cpu_seconds, open_files
from tests.support.server import COMPLETIONS, Server
from tests.support.sse import chunks, joined
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for


def test_c63_a_big_prompt_holds_up_nobody_else(server: Server, mock: MockEngine, pieces: Pieces) -> None:
    """While megabytes of text are being tokenized, /health answers, tokens flow and short requests are served."""
    big = b'{"prompt":"' + b"All work and no play makes Jack a dull boy. " * 20_000 + b'"}'
    script = scripted({"tokens": [pieces.byte_level("a")], "delay_ms": 20}, then="loop")

    def tokenize(done: threading.Event) -> None:
        assert server.post("/tokenize", big).json()["count"] > 200_000
        done.set()

    def rounds() -> int:
        """How many of each were served while one big text was."""
        count, done = 0, threading.Event()
        thread = threading.Thread(target=tokenize, args=(done,))
        with server.connect() as stream:
            stream.send(post(COMPLETIONS, {"prompt": "hello", "stream": True, "max_tokens": 2000, **script}))
            stream.response_head()
            thread.start()
            while not done.is_set():
                assert server.get("/health").status_code == 200
                assert server.completion(scripted(pieces.byte_level("a"), then="stop")).status_code == 200
                assert stream.piece()
                count += 1
        thread.join()
        return count

    # A busy machine may give its time to the big text: then another has to be looked at.
    assert any(rounds() >= 5 for _ in range(10))


def test_c63_a_prompt_far_too_long_is_refused_while_streams_run(server: Server, pieces: Pieces) -> None:
    script = scripted(*[{"tokens": [pieces.byte_level("a")], "delay_ms": 5}] * 40, then="stop")

    def ask(k: int) -> str:
        if k == 0:
            response = server.completion(prompt="word " * 5_400_000)
            assert response.status_code == 400
            return "refused"
        return joined(server.completion_stream(script, max_tokens=50))

    assert at_once(ask, range(21)) == ["refused"] + ["a" * 40] * 20


def test_c64_descriptors_do_not_grow(server: Server) -> None:
    with server.connect() as connection:
        connection.send(head("GET", "/health"))
        connection.response()
        before = open_files(server.pid)
        requests = [post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1, "stream": stream}) for stream in (False, True)]
        for k in range(1000):
            connection.send(requests[k % 2])
            assert connection.response().status == 200
        # Others' connections may have been closed meanwhile.
        wait_for(lambda: open_files(server.pid) <= before, "what the requests have opened to be closed")
    for _ in range(100):
        with server.connect() as connection:
            connection.send(head("GET", "/health"))
            connection.response()
    wait_for(lambda: open_files(server.pid) <= before + 2, "closed connections to be given back")


def test_c64_more_clients_than_descriptors(start: StartServer, pieces: Pieces) -> None:
    """Those that were accepted are served, the others wait or are refused; nothing spins; afterwards all is as before."""
    server = start(prefix=("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")).wait_ready()
    assert server.completion(max_tokens=1).status_code == 200
    before = open_files(server.pid)
    request = post(COMPLETIONS, {"prompt": "hello", **scripted(pieces.byte_level("a"), then="stop")})
    connections = [server.connect() for _ in range(600)]
    answered = 0
    try:
        time.sleep(0.5)
        used = cpu_seconds(server.pid)
        time.sleep(1.0)
        assert cpu_seconds(server.pid) - used < 0.5, "the server spins at its limit of descriptors"
        for connection in connections[:100]:
            connection.send(request)
        for connection in connections[:100]:
            answered += connection.response().status == 200
    finally:
        for connection in connections:
            connection.close()
    assert answered == 100
    wait_for(lambda: open_files(server.pid) <= before + 5, "closed connections to be given back")
    assert server.completion(max_tokens=1).status_code == 200


def test_c76_many_threads_swap_nothing(start: StartServer, pieces: Pieces) -> None:
    """Several lanes and request threads; one request in ten is left. Every answer is its own prompt."""
    server = start(
        "--lanes", "4", "--streams-per-lane", "1", "--request-threads", "8", mock_flags=("--tokens", "echo")
    ).wait_ready()
    mock = server.mock
    assert mock is not None
    clients, each = 8, 200

    def client(k: int) -> None:
        rng = random.Random(k)
        connection = server.connect()
        for _ in range(each):
            ids = [rng.randrange(300, 40_000) for _ in range(rng.randrange(1, 12))]
            stream = rng.random() < 0.5
            body = {"prompt": ids, "stream": stream, "max_tokens": 50, "return_token_ids": True}
            connection.send(post(COMPLETIONS, body))
            if rng.random() < 0.1:
                if rng.random() < 0.5:
                    connection.reset()
                else:
                    connection.close()
                connection = server.connect()
                continue
            response = connection.response()
            assert response.status == 200, response.body
            if stream:
                made = [i for chunk in chunks(response.body) for i in chunk["choices"][0]["token_ids"]]
            else:
                made = response.json()["choices"][0]["token_ids"]
            assert made == [*ids, pieces.named("<|im_end|>")]
        connection.close()

    at_once(client, range(clients))
    accepted, finished, aborted = mock.wait_ended()
    assert len(aborted) == len(set(aborted))
    assert len(accepted) == len(set(accepted))
    assert finished
    assert {add["client"] for add in mock.adds()} == {0, 1, 2, 3}
    assert "ERROR" not in server.log()


def test_64_streams_at_once(server: Server, pieces: Pieces) -> None:
    def ask(k: int) -> str:
        ids = pieces.encode(f"stream {k}: " + "x y z " * 20)
        return joined(server.completion_stream(scripted(*ids, then="stop"), max_tokens=200))

    assert at_once(ask, range(64)) == [f"stream {k}: " + "x y z " * 20 for k in range(64)]
