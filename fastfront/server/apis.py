"""Routes besides chats and completions: other APIs that end as a chat, and what is answered without an engine."""

from __future__ import annotations

from collections.abc import Callable

from fastfront._speedups.intake import Route
from fastfront.config import KeyScope
from fastfront.errors import ApiError
from fastfront.openai.batch import prepare_batch
from fastfront.openai.bodies import Header
from fastfront.openai.document import DOCS_PAGE, openapi_document
from fastfront.openai.events import compact
from fastfront.openai.invocations import prepare_invocation
from fastfront.openai.messages.prepare import anthropic_errors, count_tokens_body, prepare_message
from fastfront.openai.responses.prepare import prepare_response, unknown_response
from fastfront.openai.serving import Serving
from fastfront.server.exchange import Exchange
from fastfront.server.health import Health
from fastfront.streams.dispatcher import Dispatcher
from fastfront.streams.prepared import PreparedCall

POOLING = (
    "/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
)  # fmt: skip
SCALE_OUT = (
    "/v1/chat/completions/render", "/v1/chat/completions/derender", "/v1/completions/render", "/v1/completions/derender",
    "/v1/responses/render", "/v1/messages/render", "/inference/v1/generate", "/inference/v1/abort_requests",
)  # fmt: skip
Prepare = Callable[[bytes, Header, Serving], PreparedCall]
Submit = Callable[[PreparedCall, Exchange], None]


class Apis:
    """Handlers of one server. Shared by all request threads; immutable."""

    def __init__(
        self,
        serving: Serving,
        dispatcher: Dispatcher,
        health: Health,
        submit: Submit,
        *,
        docs: bool,
        key_scope: KeyScope | None,
    ) -> None:
        """`docs`: whether there are documents of the API; they tell which routes need a key, None: none does."""
        self._serving = serving
        self._submit = submit
        self._docs = docs
        self._key_scope = key_scope
        self._dispatcher = dispatcher
        self._health = health

    def table(self) -> dict[str, dict[str, Route]]:
        stored = Route(self.stored_response)
        return {
            "/v1/chat/completions/batch": {"POST": Route(self.batch, reads_body=True)},
            "/v1/responses": {"POST": Route(self.responses, reads_body=True)},
            "/v1/responses/{response_id}": {"GET": stored},
            "/v1/responses/{response_id}/cancel": {"POST": stored},
            "/v1/messages": {"POST": Route(self.messages, reads_body=True)},
            "/v1/messages/count_tokens": {"POST": Route(self.count_tokens, reads_body=True)},
            "/invocations": {"POST": Route(self.invocations, reads_body=True)},
            "/load": {"GET": Route(self.load)},
            **{path: {"POST": Route(self.no_pooling)} for path in POOLING},
            **{path: {"POST": Route(self.no_scale_out)} for path in SCALE_OUT},
            **(self._documents() if self._docs else {}),
        }

    def _documents(self) -> dict[str, dict[str, Route]]:
        return {"/openapi.json": {"GET": Route(self.openapi)}, "/docs": {"GET": Route(self.docs)}}

    def batch(self, exchange: Exchange) -> None:
        self._generate(exchange, prepare_batch)

    def responses(self, exchange: Exchange) -> None:
        self._generate(exchange, prepare_response)

    def stored_response(self, exchange: Exchange) -> None:
        raise unknown_response(exchange.path.removesuffix("/cancel").rpartition("/")[2])

    def messages(self, exchange: Exchange) -> None:
        with anthropic_errors():
            self._health.check()
        prepared = prepare_message(exchange.body, exchange.header, self._serving)
        with anthropic_errors():
            self._submit(prepared, exchange)

    def count_tokens(self, exchange: Exchange) -> None:
        exchange.json(count_tokens_body(exchange.body, exchange.header, self._serving))

    def invocations(self, exchange: Exchange) -> None:
        """A chat or a completion, whichever the body looks like."""
        self._generate(exchange, prepare_invocation)

    def load(self, exchange: Exchange) -> None:
        exchange.json(compact({"server_load": self._dispatcher.running}))

    def openapi(self, exchange: Exchange) -> None:
        """Made anew each time: hardly anybody asks."""
        exchange.json(compact(openapi_document(self._key_scope)))

    def docs(self, exchange: Exchange) -> None:
        exchange.reply(DOCS_PAGE.encode(), "text/html; charset=utf-8")

    def no_pooling(self, exchange: Exchange) -> None:
        message = f"{exchange.path} needs a pooling model; this server generates text."
        raise ApiError(message, status=501, kind="NotImplementedError")

    def no_scale_out(self, exchange: Exchange) -> None:
        message = "Scale-out endpoints are disabled: this server does not separate preprocessing and generation."
        raise ApiError(message, status=403, kind="PermissionDeniedError")

    def _generate(self, exchange: Exchange, prepare: Prepare) -> None:
        self._health.check()
        self._submit(prepare(exchange.body, exchange.header, self._serving), exchange)
