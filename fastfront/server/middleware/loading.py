"""Finding middleware by its import path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

from fastfront.errors import SetupError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Wrap = Callable[[Asgi], Asgi]


def load(paths: Iterable[str]) -> list[tuple[str, Wrap]]:
    """Each path with what wraps an application so. Raises SetupError naming the path."""
    return [(path, _wrap(path)) for path in paths]


def wrapped(app: Asgi, wraps: Iterable[tuple[str, Wrap]]) -> Asgi:
    """The application inside all of them; the last is the outermost, as in vLLM. Raises SetupError naming the path."""
    for path, wrap in wraps:
        try:
            app = wrap(app)
        except Exception as error:
            raise SetupError(f"--middleware {path}: {type(error).__name__}: {error}") from error
    return app


def _called(kind: Any, app: Asgi) -> Asgi:
    made: Asgi = kind(app)
    return made


def _wrap(path: str) -> Wrap:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module does when it is imported
        raise SetupError(f"--middleware {path}: {type(error).__name__}: {error}") from error
    if inspect.isclass(found):
        return partial(_called, found)
    if not inspect.iscoroutinefunction(found):
        raise SetupError(f"--middleware {path} is no class (ASGI middleware) and no coroutine function (request, call_next)")
    try:
        from starlette.middleware.base import BaseHTTPMiddleware  # noqa: PLC0415 - not among what is installed with fastfront
    except ImportError as error:
        raise SetupError(f"--middleware {path} is a coroutine function, which needs starlette: pip install starlette") from error
    return lambda app: BaseHTTPMiddleware(app, dispatch=found)
