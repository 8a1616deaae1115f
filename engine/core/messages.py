"""What the threads of an engine core hand to each other."""

from __future__ import annotations

import enum
from typing import NamedTuple

from engine.protocol import EngineCoreOutputs, UtilityCall
from engine.scheduler.request import Request
from engine.structured.grammars import Compiled


class Add(NamedTuple):
    """A request that may be served."""

    request: Request


class Refuse(NamedTuple):
    """An ADD that failed its checks; `client` is where to say so."""

    request_id: str
    client: int
    message: str


class Abort(NamedTuple):
    """Requests nobody waits for any more."""

    request_ids: list[str]


class Call(NamedTuple):
    """A utility call; `client` gets the answer."""

    call: UtilityCall
    client: int


class Leave(NamedTuple):
    """End the process; `why` is for the log, an `error` is fatal.

    What is in flight may take `drain_s` seconds to end, unless another Leave comes.
    """

    why: str
    error: bool = False
    drain_s: float = 0.0


Input = Add | Refuse | Abort | Call | Compiled | Leave


class Dead(enum.Enum):
    """The last thing an output thread sends: nothing, or the sentinel that this engine has failed."""

    QUIETLY = 0
    FAILED = 1


class Output(NamedTuple):
    """A message for one client; COORDINATOR for the coordinator."""

    client: int
    message: EngineCoreOutputs


COORDINATOR = -1
