"""What a client asks of a server, and what must hold of the answers whichever frontend and engine are behind it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bench.peers.base import SERVED

TIMEOUT_S = 180.0  # the first request with logprobs makes vLLM's engine compile for a minute
PROMPT = "The capital of France is the city of"
CHAT = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
TOKENS = 16
AT_ONCE = 12


class CheckFailed(Exception):
    """An answer is not as it must be."""


def require(holds: bool, what: str, found: object = "") -> None:
    if not holds:
        raise CheckFailed(f"{what}: {str(found)[:300]}" if found != "" else what)


class Client:
    """A server at a port of this machine. Any thread: a connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, method: str, path: str, body: object = None) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The answer's head is there; raises CheckFailed if it is not 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        headers = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            text = response.read().decode("utf-8", "replace")
            connection.close()
            raise CheckFailed(f"{path} answered {response.status}: {text[:300]}")
        return connection, response

    def json(self, method: str, path: str, body: object = None) -> Any:
        connection, response = self.open(method, path, body)
        try:
            return json.loads(response.read())
        finally:
            connection.close()

    def events(self, path: str, body: object) -> Iterator[Any]:
        """The events of a stream; raises CheckFailed if it does not end with [DONE]."""
        connection, response = self.open("POST", path, body)
        try:
            for line in response:
                data = line.strip().removeprefix(b"data: ")
                if data == b"[DONE]":
                    return
                if data and line.startswith(b"data: "):
                    event = json.loads(data)
                    require("error" not in event, "an error in the stream", event)
                    yield event
        finally:
            connection.close()
        raise CheckFailed("the stream ended without [DONE]")


def completion(**more: object) -> dict[str, object]:
    return {"model": SERVED, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, **more}


def chat(**more: object) -> dict[str, object]:
    return {"model": SERVED, "messages": CHAT, "max_tokens": TOKENS, "temperature": 0, **more}


def models(client: Client) -> None:
    require(client.json("GET", "/v1/models")["data"][0]["id"] == SERVED, "the model's name")


def plain(client: Client) -> str:
    """A completion; its text."""
    answer = client.json("POST", "/v1/completions", completion())
    choice, usage = answer["choices"][0], answer["usage"]
    require(bool(choice["text"].strip()), "no text", answer)
    require(choice["finish_reason"] in ("stop", "length"), "finish_reason", choice["finish_reason"])
    require(0 < usage["completion_tokens"] <= TOKENS and usage["prompt_tokens"] > 4, "usage", usage)
    return str(choice["text"])


def streamed(client: Client) -> None:
    """Streams have the same text as plain answers, a token at a time."""
    whole = client.json("POST", "/v1/chat/completions", chat())["choices"][0]["message"]["content"]
    pieces = []
    for event in client.events("/v1/chat/completions", chat(stream=True)):
        pieces += [choice["delta"].get("content") or "" for choice in event["choices"]]
    require("".join(pieces) == whole, "the stream's text", ("".join(pieces), whole))
    require(len([piece for piece in pieces if piece]) > 1, "the stream came in one piece", pieces)


def logprobs(client: Client) -> None:
    """Of a completion, and of a chat that is streamed."""
    found = client.json("POST", "/v1/completions", completion(logprobs=3))["choices"][0]["logprobs"]
    require(bool(found["tokens"]), "no logprobs", found)
    require(len(found["token_logprobs"]) == len(found["tokens"]) == len(found["top_logprobs"]), "lengths", found)
    require(all(value <= 0 for value in found["token_logprobs"]), "a positive logprob", found["token_logprobs"])
    # at least one, as texts are the keys and several tokens may have the same one
    require(all(1 <= len(top) <= 4 for top in found["top_logprobs"]), "alternatives", found["top_logprobs"])
    entries: list[Any] = []
    for event in client.events("/v1/chat/completions", chat(stream=True, logprobs=True, top_logprobs=2)):
        for choice in event["choices"]:
            entries += (choice.get("logprobs") or {}).get("content") or []
    require(len(entries) > 1, "no logprobs in the stream", entries)
    require(all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in entries), "entries", entries)


def stops(client: Client) -> None:
    """A stop string ends the answer and is not in it."""
    whole = client.json("POST", "/v1/completions", completion())["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:3]
    choice = client.json("POST", "/v1/completions", completion(stop=[stop]))["choices"][0]
    require(choice["finish_reason"] == "stop", "finish_reason", choice)
    require(choice["text"] == whole[: whole.index(stop)], "text", (choice["text"], whole, stop))


def sampled(client: Client) -> None:
    """A seed repeats; penalties, top_p and top_k are taken."""
    body = completion(temperature=0.9, top_p=0.9, top_k=40, seed=7, presence_penalty=0.2, frequency_penalty=0.1)
    first, second = (client.json("POST", "/v1/completions", body)["choices"][0]["text"] for _ in range(2))
    require(first == second, "the same seed, other text", (first, second))


def many(client: Client) -> None:
    """Streams at once, of which some are given up."""
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            events = client.events("/v1/chat/completions", chat(stream=True, max_tokens=40))
            for count, _ in enumerate(events):
                if number % 3 == 0 and count == 3:
                    events.close()  # type: ignore[attr-defined]
                    return
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise CheckFailed(f"{len(failures)} of {AT_ONCE} streams failed, one with {failures[0]}")
    plain(client)


CHECKS: tuple[tuple[str, Callable[[Client], object]], ...] = (
    ("models", models), ("plain", plain), ("streaming", streamed), ("logprobs", logprobs), ("stop string", stops),
    ("sampling", sampled), ("many at once", many),
)  # fmt: skip
