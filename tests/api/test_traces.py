"""One span for every generation, under the client's own trace."""

from __future__ import annotations

from pathlib import Path

from tests.support.collector import Collector
from tests.support.mock import MockEngine, scripted
from tests.support.server import CHAT, HELLO, Server, merged
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_generations_become_spans(tmp_path: Path, pieces: Pieces) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    with Collector() as collector, Server(tmp_path, "--otlp-traces-endpoint", collector.address, mock=mock) as server:
        server.wait_ready()
        script = scripted(*pieces.many("a", "b"), then="stop")
        body = merged({"messages": HELLO, "temperature": 0.5, "max_tokens": 9}, script)
        wanted = server.post(CHAT, body, traceparent=f"00-{TRACE}-{PARENT}-01").json()
        assert server.post(CHAT, body | {"stream": True}).status_code == 200
        assert server.post(CHAT, body, traceparent=f"00-{TRACE}-{PARENT}-00").status_code == 200  # not sampled
        assert server.post(CHAT, {"messages": HELLO, "temperature": 5}).status_code == 400
        failing = scripted({"finish": "error"})
        assert server.completion(failing).status_code == 500
        assert server.get("/health").status_code == 200
        first, second, failed = wait_for(lambda: len(found := collector.spans()) >= 3 and found, "three spans")
        server.stop()
        assert len(collector.spans()) == 3

    assert (first["traceId"], first["parentSpanId"], first["name"]) == (TRACE, PARENT, "llm_request")
    told = first["attributes"]
    assert told["gen_ai.request.id"] == wanted["id"]
    assert told["gen_ai.usage.prompt_tokens"] == str(wanted["usage"]["prompt_tokens"])
    assert told["gen_ai.usage.completion_tokens"] == str(wanted["usage"]["completion_tokens"])
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.max_tokens"]) == (0.5, "9")
    assert "gen_ai.latency.time_to_first_token" not in told
    phases = [told[f"gen_ai.latency.time_in_{name}"] for name in ("queue", "model_prefill", "model_decode")]
    assert told["gen_ai.latency.time_in_model_inference"] == phases[1] + phases[2]
    assert 0 <= min(phases) <= sum(phases) <= told["gen_ai.latency.e2e"] + 1.0
    assert phases[2] > 0, "two tokens in two steps"
    assert "gen_ai.latency.time_in_model_decode" not in failed["attributes"]
    assert int(first["startTimeUnixNano"]) < int(first["endTimeUnixNano"])
    assert second["traceId"] != TRACE
    assert "parentSpanId" not in second
    assert 0 < second["attributes"]["gen_ai.latency.time_to_first_token"] <= second["attributes"]["gen_ai.latency.e2e"]
    assert failed["status"] == {"code": 2}
    assert failed["attributes"]["http.response.status_code"] == "500"


def test_the_access_log_and_traces_go_together(tmp_path: Path) -> None:
    mock = MockEngine(tmp_path, "--tokens", "echo")
    with Collector() as collector, Server(tmp_path, "--otlp-traces-endpoint", collector.address, mock=mock) as server:
        server.wait_ready()
        for stream in (False, True):
            assert server.completion(max_tokens=2, stream=stream).status_code == 200
        server.stop()
        assert len(collector.spans()) == 2
        assert server.log().count('"POST /v1/completions HTTP/1.1" 200 OK') == 2


def test_a_bad_endpoint_ends_the_start(tmp_path: Path) -> None:
    with Server(tmp_path, "--otlp-traces-endpoint", "grpc://localhost:4317", mock=MockEngine(tmp_path)) as server:
        assert server.exits() == 1
        assert "--otlp-traces-endpoint grpc://localhost:4317" in server.log()
