"""The OpenAPI document tells of every route, and of nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fastfront._speedups.engine_loads import EngineLoads
from fastfront._speedups.submitter import Submitter
from fastfront.config import KeyScope
from fastfront.openai.document import DOCS_PAGE, openapi_document
from fastfront.openai.serving import Serving
from fastfront.server.apis import POOLING, SCALE_OUT
from fastfront.server.health import Health
from fastfront.server.routes import Routes

OTHERS: Any = None  # what routes only hold


def routes_of(serving: Serving, docs: bool = True) -> Routes:
    nobody = Submitter([], EngineLoads(0, 1), None, "", None, streams_per_lane=1, chooses=False, admits=False)
    dispatcher: Any = nobody
    return Routes(serving, dispatcher, Health(lambda: None), OTHERS, docs=docs)


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in references(item)]
    return [found for item in value for found in references(item)] if isinstance(value, list) else []


def test_every_route_is_in_it(serving: Serving) -> None:
    table = routes_of(serving).table()
    served = {(path, method.lower()) for path, methods in table.items() for method in methods}
    undocumented = {*POOLING, *SCALE_OUT, "/openapi.json", "/docs"}
    told = {(path, method) for path, methods in openapi_document()["paths"].items() for method in methods}
    assert told == {(path, method) for path, method in served if path not in undocumented and method != "head"}


def test_without_documents(serving: Serving) -> None:
    table = routes_of(serving, docs=False).table()
    assert not {"/openapi.json", "/docs"} & table.keys()


def test_references_lead_somewhere() -> None:
    document = json.loads(json.dumps(openapi_document()))
    schemas = document["components"]["schemas"]
    found = references(document)
    assert {"ChatBody", "CompletionBody", "MessagesBody", "ResponsesBody", "BatchBody"} <= schemas.keys()
    assert {name.rpartition("/")[2] for name in found} <= schemas.keys()
    assert schemas["ChatBody"]["required"] == ["messages"]


@pytest.mark.parametrize(
    ("scope", "guarded"), [(None, set()), ("all", {"/v1/chat/completions", "/tokenize"}), ("vllm", {"/v1/chat/completions"})]
)
def test_keys(scope: KeyScope | None, guarded: set[str]) -> None:
    document = openapi_document(scope)
    assert ("securitySchemes" in document["components"]) == (scope is not None)
    for path in ("/v1/chat/completions", "/tokenize", "/health"):
        (operation,) = document["paths"][path].values()
        assert ("security" in operation, "401" in operation["responses"]) == (path in guarded, path in guarded)


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for methods in openapi_document()["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    assert not re.search(r"https?:|//cdn", DOCS_PAGE)
