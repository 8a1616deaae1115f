"""One span for every generation, under the client's own trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.collector import Collector, GrpcCollector
from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, HELLO, Server, merged
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("kind", [Collector, GrpcCollector])
def test_generations_become_spans(kind: type[Collector | GrpcCollector], tmp_path: Path, pieces: Pieces) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    with kind() as collector, Server(
        tmp_path, "--otlp-traces-endpoint", collector.address, mock=mock, env=collector.variables
    ) as server:
        server.wait_ready()
        script = scripted(*pieces.many("a", "b"), then="stop")
        body = merged({"messages": HELLO, "temperature": 0.5, "max_tokens": 9}, script)
        wanted = server.post(CHAT, body, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="k=v").json()
        assert server.post(CHAT, body | {"stream": True}).status_code == 200
        assert server.post(CHAT, body, traceparent=f"00-{TRACE}-{PARENT}-00").status_code == 200  # not sampled
        assert server.post(CHAT, {"messages": HELLO, "temperature": 5}).status_code == 400
        failing = scripted({"finish": "error"})
        assert server.completion(failing).status_code == 500
        assert server.get("/health").status_code == 200
        found = wait_for(lambda: len(found := collector.spans()) >= 3 and found, "three spans")
        server.stop()
        assert len(collector.spans()) == 3

    first, second, failed = sorted(found, key=lambda span: span.began_ns)
    assert (first.trace_id, first.parent_id, first.trace_state) == (TRACE, PARENT, "k=v")
    assert (first.name, first.kind, first.status) == ("llm_request", 2, 0)
    told = first.attributes
    assert told["gen_ai.request.id"] == wanted["id"]
    assert told["gen_ai.usage.prompt_tokens"] == wanted["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.completion_tokens"] == wanted["usage"]["completion_tokens"]
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.top_p"]) == (0.5, 1.0)
    assert (told["gen_ai.request.max_tokens"], told["gen_ai.request.n"]) == (9, 1)
    assert 0 < told["gen_ai.latency.time_to_first_token"] <= told["gen_ai.latency.e2e"], "also of an answer in one piece"
    phases = [told[f"gen_ai.latency.time_in_{name}"] for name in ("queue", "model_prefill", "model_decode")]
    assert told["gen_ai.latency.time_in_model_inference"] == phases[1] + phases[2]
    assert 0 <= min(phases) <= sum(phases) <= told["gen_ai.latency.e2e"] + 1.0
    assert phases[2] > 0, "two tokens in two steps"
    assert "gen_ai.latency.time_in_model_decode" not in failed.attributes
    assert 0 < first.began_ns < first.ended_ns
    assert (second.trace_id != TRACE, second.parent_id) == (True, "")
    assert 0 < second.attributes["gen_ai.latency.time_to_first_token"] <= second.attributes["gen_ai.latency.e2e"]
    assert (failed.status, failed.attributes["http.response.status_code"]) == (2, 500)


def test_the_access_log_and_traces_go_together(tmp_path: Path) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    with GrpcCollector() as collector, Server(tmp_path, "--otlp-traces-endpoint", collector.address, mock=mock) as server:
        server.wait_ready()
        for stream in (False, True):
            assert server.completion(max_tokens=2, stream=stream).status_code == 200
        server.stop()
        wait_for(lambda: len(collector.spans()) == 2, "both spans")
        assert server.log().count('"POST /v1/completions HTTP/1.1" 200 OK') == 2


def test_a_bad_endpoint_ends_the_start(tmp_path: Path) -> None:
    with Server(tmp_path, "--otlp-traces-endpoint", "udp://localhost:4317", mock=MockEngine(tmp_path)) as server:
        assert server.exits() == 1
        assert "--otlp-traces-endpoint udp://localhost:4317" in server.log()
