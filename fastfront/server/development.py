"""Routes that act on engines or tell about the server's inside; only with VLLM_SERVER_DEV_MODE=1."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import os
import platform
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from urllib.parse import parse_qs

import setproctitle

from fastfront._speedups.intake import Route
from fastfront.config import ServeConfig
from fastfront.engine_client.utility import Sender, Utilities
from fastfront.errors import ApiError, EngineDeadError, EngineError
from fastfront.metrics.sleep import SleepOperations, SleepState
from fastfront.openai.events import compact
from fastfront.server.exchange import Exchange

log = logging.getLogger("fastfront.server")
CALL_TIMEOUT_S = 300.0
SLEEPING = {"sleep": "sleep", "wake_up": "wake"}    # methods of engines, and their operations in /metrics
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_FIELDS = ("api_keys", "hf_token")
Query = dict[str, list[str]]
Call = tuple[str, list[Any]]
Answer = Callable[[list[Any], list[Any]], object]


def development_mode() -> bool:
    return os.environ.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0")


class Development:
    """Handlers of one server. Engines may take long over their methods, so each call waits on a thread of its own."""

    def __init__(
        self, config: ServeConfig, utilities: Utilities, lane: Sender, sleep: SleepState, operations: SleepOperations
    ) -> None:
        """`sleep` is told when the engines have gone to sleep, or are awake again; `operations`, how long it took."""
        self._sleep = sleep
        self._operations = operations
        self._config = config
        self._utilities = utilities
        self._lane = lane

    def table(self) -> dict[str, dict[str, Route]]:
        return {
            "/server_info": {"GET": Route(self.server_info)},
            "/reset_prefix_cache": {"POST": self._route(_reset_prefix_cache, lambda found, _: {"success": all(found)})},
            "/reset_mm_cache": {"POST": self._route(lambda _: ("reset_mm_cache", []))},
            "/reset_encoder_cache": {"POST": self._route(lambda _: ("reset_encoder_cache", []))},
            "/sleep": {"POST": self._route(_sleep, lambda _, args: {"status": "sleeping", "level": args[0]})},
            "/wake_up": {"POST": self._route(lambda query: ("wake_up", [query.get("tags")]), _woken)},
            "/is_sleeping": {"GET": self._route(lambda _: ("is_sleeping", []), lambda found, _: {"is_sleeping": all(found)})},
            "/pause": {"POST": self._route(_pause, lambda *_: {"status": "paused"})},
            "/resume": {"POST": self._route(lambda _: ("resume_scheduler", []), lambda *_: {"status": "resumed"})},
            "/is_paused": {"GET": self._route(lambda _: ("is_scheduler_paused", []), lambda found, _: {"is_paused": all(found)})},
        }

    def server_info(self, exchange: Exchange) -> None:
        """The configuration, without secrets. `config_format=json` gives it as an object, else it is text."""
        config = {name: value for name, value in dataclasses.asdict(self._config).items() if name not in _SECRET_FIELDS}
        shown = {name: value if isinstance(value, (int, float, type(None))) else str(value) for name, value in config.items()}
        as_object = _query(exchange).get("config_format", ["text"])[0] == "json"
        environment = {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("VLLM_", "FASTFRONT_")) and not any(word in name for word in _SECRET)
        }
        system = {
            "fastfront": importlib.metadata.version("fastfront"),
            "python": sys.version,
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
        }
        text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        exchange.json(compact({"vllm_config": shown if as_object else text, "vllm_env": environment, "system_env": system}))

    def _route(self, call_of: Callable[[Query], Call], answer: Answer | None = None) -> Route:
        """A route that calls a method of all engines; it answers with what `answer` makes of the results
        and the arguments, or nothing."""

        def handle(exchange: Exchange) -> None:
            method, args = call_of(_query(exchange))
            waiting = (exchange, method, args, answer)
            threading.Thread(target=self._call, args=waiting, name=f"utility-{method}", daemon=True).start()

        return Route(handle)

    def _call(self, exchange: Exchange, method: str, args: list[Any], answer: Answer | None) -> None:
        setproctitle.setthreadtitle(f"utility-{method}")
        try:
            with self._operations.timed(SLEEPING[method]) if method in SLEEPING else nullcontext():
                found = self._utilities.call(self._lane, method, args, CALL_TIMEOUT_S)
        except EngineDeadError as error:
            self._refuse(exchange, ApiError(str(error), status=503, kind="ServiceUnavailableError"))
        except EngineError as error:
            missing = "no method" in str(error) or "has no attribute" in str(error)
            status, kind = (501, "NotImplementedError") if missing else (500, "InternalServerError")
            self._refuse(exchange, ApiError(str(error), status=status, kind=kind))
        except Exception:
            log.exception("%s failed", method)
            self._refuse(exchange, ApiError("Internal server error", status=500, kind="InternalServerError"))
        else:
            if method == "sleep":
                self._sleep.set(args[0])
            elif method == "wake_up" and all(found):
                self._sleep.set(0)
            if answer is None:
                exchange.empty(200)
            else:
                exchange.json(compact(answer(found, args)))

    def _refuse(self, exchange: Exchange, error: ApiError) -> None:
        exchange.json(error.body(), error.status)


def _query(exchange: Exchange) -> Query:
    return parse_qs(exchange.request.query_string)


def _flag(query: Query, name: str, default: bool = False) -> bool:
    value = query.get(name, [str(default)])[0].lower()
    if value not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ApiError(f"{name} must be true or false, not {value!r}.", param=name)
    return value in ("true", "1", "yes", "on")


def _reset_prefix_cache(query: Query) -> Call:
    return "reset_prefix_cache", [_flag(query, "reset_running_requests"), _flag(query, "reset_external")]


def _sleep(query: Query) -> Call:
    level = query.get("level", ["1"])[0]
    if level not in ("0", "1", "2"):
        raise ApiError(f"level must be 0, 1 or 2, not {level!r}.", param="level")
    return "sleep", [int(level), _mode(query)]


def _woken(found: list[Any], args: list[Any]) -> object:
    """Engines say whether they serve again; told to bring back only some of what they have put away they may not."""
    return {"status": "awake" if all(found) else "sleeping", "tags": args[0]}


def _pause(query: Query) -> Call:
    return "pause_scheduler", [_mode(query), _flag(query, "clear_cache", True)]


def _mode(query: Query) -> str:
    mode = query.get("mode", ["abort"])[0]
    if mode not in ("abort", "wait", "keep"):
        raise ApiError(f"mode must be abort, wait or keep, not {mode!r}.", param="mode")
    return mode
