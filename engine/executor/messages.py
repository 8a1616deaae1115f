"""What goes through the rings between an engine core and its workers, in MessagePack. numpy arrays are extension 1."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from engine.config import EngineConfig
from engine.executor.plan import StepPlan, StepResult, WorkerInfo

ARRAY = 1
_KINDS = ("i4", "i8", "f4")


class Start(msgspec.Struct, tag=1):
    """The first message to workers: load the model."""

    config: EngineConfig


class Step(msgspec.Struct, tag=2):
    """Run a step."""

    plan: StepPlan


class Call(msgspec.Struct, tag=3):
    """Call a method of the worker."""

    method: str
    args: list[Any]


class Loaded(msgspec.Struct, tag=1):
    """The model is loaded."""

    info: WorkerInfo


class Result(msgspec.Struct, tag=2):
    """A step is done."""

    result: StepResult


class Answer(msgspec.Struct, tag=3):
    """A call is done: what it gave, or the kind and text of the error it raised."""

    value: Any = None
    error: tuple[str, str] | None = None


Order = Start | Step | Call
Reply = Loaded | Result | Answer


class Codec:
    """Encodes and decodes messages. One thread."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_array)
        self._orders = msgspec.msgpack.Decoder(Order, ext_hook=_decode_extension)
        self._replies = msgspec.msgpack.Decoder(Reply, ext_hook=_decode_extension)

    def encode(self, message: Order | Reply) -> bytes:
        """A message as bytes; TypeError for values that are not plain."""
        return self._encoder.encode(message)

    def decode_order(self, data: bytes | bytearray) -> Order:
        """Raises msgspec.DecodeError."""
        return self._orders.decode(data)

    def decode_reply(self, data: bytes | bytearray) -> Reply:
        """Raises msgspec.DecodeError."""
        return self._replies.decode(data)


def _encode_array(value: object) -> msgspec.msgpack.Ext:
    if not isinstance(value, np.ndarray) or value.dtype.str[1:] not in _KINDS or value.dtype.byteorder not in "=<":
        raise TypeError(f"{type(value).__name__} cannot be sent to another process")
    head = struct.pack(f"<2sH{value.ndim}I", value.dtype.str[1:].encode(), value.ndim, *value.shape)
    return msgspec.msgpack.Ext(ARRAY, head + value.tobytes())


def _decode_extension(code: int, data: memoryview) -> object:
    if code != ARRAY or len(data) < 4:
        raise ValueError(f"no array: extension {code} of {len(data)} bytes")
    kind, dimensions = struct.unpack_from("<2sH", data)
    name = kind.decode("ascii", "replace")
    if name not in _KINDS or len(data) < 4 + 4 * dimensions:
        raise ValueError(f"no array: kind {name!r}, {dimensions} dimensions")
    shape = struct.unpack_from(f"<{dimensions}I", data, 4)
    # A copy, because torch wants to be able to write.
    return np.frombuffer(bytearray(data[4 + 4 * dimensions :]), dtype=f"<{name}").reshape(shape)
