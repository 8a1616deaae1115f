"""The OpenAPI document, made from the types that requests are read with, and a page that shows it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import TypeAdapter

from fastfront.config import KeyScope
from fastfront.openai.batch import BatchBody
from fastfront.openai.fields import ChatBody, CompletionBody
from fastfront.openai.keys import needs_key
from fastfront.openai.messages.fields import CountBody, MessagesBody
from fastfront.openai.models import API_VERSION
from fastfront.openai.responses.fields import ResponsesBody
from fastfront.openai.tokenize import DetokenizeBody, TokenizeBody

_REFERENCE = "#/components/schemas/{model}"
_JSON, _SSE, _TEXT = "application/json", "text/event-stream", "text/plain"
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class Operation(NamedTuple):
    """What a route takes and gives. `streams` says that `stream: true` is answered with events."""

    path: str
    method: str
    summary: str
    body: Any = None
    streams: bool = False
    gives: str | None = _JSON                      # content type; None for an empty answer
    codes: tuple[int, ...] = ()                    # other statuses besides 200 and those of every request


_REFUSALS = (400, 404, 429, 500, 501, 503)
OPERATIONS: tuple[Operation, ...] = (
    Operation("/v1/chat/completions", "post", "Answer a chat", ChatBody, True, codes=_REFUSALS),
    Operation("/v1/chat/completions/batch", "post", "Answer several chats", BatchBody, codes=_REFUSALS),
    Operation("/v1/completions", "post", "Go on with texts or tokens", CompletionBody, True, codes=_REFUSALS),
    Operation("/v1/responses", "post", "Answer with a response (OpenAI Responses)", ResponsesBody, True, codes=_REFUSALS),
    Operation("/v1/responses/{response_id}", "get", "A stored response: none is", codes=(404,)),
    Operation("/v1/responses/{response_id}/cancel", "post", "Cancel a stored response: none is", codes=(404,)),
    Operation("/v1/messages", "post", "Answer with a message (Anthropic Messages)", MessagesBody, True, codes=_REFUSALS),
    Operation("/v1/messages/count_tokens", "post", "Count the tokens of a message's prompt", CountBody, codes=_REFUSALS),
    Operation("/v1/models", "get", "The names of the model"),
    Operation("/tokenize", "post", "Tokens of a text or of a chat", TokenizeBody, codes=(400, 404)),
    Operation("/detokenize", "post", "Text of tokens", DetokenizeBody, codes=(400, 404)),
    Operation("/invocations", "post", "A chat or a completion, by the body's shape", dict[str, Any], True, codes=_REFUSALS),
    Operation("/health", "get", "200 if requests can be served", gives=None, codes=(503,)),
    Operation("/ping", "get", "The same", gives=None, codes=(503,)),
    Operation("/ping", "post", "The same", gives=None, codes=(503,)),
    Operation("/version", "get", "The version of the API"),
    Operation("/load", "get", "How many answers are being generated"),
    Operation("/metrics", "get", "Prometheus metrics", gives=_TEXT),
)
_MEANINGS = {
    400: "The request is wrong", 401: "No key, or a wrong one", 404: "There is no such model or thing",
    413: "The body is too large", 429: "Too much to do (--max-num-queued-reqs, --max-num-queued-tokens)",
    500: "Failed", 501: "Not implemented", 503: "No engine can serve it",
}  # fmt: skip


def openapi_document(key_scope: KeyScope | None = None) -> dict[str, Any]:
    """The document of all operations; `key_scope` says which need an API key, None: none does."""
    typed = [(operation, TypeAdapter(operation.body)) for operation in OPERATIONS if operation.body is not None]
    keys = [(_key(operation), "validation", adapter) for operation, adapter in typed]
    schemas, shared = TypeAdapter.json_schemas(keys, ref_template=_REFERENCE)  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        schema = None if operation.body is None else schemas[_key(operation), "validation"]
        guarded = key_scope is not None and needs_key(operation.path, key_scope)
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, schema, guarded)
    components: dict[str, Any] = {"schemas": {**shared.get("$defs", {}), "Error": _error_schema()}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "fastfront", "version": API_VERSION},
        "paths": paths,
        "components": components,
    }
    if key_scope is not None:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document


def _key(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def _operation(operation: Operation, schema: Any, guarded: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"summary": operation.summary, "operationId": _key(operation).replace("/", "_").replace(" ", "")}
    if "{response_id}" in operation.path:
        said["parameters"] = [{"name": "response_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    codes = set(operation.codes)
    if schema is not None:
        said["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
        codes.add(413)
    if guarded:
        said["security"] = [{"key": []}]
        codes.add(401)
    content: dict[str, Any] = {}
    if operation.gives == _JSON:
        content[_JSON] = {"schema": _ANY_OBJECT}
    elif operation.gives is not None:
        content[operation.gives] = {"schema": {"type": "string"}}
    if operation.streams:
        content[_SSE] = {}
    said["responses"] = {"200": {"description": "Done", **({"content": content} if content else {})}}
    for code in sorted(codes):
        said["responses"][str(code)] = {"description": _MEANINGS[code], **({} if operation.gives is None else _error())}
    return said


def _error() -> dict[str, Any]:
    return {"content": {_JSON: {"schema": {"$ref": _REFERENCE.format(model="Error")}}}}


def _error_schema() -> dict[str, Any]:
    """An object in nearly all cases; a missing key is answered with a string."""
    return {"type": "object", "properties": {"error": {"type": ["object", "string"]}}, "required": ["error"]}


DOCS_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>fastfront</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer } summary code { font-weight: bold } pre { background: #f4f4f4; padding: 1rem; overflow: auto }
</style>
<h1>fastfront</h1><p>Made from <a href="openapi.json">openapi.json</a>.</p><div id="routes"></div>
<script>
fetch("openapi.json").then(answer => answer.json()).then(spec => {
  const place = document.getElementById("routes");
  for (const [path, methods] of Object.entries(spec.paths)) for (const [method, operation] of Object.entries(methods)) {
    const box = document.createElement("details"), head = document.createElement("summary");
    const name = document.createElement("code");
    name.textContent = method.toUpperCase() + " " + path;
    head.append(name, " " + operation.summary);
    box.append(head);
    const body = operation.requestBody?.content["application/json"].schema;
    if (body) {
      const text = document.createElement("pre");
      const known = body.$ref ? spec.components.schemas[body.$ref.split("/").pop()] : body;
      text.textContent = JSON.stringify(known, null, 2);
      box.append(text);
    }
    place.append(box);
  }
});
</script></html>
"""
