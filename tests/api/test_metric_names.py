"""Names, types, labels and buckets of /metrics: those that dashboards made for vLLM ask for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fastfront._speedups.msgpack import packb
from tests.api.conftest import serve
from tests.support.mock import scripted
from tests.support.server import Server
from tests.support.tokens import Pieces
from tests.support.waiting import wait_for

L = ("engine", "model_name")
REASONS = {"stop", "length", "abort", "error", "repetition"}
BETWEEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
LATENCY = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]  # up to --max-model-len 2000, which is the last
HIGHR = [0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60]
GAUGES = {
    "vllm:num_requests_running": L,
    "vllm:num_requests_waiting": L,
    "vllm:num_requests_waiting_by_reason": (*L, "reason"),
    "vllm:kv_cache_usage_perc": L,
    "vllm:engine_sleep_state": (*L, "sleep_state"),
    "process_open_fds": (),
    "process_max_fds": (),
    "process_virtual_memory_bytes": (),
    "process_resident_memory_bytes": (),
    "process_start_time_seconds": (),
}
COUNTERS = {
    "vllm:prefix_cache_queries": L,
    "vllm:prefix_cache_hits": L,
    "vllm:external_prefix_cache_queries": L,
    "vllm:external_prefix_cache_hits": L,
    "vllm:num_preemptions": L,
    "vllm:prompt_tokens": L,
    "vllm:generation_tokens": L,
    "vllm:prompt_tokens_by_source": (*L, "source"),
    "vllm:prompt_tokens_cached": L,
    "vllm:prompt_tokens_cached_by_source": (*L, "source"),
    "vllm:mm_cache_queries": L,
    "vllm:mm_cache_hits": L,
    "vllm:estimated_flops_per_gpu": L,
    "vllm:estimated_read_bytes_per_gpu": L,
    "vllm:estimated_write_bytes_per_gpu": L,
    "vllm:admission_rejections": ("model_name", "reason"),
    "vllm:request_success": (*L, "finished_reason"),
    "http_requests": ("handler", "method", "status"),
    "process_cpu_seconds": (),
}
HISTOGRAMS = {
    "vllm:request_prompt_tokens": (L, [*TOKENS, 2000]),
    "vllm:request_generation_tokens": (L, [*TOKENS, 2000]),
    "vllm:request_max_num_generation_tokens": (L, [*TOKENS, 2000]),
    "vllm:request_params_max_tokens": (L, [*TOKENS, 2000]),
    "vllm:request_prefill_kv_computed_tokens": (L, [*TOKENS, 2000]),
    "vllm:request_params_n": (L, [1, 2, 5, 10, 20]),
    "vllm:iteration_tokens_total": (L, [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]),
    "vllm:request_num_preemptions": (L, [1, 2, 3, 4, 5, 10, 20]),
    "vllm:time_to_first_token_seconds": (L, FIRST),
    "vllm:inter_token_latency_seconds": (L, BETWEEN),
    "vllm:request_time_per_output_token_seconds": (L, BETWEEN),
    "vllm:e2e_request_latency_seconds": (L, LATENCY),
    "vllm:request_queue_time_seconds": (L, LATENCY),
    "vllm:request_inference_time_seconds": (L, LATENCY),
    "vllm:request_prefill_time_seconds": (L, LATENCY),
    "vllm:request_decode_time_seconds": (L, LATENCY),
    "http_request_duration_seconds": (("handler", "method"), [0.1, 0.5, 1]),
    "http_request_duration_highr_seconds": ((), HIGHR),
}
SUMMARIES = {"http_request_size_bytes": ("handler",), "http_response_size_bytes": ("handler",)}
Families = dict[str, Metric]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two engines and two lanes."""
    folder = tmp_path_factory.mktemp("pair")
    flags = ("--max-model-len", "2000", "--data-parallel-size", "2", "--lanes", "2")
    with Server(folder, *flags, "--engine", "mock", "--engine-args", "--tokens echo --stats") as server:
        yield server.wait_ready()


@pytest.fixture(scope="module")
def families(pair: Server, pieces: Pieces) -> Families:
    a = pieces.byte_level("a")
    for _ in range(4):
        assert pair.completion(scripted(a, [a, a], then="stop"), prompt=[5, 6, 7], max_tokens=9).status_code == 200
    assert pair.completion(scripted(a, then="stop"), prompt=[5, 6, 7], n=2, stream=True).status_code == 200
    return read(pair)


def read(server: Server) -> Families:
    response = server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {family.name: family for family in text_string_to_metric_families(response.text)}


def labels_of(family: Metric, suffix: str) -> set[tuple[str, ...]]:
    found = {tuple(sorted(set(s.labels) - {"le"})) for s in family.samples if s.name == family.name + suffix}
    assert found, f"no {family.name}{suffix}"
    return found


@pytest.mark.parametrize("name", GAUGES)
def test_gauges(families: Families, name: str) -> None:
    assert families[name].type == "gauge"
    assert labels_of(families[name], "") == {GAUGES[name]}


@pytest.mark.parametrize("name", COUNTERS)
def test_counters(families: Families, name: str) -> None:
    assert families[name].type == "counter"
    assert labels_of(families[name], "_total") == {tuple(sorted(COUNTERS[name]))}
    if not name.startswith("process"):
        assert families[f"{name}_created"].samples[0].value > 1e9


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms(families: Families, name: str) -> None:
    labels, bounds = HISTOGRAMS[name]
    family = families[name]
    assert family.type == "histogram"
    for suffix in ("_bucket", "_count", "_sum"):
        assert labels_of(family, suffix) == {labels}
    shown = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
    assert [float(le) for le in dict.fromkeys(shown)] == [*bounds, float("inf")]
    assert families[f"{name}_created"].samples[0].value > 1e9


@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries(families: Families, name: str) -> None:
    assert families[name].type == "summary"
    for suffix in ("_count", "_sum"):
        assert labels_of(families[name], suffix) == {SUMMARIES[name]}
    assert families[f"{name}_created"].samples[0].value > 1e9


RESIDENCY = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800]
TOLD = {
    "num_running_reqs": 1, "num_waiting_reqs": 0, "kv_cache_usage": 0.0,
    "kv_cache_eviction_events": [{"lifetime_seconds": 7.5, "idle_seconds": 2.5, "reuse_gaps_seconds": [0.5, 0.25]}],
    "perf_stats": {"num_flops_per_gpu": 10**14, "num_read_bytes_per_gpu": 10**10, "num_write_bytes_per_gpu": 10**9},
    "cudagraph_stats": {"num_unpadded_tokens": 7, "num_padded_tokens": 8, "num_paddings": 1, "runtime_mode": "FULL"},
    "spec_decoding_stats": {"num_spec_tokens": 3, "num_drafts": 2, "num_draft_tokens": 6, "num_accepted_tokens": 3,
                            "num_accepted_tokens_per_pos": [2, 1, 0], "num_draft_tokens_per_pos": [2, 2, 2]},
}  # fmt: skip


@pytest.fixture
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--kv-cache-metrics", "--enable-mfu-metrics", "--cudagraph-metrics", "--show-hidden-metrics-for-version", "0.31")
    yield from serve(tmp_path_factory, "asked", *flags, env={"VLLM_LOG_STATS_INTERVAL": "1"})


def test_what_engines_are_asked_to_tell(asked: Server, pieces: Pieces) -> None:
    """Blocks' lives, the work of devices, recorded graphs, drafts: in /metrics and in the log."""
    assert asked.mock is not None
    assert "vllm:kv_block_lifetime_seconds" in read(asked), "from the beginning"
    assert asked.completion(scripted(pieces.byte_level("a"), then="stop")).status_code == 200
    asked.mock.raw(packb([0, [], TOLD, 1.0]))
    families = wait_for(
        lambda: "vllm:spec_decode_num_drafts" in (found := read(asked)) and found, "what the engine has told"
    )
    sums = {"lifetime": (1, 7.5), "idle_before_evict": (1, 2.5), "reuse_gap": (2, 0.75)}
    for name, (count, total) in sums.items():
        family = families[f"vllm:kv_block_{name}_seconds"]
        assert value(families, family.name, f"{family.name}_count") == count
        assert value(families, family.name, f"{family.name}_sum") == total
        assert labels_of(family, "_bucket") == {L}
        shown = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
        assert [float(le) for le in shown] == [*RESIDENCY, float("inf")]
    for name, wanted in (
        ("estimated_flops_per_gpu", 1e14), ("estimated_read_bytes_per_gpu", 1e10), ("estimated_write_bytes_per_gpu", 1e9),
        ("spec_decode_num_drafts", 2), ("spec_decode_num_draft_tokens", 6), ("spec_decode_num_accepted_tokens", 3),
    ):  # fmt: skip
        assert labels_of(families[f"vllm:{name}"], "_total") == {L}
        assert value(families, f"vllm:{name}", f"vllm:{name}_total") == wanted
    places = families["vllm:spec_decode_num_accepted_tokens_per_pos"]
    assert {s.labels["position"]: s.value for s in places.samples if s.name.endswith("_total")} == {"0": 2, "1": 1, "2": 0}
    wait_for(lambda: "| 7               | 8             | 1            | FULL         | 1" in asked.log(), "the table")
    log = asked.log()
    assert "MFU: " in log
    assert "SpecDecoding metrics: Mean acceptance length: 2.50, " in log
    assert "--show-hidden-metrics-for-version has no effect: no metric is hidden" in log


def test_blocks_lives_are_shown_only_if_asked_for(families: Families) -> None:
    assert not [name for name in families if "kv_block" in name]


def value(families: Families, family: str, sample: str, **labels: str) -> float:
    found = [s.value for s in families[family].samples if s.name == sample and labels.items() <= s.labels.items()]
    assert found, f"no {sample} {labels}"
    return sum(found)


def test_every_engine_and_every_reason_has_its_series(families: Families) -> None:
    for name in (n for n in (*GAUGES, *COUNTERS) if n.startswith("vllm") and n != "vllm:admission_rejections"):
        assert {s.labels["engine"] for s in families[name].samples} == {"0", "1"}, name
    assert {s.labels["finished_reason"] for s in families["vllm:request_success"].samples} == REASONS
    assert {s.labels["reason"] for s in families["vllm:num_requests_waiting_by_reason"].samples} == {"capacity", "deferred"}
    sources = {"local_compute", "local_cache_hit", "external_kv_transfer"}
    assert {s.labels["source"] for s in families["vllm:prompt_tokens_by_source"].samples} == sources
    tiers = {"device", "host", "p2p", "disk", "external_unspecified"}
    assert {s.labels["source"] for s in families["vllm:prompt_tokens_cached_by_source"].samples} == tiers


def test_there_are_no_names_without_samples(families: Families) -> None:
    assert [name for name, family in families.items() if not family.samples] == []


def test_engines_share_the_work_and_the_sums_agree(families: Families) -> None:
    """Six choices on two engines, of three prompt tokens and three (two: one) tokens each."""
    for engine in ("0", "1"):
        prompts = value(families, "vllm:prompt_tokens", "vllm:prompt_tokens_total", engine=engine)
        done = value(families, "vllm:request_success", "vllm:request_success_total", engine=engine, finished_reason="stop")
        assert (prompts, done) == (9, 3)
        assert prompts == value(families, "vllm:prompt_tokens_by_source", "vllm:prompt_tokens_by_source_total", engine=engine)
        for name in ("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds"):
            assert value(families, name, f"{name}_count", engine=engine) == 3
    assert value(families, "vllm:generation_tokens", "vllm:generation_tokens_total") == 4 * 3 + 2 * 1
    assert value(families, "vllm:request_params_n", "vllm:request_params_n_count") == 5
    assert value(families, "vllm:request_params_n", "vllm:request_params_n_sum") == 6


def test_facts_of_the_caches(families: Families) -> None:
    samples = families["vllm:cache_config_info"].samples
    assert [(s.labels["engine"], s.labels["block_size"], s.labels["num_gpu_blocks"], s.value) for s in samples] == [
        ("0", "16", "100000", 1.0), ("1", "16", "100000", 1.0),
    ]  # fmt: skip


def test_http_requests_by_route(pair: Server) -> None:
    def count(handler: str, method: str, status: str) -> float:
        samples = read(pair)["http_requests"].samples
        wanted = {"handler": handler, "method": method, "status": status}
        return sum(s.value for s in samples if s.labels == wanted)

    cases = [("/nope", "none", "GET", "4xx"), ("/v1/models", "/v1/models", "GET", "2xx"),
             ("/v1/responses/resp_1", "/v1/responses/{response_id}", "GET", "4xx"), ("/tokenize", "/tokenize", "GET", "4xx"),
             ("/v1/models/", "none", "GET", "3xx")]  # fmt: skip
    before = [count(*case[1:]) for case in cases]
    for path, *_ in cases:
        pair.get(path)

    def counted() -> list[float]:
        return [count(*case[1:]) - then for case, then in zip(cases, before, strict=True)]

    wait_for(lambda: counted() == [1] * len(cases), "each to be counted once it is answered")
    for path in ("/health", "/metrics", "/ping", "/version"):
        pair.get(path)
    assert not {s.labels["handler"] for s in read(pair)["http_requests"].samples} & {"/health", "/metrics", "/ping", "/version"}


def test_scheduler_stats_arrive(pair: Server) -> None:
    """The mock tells of its queue with every step; what it tells is shown for its engine only."""
    families = read(pair)
    assert value(families, "vllm:num_requests_running", "vllm:num_requests_running") == 0
    assert value(families, "fastfront:engine_up", "fastfront:engine_up") == 2
    lag = value(families, "fastfront:output_lag_seconds", "fastfront:output_lag_seconds_count")
    assert lag > 0
    busy = [
        value(families, "fastfront:lane_busy_seconds", "fastfront:lane_busy_seconds_total", lane=lane) for lane in ("0", "1")
    ]
    assert busy[0] > 0
    assert busy[1] >= 0, "few streams stay on the first lane"


def counts_requests(server: Server) -> bool:
    family = read(server).get("http_requests")
    return family is not None and bool(family.samples)


def test_without_statistics_there_are_none_of_engines(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    for server in serve(tmp_path_factory, "silent", "--disable-log-stats"):
        names = read(server)
        assert not [name for name in names if name.startswith("vllm:")]
        assert "process_open_fds" in names
        assert "fastfront:live_streams" in names
        server.get("/v1/models")
        wait_for(partial(counts_requests, server), "the request to be counted")
