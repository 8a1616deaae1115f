"""The dashboard asks for what the server has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastfront._speedups.msgpack import packb
from tests.support.mock import MockEngine, scripted
from tests.support.server import Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "fastfront.json"
OPERATIONS = (DASHBOARD.parents[1] / "operations.md").read_text()
NAME = re.compile(r"\b(?:vllm:|fastfront:|http_|process_|python_)\w+")
SELECTOR = re.compile(r"((?:vllm:|fastfront:|http_|process_|python_)\w+)\{([^}]*)\}")
SCRAPE_LABELS = {"instance"}  # added by Prometheus


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def queries() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.fixture
def samples(server: Server, mock: MockEngine, pieces: Pieces) -> dict[str, set[str]]:
    """Labels by sample name, after a request and with an engine that decodes speculatively."""
    assert server.completion(scripted(pieces.byte_level("a"), then="stop")).status_code == 200
    drafts = {"num_drafts": 1, "num_draft_tokens": 3, "num_accepted_tokens": 2, "num_accepted_tokens_per_pos": [1, 1, 0]}
    mock.raw(packb([0, [], {"spec_decoding_stats": drafts}, 1.0]))
    text = wait_for(lambda: (page := server.get("/metrics").text) and ("spec_decode" in page and page), "the drafts")
    return {sample.name: set(sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples}


def test_every_metric_is_there_with_the_labels_asked_for(samples: dict[str, set[str]]) -> None:
    asked = {name for query in queries() for name in NAME.findall(query)}
    assert len(asked) > 40
    assert not asked - set(samples)
    for query in queries():
        for name, selector in SELECTOR.findall(query):
            labels = set(re.findall(r"(\w+)=", selector)) - SCRAPE_LABELS
            assert labels <= samples[name], f"{name}: {query}"
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")} - SCRAPE_LABELS
        assert grouped <= set().union(*(samples[name] for name in NAME.findall(query))), query


def test_own_metrics_are_documented(samples: dict[str, set[str]]) -> None:
    """Each name in docs/operations.md, with its labels, and no name that is not there."""
    rows = re.findall(r"^\| (`fastfront:[^|]*) \|([^|]*)\|", OPERATIONS, re.M)
    documented = {name: set(labels.split()) - {""} for names, labels in rows for name in re.findall(r"`([\w:]+)`", names)}
    own = {name: labels for name, labels in samples.items() if name.startswith("fastfront:") and not name.endswith("_created")}
    base = {re.sub(r"_(bucket|sum|count)$", "", name): labels - {"le"} for name, labels in own.items()}
    assert documented == base


def test_names_and_places_of_panels_are_their_own() -> None:
    every = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_brackets_close() -> None:
    for query in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query
