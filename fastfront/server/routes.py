"""The routes and their handlers: from an exchange to the OpenAI layer and the lanes."""

from __future__ import annotations

from collections.abc import Callable

from fastfront._speedups.intake import Generation, Route
from fastfront._speedups.plain_body import PlainBodies
from fastfront.config import KeyScope
from fastfront.openai.chat import CHATS, prepare_chat
from fastfront.openai.completions import COMPLETIONS, prepare_completion
from fastfront.openai.failures import engine_failure
from fastfront.openai.models import models_body, version_body
from fastfront.openai.serving import Serving
from fastfront.openai.tokenize import detokenize_body, tokenize_body
from fastfront.server.apis import Apis
from fastfront.server.beams import BeamRunner
from fastfront.server.exchange import JSON_HEADERS, Exchange
from fastfront.server.health import Health
from fastfront.server.orca import ASKED_WITH, Load, LoadRelay
from fastfront.server.output_log import OutputLog
from fastfront.server.scrapes import Scrapes
from fastfront.streams.dispatcher import Dispatcher
from fastfront.streams.prepared import PreparedCall


class Routes:
    """Handlers of one server. Shared by all request threads; immutable."""

    def __init__(
        self,
        serving: Serving,
        dispatcher: Dispatcher,
        health: Health,
        scrapes: Scrapes,
        *,
        docs: bool = True,
        key_scope: KeyScope | None = None,
        trace: Callable[[PreparedCall, Exchange], None] | None = None,
        load: Callable[[], Load] | None = None,
        outputs: OutputLog | None = None,
    ) -> None:
        """`load()` is what answers tell of the engines' load if a client asks; None: nothing."""
        self._trace = trace
        self._load = load
        self._outputs = outputs
        self._serving = serving
        self._dispatcher = dispatcher
        self._health = health
        self._scrapes = scrapes
        self._beams = BeamRunner(dispatcher)
        self._apis = Apis(serving, dispatcher, health, self._submit, docs=docs, key_scope=key_scope)

    def table(self) -> dict[str, dict[str, Route]]:
        health, metrics = Route(self.health), Route(self.metrics)
        return {
            "/v1/chat/completions": {"POST": Route(self._generation(CHATS, self._chat), reads_body=True)},
            "/v1/completions": {"POST": Route(self._generation(COMPLETIONS, self._completion), reads_body=True)},
            "/v1/models": {"GET": Route(self.models)},
            "/tokenize": {"POST": Route(self.tokenize, reads_body=True)},
            "/detokenize": {"POST": Route(self.detokenize, reads_body=True)},
            "/health": {"GET": health},
            "/ping": {"GET": health, "POST": health},
            "/version": {"GET": Route(self.version)},
            "/metrics": {"GET": metrics, "HEAD": metrics},
            **self._apis.table(),
        }

    def _generation(self, bodies: PlainBodies, prepare: Callable[[Exchange], PreparedCall]) -> Generation:
        serving = self._serving
        return Generation(
            self._health, bodies, serving.quick_chats if bodies is CHATS else serving.quick_completions, self._dispatcher,
            prepare=prepare, submit=self._submit_telling, plain=self._trace is None and self._outputs is None,
            asked_with=ASKED_WITH,
        )  # fmt: skip

    def _chat(self, exchange: Exchange) -> PreparedCall:
        return prepare_chat(exchange.body, exchange.header, self._serving)

    def _completion(self, exchange: Exchange) -> PreparedCall:
        return prepare_completion(exchange.body, exchange.header, self._serving)

    def _submit_telling(self, prepared: PreparedCall, exchange: Exchange) -> None:
        self._tell_load(prepared, exchange)
        self._submit(prepared, exchange)

    def _tell_load(self, prepared: PreparedCall, exchange: Exchange) -> None:
        form = exchange.header(ASKED_WITH)
        if form is not None and self._load is not None and not prepared.stream:
            exchange.protocol = LoadRelay(exchange.protocol, form, self._load)

    def _submit(self, prepared: PreparedCall, exchange: Exchange) -> None:
        if self._outputs is not None:
            self._outputs.follow(prepared, exchange)
        if prepared.steps is not None:
            self._dispatcher.announce(prepared)
            self._beams.begin(prepared.steps, exchange)
            return
        if self._trace is not None:
            self._trace(prepared, exchange)
        self._dispatcher.submit(
            prepared, exchange.request, exchange.protocol, exchange.arrival_time, exchange.extra_headers, exchange.on_end
        )

    def models(self, exchange: Exchange) -> None:
        exchange.json(models_body(self._serving))

    def version(self, exchange: Exchange) -> None:
        exchange.json(version_body())

    def tokenize(self, exchange: Exchange) -> None:
        exchange.json(tokenize_body(exchange.body, exchange.header, self._serving))

    def detokenize(self, exchange: Exchange) -> None:
        exchange.json(detokenize_body(exchange.body, exchange.header, self._serving))

    def health(self, exchange: Exchange) -> None:
        exchange.empty(200 if self._health.ok else 503)

    def metrics(self, exchange: Exchange) -> None:
        self._scrapes.put(exchange)


def failure_answer(code: int, message: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body of a request that failed in the engine before anything was sent."""
    error = engine_failure(code, message)
    return error.status, JSON_HEADERS, error.body()
