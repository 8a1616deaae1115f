"""LoRA adapters at start, and the routes that load and unload them (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Required

import setproctitle
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from fastfront._speedups.intake import Route
from fastfront.config import LoraModule
from fastfront.engine_client.handshake import EngineInfo
from fastfront.engine_client.utility import Sender, Utilities
from fastfront.errors import ApiError, EngineDeadError, FastfrontError, SetupError
from fastfront.openai.adapters import Adapters, LoraRequest
from fastfront.openai.bodies import BodyReader, require_json
from fastfront.server.exchange import Exchange

log = logging.getLogger("fastfront.server")
LOAD_TIMEOUT_S = 600.0
LOOK_S = 0.1


class LoadBody(TypedDict, total=False):
    """An adapter to load."""

    lora_name: Required[str]
    lora_path: Required[str]
    load_inplace: bool
    is_3d_lora_weight: bool


class UnloadBody(TypedDict, total=False):
    """An adapter to forget."""

    lora_name: Required[str]
    lora_int_id: int | None


_LOAD: BodyReader[LoadBody] = BodyReader(TypeAdapter(LoadBody))
_UNLOAD: BodyReader[UnloadBody] = BodyReader(TypeAdapter(UnloadBody))


class AdapterLoader:
    """Has the engines load adapters. Any thread; a call takes as long as the engines do."""

    def __init__(self, adapters: Adapters, utilities: Utilities, lane: Sender) -> None:
        self._adapters = adapters
        self._utilities = utilities
        self._lane = lane

    def table(self) -> dict[str, dict[str, Route]]:
        """Routes that change adapters."""
        return {
            "/v1/load_lora_adapter": {"POST": Route(self.load, reads_body=True)},
            "/v1/unload_lora_adapter": {"POST": Route(self.unload, reads_body=True)},
        }

    def load(self, exchange: Exchange) -> None:
        require_json(exchange.header)
        body = _LOAD.read(exchange.body)
        in_place, stacked = body.get("load_inplace", False), body.get("is_3d_lora_weight", False)
        _answer(exchange, lambda: self._adapters.load(
            body["lora_name"], body["lora_path"], self._add, in_place=in_place, stacked=stacked
        ))  # fmt: skip

    def unload(self, exchange: Exchange) -> None:
        require_json(exchange.header)
        name = _UNLOAD.read(exchange.body)["lora_name"]
        _answer(exchange, lambda: self._adapters.unload(name))

    def load_modules(self, modules: Collection[LoraModule], check: Callable[[], None]) -> None:
        """Loads what is there from the start, while `check()` is asked again and again whether to go on, which raises if not.

        Raises SetupError naming the adapter at fault.
        """
        for module in modules:
            failures: list[FastfrontError] = []
            thread = threading.Thread(target=self._load_module, args=(module, failures), name="lora-modules", daemon=True)
            thread.start()
            while thread.is_alive():
                thread.join(LOOK_S)
                check()
            for failure in failures:
                raise SetupError(f"--lora-modules {module.name}={module.path}: {failure}")

    def _load_module(self, module: LoraModule, failures: list[FastfrontError]) -> None:
        try:
            self._adapters.load(
                module.name, module.path, self._add, parent=module.base_model_name, stacked=module.is_3d_lora_weight
            )
        except FastfrontError as error:
            failures.append(error)

    def _add(self, request: LoraRequest) -> None:
        self._utilities.call(self._lane, "add_lora", [request], LOAD_TIMEOUT_S)


def require_adapters(engines: Collection[EngineInfo]) -> None:
    """Raises SetupError if an engine was started without adapters."""
    for engine in engines:
        if not engine.limits.get("supports_lora"):
            raise SetupError(f"--enable-lora: engine {engine.index} serves no adapters; start it with --enable-lora too")


def _answer(exchange: Exchange, work: Callable[[], str]) -> None:
    """Answers with the text that `work` gives, on a thread of its own: engines read files meanwhile."""
    threading.Thread(target=_run, args=(exchange, work), name="lora-update", daemon=True).start()


def _run(exchange: Exchange, work: Callable[[], str]) -> None:
    setproctitle.setthreadtitle("lora-update")
    try:
        exchange.reply(work().encode(), "text/plain; charset=utf-8")
    except EngineDeadError as error:
        _refuse(exchange, ApiError(str(error), status=503, kind="ServiceUnavailableError"))
    except ApiError as error:
        _refuse(exchange, error)
    except Exception:
        log.exception("%s failed", exchange.path)
        _refuse(exchange, ApiError("Internal server error", status=500, kind="InternalServerError"))


def _refuse(exchange: Exchange, error: ApiError) -> None:
    exchange.json(error.body(), error.status)
