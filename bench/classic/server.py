"""One API-server process: its sockets at the engine, its event loop, its requests."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, MutableSequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from bench.classic.accept import Acceptor
from bench.classic.choice import Choice, Delta
from bench.classic.http import HttpConnection
from bench.classic.prompts import Prompts
from engine.protocol import ABORT, ADD, EngineCoreOutputs, EngineCoreRequest

_PR_SET_PDEATHSIG = 1
_ENGINE = b"\x00\x00"
_IN_A_ROW = 128
"""Outputs handled before other coroutines get a turn."""
_MAX_LEN = 8192


def run_server(
    index: int, listener: socket.socket, loads: MutableSequence[int], pipe: Connection, model: Path, name: str
) -> None:
    """The life of process `index`: announce addresses by `pipe`, wait for the engine, serve until SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(Server(index, Prompts(model), name).run(listener, loads, pipe))


class BadRequest(Exception):
    """What the client did wrong."""


class Server:
    """Everything of one process; used on its loop only."""

    def __init__(self, index: int, prompts: Prompts, name: str) -> None:
        self._index = index
        self._prompts = prompts
        self._name = name
        self._context = zmq.asyncio.Context()
        self._router = self._bind(zmq.ROUTER)
        self._pull = self._bind(zmq.PULL)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(EngineCoreOutputs).decode
        self._choices: dict[str, Choice] = {}
        self._numbers = itertools.count()

    def _bind(self, kind: int) -> zmq.asyncio.Socket:
        bound = self._context.socket(kind)
        bound.setsockopt(zmq.SNDHWM, 0)
        bound.setsockopt(zmq.RCVHWM, 0)
        bound.setsockopt(zmq.LINGER, 0)
        bound.bind("tcp://127.0.0.1:*")
        return bound

    async def run(self, listener: socket.socket, loads: MutableSequence[int], pipe: Connection) -> None:
        """Serve for ever."""
        addresses = [bound.getsockopt(zmq.LAST_ENDPOINT) for bound in (self._router, self._pull)]
        pipe.send(tuple(address.decode() for address in addresses if isinstance(address, bytes)))
        await self._router.recv_multipart()  # the engine's ready payload
        acceptor = Acceptor(listener, loads, self._index, lambda: HttpConnection(self._handle, acceptor.gone))
        acceptor.start()
        await self._read_outputs()

    async def _read_outputs(self) -> None:
        """The task that every token of this process goes through."""
        while True:
            frames = await self._pull.recv_multipart()
            stopped = []
            for number, output in enumerate(self._decode(frames[0]).outputs, 1):
                if output.request_id in self._choices:
                    choice = self._choices[output.request_id]
                    if choice.push(output):
                        stopped.append(output.request_id)
                    if output.finish_reason is not None:
                        del self._choices[output.request_id]
                if number % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
            await self._abort(stopped)

    async def _abort(self, ids: list[str]) -> None:
        running = [request_id for request_id in ids if self._choices.pop(request_id, None)]
        if running:
            await self._router.send_multipart([_ENGINE, ABORT, self._encode(running)])

    async def _handle(self, connection: HttpConnection, method: str, path: str, body: bytes) -> None:
        if (method, path) == ("GET", "/health"):
            connection.answer(200, {})
        elif (method, path) != ("POST", "/v1/chat/completions"):
            connection.answer(404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}})
        else:
            try:
                await self._chat(connection, json.loads(body))
            except (BadRequest, ValueError, KeyError, TypeError) as error:
                connection.answer(400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})

    async def _chat(self, connection: HttpConnection, fields: dict[str, Any]) -> None:
        request_id = f"chatcmpl-{os.urandom(8).hex()}"
        prompt = self._prompts.chat(fields["messages"])
        if len(prompt) >= _MAX_LEN:
            raise BadRequest(f"the prompt has {len(prompt)} tokens, at most {_MAX_LEN - 1} are possible")
        n = int(fields.get("n") or 1)
        stops = fields.get("stop") or []
        wanted = int(fields.get("max_completion_tokens") or fields.get("max_tokens") or _MAX_LEN - len(prompt))
        params: dict[str, Any] = {
            "max_tokens": min(wanted, _MAX_LEN - len(prompt)),
            "temperature": float(fields.get("temperature", 1.0)),
        }
        if not fields.get("ignore_eos"):
            params |= {"_eos_token_id": self._prompts.eos, "_all_stop_token_ids": [self._prompts.eos]}
        if fields.get("logprobs"):
            params["logprobs"] = int(fields.get("top_logprobs") or 0)
        news = asyncio.Event()
        choices = []
        for index in range(n):
            wire_id = f"{request_id}-{next(self._numbers)}"
            stop_list = [stops] if isinstance(stops, str) else list(stops)
            choice = Choice(wire_id, index, self._prompts.tokenizer, stop_list, news)
            choices.append(choice)
            self._choices[wire_id] = choice
            add = EngineCoreRequest(wire_id, prompt, None, None, None, time.time(), None, None, None, client_index=self._index)
            payload = msgspec.structs.asdict(add) | {"sampling_params": params, "external_req_id": request_id}
            await self._router.send_multipart([_ENGINE, ADD, self._encode(list(payload.values()))])
        try:
            if fields.get("stream"):
                await self._stream(connection, fields, request_id, len(prompt), choices, news)
            else:
                await self._whole(connection, fields, request_id, len(prompt), choices, news)
        finally:
            await self._abort([choice.request_id for choice in choices])

    async def _stream(
        self,
        connection: HttpConnection,
        fields: dict[str, Any],
        request_id: str,
        prompt_len: int,
        choices: list[Choice],
        news: asyncio.Event,
    ) -> None:
        created = int(time.time())
        common = {"id": request_id, "object": "chat.completion.chunk", "created": created, "model": self._name}
        begun: set[int] = set()
        async for choice, delta in _deltas(choices, news):
            if not begun:
                connection.begin_events()
            if choice.index not in begun:
                begun.add(choice.index)
                role = {"role": "assistant", "content": ""}
                first = {"index": choice.index, "delta": role, "logprobs": None, "finish_reason": None}
                await connection.send_event({**common, "choices": [first]})
            entry: dict[str, Any] = {"index": choice.index, "delta": {"content": delta.text}}
            entry["logprobs"] = self._logprobs(delta, fields)
            entry["finish_reason"] = delta.finish
            if fields.get("return_token_ids"):
                entry["token_ids"] = delta.token_ids
            await connection.send_event({**common, "choices": [entry]})
        if (fields.get("stream_options") or {}).get("include_usage"):
            await connection.send_event({**common, "choices": [], "usage": _usage(prompt_len, choices)})
        connection.end_events()

    async def _whole(
        self,
        connection: HttpConnection,
        fields: dict[str, Any],
        request_id: str,
        prompt_len: int,
        choices: list[Choice],
        news: asyncio.Event,
    ) -> None:
        whole = [Delta() for _ in choices]
        async for choice, more in _deltas(choices, news):
            delta = whole[choice.index]
            delta.text += more.text
            delta.logprobs += more.logprobs
            delta.finish = more.finish
        entries = []
        for choice, delta in zip(choices, whole, strict=True):
            entry: dict[str, Any] = {"index": choice.index, "message": {"role": "assistant", "content": delta.text}}
            entry |= {"logprobs": self._logprobs(delta, fields), "finish_reason": delta.finish}
            entries.append(entry)
        answer = {"id": request_id, "object": "chat.completion", "created": int(time.time()), "model": self._name}
        connection.answer(200, {**answer, "choices": entries, "usage": _usage(prompt_len, choices)})

    def _logprobs(self, delta: Delta, fields: dict[str, Any]) -> dict[str, Any] | None:
        if not fields.get("logprobs"):
            return None
        count = int(fields.get("top_logprobs") or 0)
        content = []
        for token, value, top in delta.logprobs:
            entry = self._logprob(token, value)
            content.append({**entry, "top_logprobs": [self._logprob(*pair) for pair in top[:count]]})
        return {"content": content}

    def _logprob(self, token: int, value: float) -> dict[str, Any]:
        text = self._prompts.token(token)
        return {"token": text, "logprob": value, "bytes": list(text.encode())}


async def _deltas(choices: list[Choice], news: asyncio.Event) -> AsyncIterator[tuple[Choice, Delta]]:
    """What comes of the choices, until all have finished."""
    left = len(choices)
    while left:
        await news.wait()
        news.clear()
        for choice in choices:
            delta = choice.take()
            if delta is not None:
                left -= delta.finish is not None
                yield choice, delta


def _usage(prompt_len: int, choices: list[Choice]) -> dict[str, int]:
    made = sum(choice.count for choice in choices)
    return {"prompt_tokens": prompt_len, "total_tokens": prompt_len + made, "completion_tokens": made}
