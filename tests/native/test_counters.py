"""What a lane counts: every observation where it belongs, by the clock it belongs to."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fastfront._speedups.call import Call
from fastfront._speedups.counters import Counters
from fastfront._speedups.histograms import ENGINE_NAMES, FAMILIES, MOST_BOUNDS
from fastfront._speedups.msgpack import packb, unpackb
from tests.native.conftest import Model
from tests.native.pumping import Client, Rig

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
STOP, LENGTH, ABORT, ERROR = 0, 1, 2, 3
QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3
TOKEN = [9707]


@pytest.fixture
def rig(qwen3: Model) -> Rig:
    return Rig(qwen3.vocabulary, engines=2)


def output(request: str, ids: list[int], finish: int | None = None, events: Any = None, prefill: Any = None) -> list[Any]:
    """An EngineCoreOutput with all its elements."""
    return [request, ids, None, None, None, finish, None, events, None, None, None, prefill, None, 0, None, None, None, None]


def events(*pairs: tuple[int, float]) -> list[dict[str, float]]:
    return [{"type": kind, "timestamp": at} for kind, at in pairs]


def observed(rig: Rig, name: str, engine: int = 0) -> tuple[int, float]:
    """How often, and the sum."""
    _, counts, total = rig.pump.counters.histograms(engine)[f"vllm:{name}"]
    return sum(counts), total


def test_every_histogram_counts_what_happened(rig: Rig) -> None:
    _, (a, b) = rig.start(Client(), stream=True, n=2, prompts=[[1, 2, 3]])
    rig.message(output(a, TOKEN, None, events((SCHEDULED, 0.5))), output(b, TOKEN), at=1.0)
    rig.message(output(a, TOKEN), at=2.0)
    rig.message(output(a, TOKEN, LENGTH), at=3.5)
    rig.message(output(b, [], ABORT), at=4.0)
    read = rig.pump.counters.histograms(0)
    total = {name.split(":")[1]: sum(counts) for name, (_, counts, _) in read.items()}
    assert total == {
        "time_to_first_token_seconds": 2,
        "inter_token_latency_seconds": 2,
        "request_time_per_output_token_seconds": 1,
        "e2e_request_latency_seconds": 2,
        "request_queue_time_seconds": 0,
        "request_prefill_time_seconds": 1,
        "request_decode_time_seconds": 2,
        "request_inference_time_seconds": 1,
        "request_prompt_tokens": 2,
        "request_prefill_kv_computed_tokens": 2,
        "request_generation_tokens": 2,
        "request_max_num_generation_tokens": 1,
        "request_params_max_tokens": 2,
        "request_params_n": 1,
        "request_num_preemptions": 2,
        "iteration_tokens_total": 3,
        "kv_block_lifetime_seconds": 0,
        "kv_block_idle_before_evict_seconds": 0,
        "kv_block_reuse_gap_seconds": 0,
    }
    bounds, counts, sum_of = read["vllm:request_generation_tokens"]
    assert (counts[bounds.index(1)], counts[bounds.index(5)], sum_of) == (1, 1, 4.0)
    assert read["vllm:iteration_tokens_total"][2] == 4 + 6, "the prompts count in the step of their first token"
    assert read["vllm:time_to_first_token_seconds"][2] > 1e9, "the arrival time of these calls is 1.5 s after 1970"
    assert observed(rig, "inter_token_latency_seconds") == (2, 2.5), "by the engine's clock"


def test_phases_of_a_request_by_the_engines_clock(rig: Rig) -> None:
    _, (request,) = rig.start(Client(), stream=True, prompts=[[1, 2, 3, 4, 5]])
    prefill = {"num_prompt_tokens": 5, "num_computed_tokens": 1, "num_cached_tokens": 4, "num_local_cached_tokens": 3,
               "num_external_cached_tokens": 1, "num_cache_creation_tokens": 0}  # fmt: skip
    rig.message(output(request, TOKEN, None, events((QUEUED, 100.0), (SCHEDULED, 100.5)), prefill), at=101.5)
    rig.message(output(request, TOKEN), at=101.75)
    rig.message(output(request, TOKEN, None, events((PREEMPTED, 102.0), (SCHEDULED, 103.0))), at=103.25)
    rig.message(output(request, TOKEN, STOP), at=104.5)
    assert observed(rig, "request_queue_time_seconds") == (1, 0.5)
    assert observed(rig, "request_prefill_time_seconds") == (1, 1.0)
    assert observed(rig, "request_decode_time_seconds") == (1, 3.0)
    assert observed(rig, "request_inference_time_seconds") == (1, 4.0)
    assert observed(rig, "request_time_per_output_token_seconds") == (1, 1.0)
    assert observed(rig, "inter_token_latency_seconds") == (3, 3.0)
    assert observed(rig, "iteration_tokens_total") == (4, 1.0 + 4.0), "of the prompt, only what was computed"
    assert observed(rig, "request_num_preemptions") == (1, 1.0)
    assert observed(rig, "request_prefill_kv_computed_tokens") == (1, 1.0)
    counts = rig.pump.counters.read(0)
    assert counts["preemptions"] == 1
    assert (counts["computed_tokens"], counts["cached_tokens"], counts["external_tokens"]) == (1, 3, 1)
    assert (counts["tokens"], counts["prompt_tokens"], counts["requests"]) == (4, 5, [1, 0, 0, 0, 0])


def test_engines_without_events_or_time(rig: Rig) -> None:
    """Phases are unknown then; what the frontend sees by itself is there."""
    _, (request,) = rig.start(Client(), stream=True)
    rig.message([request, TOKEN], at=None)
    rig.message([request, TOKEN, None, None, None, LENGTH], at=0.0)
    for name in ("queue", "prefill", "inference"):
        assert observed(rig, f"request_{name}_time_seconds") == (0, 0.0)
    assert observed(rig, "request_decode_time_seconds")[0] == 1
    assert 0 <= observed(rig, "inter_token_latency_seconds")[1] < 10


def test_an_engines_clock_may_jump_back(rig: Rig) -> None:
    _, (request,) = rig.start(Client(), stream=True)
    rig.message(output(request, TOKEN, None, events((QUEUED, 60.0), (SCHEDULED, 50.0))), at=40.0)
    rig.message(output(request, TOKEN, LENGTH), at=30.0)
    names = ("inter_token_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds")
    assert [observed(rig, name) for name in names] == [(1, 0.0)] * 3


def test_n_and_the_longest_answer_count_once_per_prompt(rig: Rig) -> None:
    _, (a, b, c, d) = rig.start(Client(), prompts=[[1], [2]], n=2, kind="completion")
    rig.message(output(c, [1, 2, 3], LENGTH), output(a, [1], LENGTH))
    assert observed(rig, "request_params_n") == (0, 0.0)
    rig.message(output(b, [1, 2], LENGTH), output(d, [1], LENGTH))
    assert observed(rig, "request_params_n") == (2, 4.0)
    assert observed(rig, "request_max_num_generation_tokens") == (2, 2.0 + 3.0)


def test_engines_are_counted_apart(rig: Rig) -> None:
    _, (a, b) = rig.start(Client(), n=2, engines=[0, 1], prompts=[[1, 2]])
    rig.message(output(a, TOKEN, LENGTH))
    rig.message(output(b, [*TOKEN, *TOKEN], STOP), engine=1)
    first, second = (rig.pump.counters.read(engine) for engine in (0, 1))
    assert (first["tokens"], first["prompt_tokens"], first["requests"]) == (1, 2, [0, 1, 0, 0, 0])
    assert (second["tokens"], second["prompt_tokens"], second["requests"]) == (2, 2, [1, 0, 0, 0, 0])
    assert (rig.pump.tokens, rig.pump.prompt_tokens) == (3, 4)
    assert observed(rig, "iteration_tokens_total", 1) == (1, 4.0)
    with pytest.raises(IndexError):
        rig.pump.counters.read(2)
    with pytest.raises(ValueError, match="no engines"):
        Counters(0)


def test_aborts_and_failures_count_for_their_engines(rig: Rig) -> None:
    call, (a, _, _) = rig.start(Client(), n=3, engines=[0, 1, 1])
    rig.message(output(a, TOKEN, STOP))
    rig.pump.cancel(call)
    rig.start(Client(), engines=[1])
    rig.pump.fail_engine(1, "gone")
    assert rig.pump.counters.read(0)["requests"] == [1, 0, 0, 0, 0]
    assert rig.pump.counters.read(1)["requests"] == [0, 0, 2, 1, 0]


def stats(**values: Any) -> dict[str, Any]:
    cache = {"reset": False, "requests": 1, "queries": 7, "hits": 2, "preempted_queries": 50, "hits_by_source": {"device": 2}}
    found = {"num_running_reqs": 3, "num_waiting_reqs": 0, "num_skipped_waiting_reqs": 0, "kv_cache_usage": 0.0,
             "prefix_cache_stats": cache, "connector_prefix_cache_stats": None, "spec_decoding_stats": None,
             "waiting_lora_adapters": {}, "running_lora_adapters": {}, "anything": [{"new": 1}]}  # fmt: skip
    return found | values


def test_adapters_in_use_are_known(rig: Rig) -> None:
    """Each while requests for it wait for their first token, or have some; nothing is kept of those that are over."""
    def start(**fields: Any) -> tuple[Call, list[str]]:
        return rig.start(Client(), lora_request=b"\xc0", **fields)

    rig.start(Client())
    assert rig.pump.adapters() == (set(), set())
    _, (a, b) = start(n=2)
    assert rig.pump.adapters() == ({"m"}, set())
    rig.step([a, TOKEN])
    assert rig.pump.adapters() == ({"m"}, {"m"})
    rig.step([a, TOKEN], [b, TOKEN])
    assert rig.pump.adapters() == (set(), {"m"})
    rig.step([a, TOKEN, STOP])
    assert rig.pump.adapters() == (set(), {"m"})
    rig.step([b, [], STOP])
    assert rig.pump.adapters() == (set(), set())
    call, _ = start()
    rig.pump.cancel(call)
    start()
    rig.pump.fail_engine(-1, "gone")
    call, _ = start(n=2)
    assert rig.pump.adapters() == ({"m"}, set())
    rig.pump.withdraw(call, 0)
    start(n=2)
    assert rig.pump.adapters() == ({"m"}, set())
    rig.pump.fail_engine(0, "gone")
    assert rig.pump.adapters() == (set(), set())


def test_gauges_replace_and_counters_add_up(rig: Rig) -> None:
    drafts = {"num_spec_tokens": 3, "num_drafts": 2, "num_draft_tokens": 6, "num_accepted_tokens": 4,
              "num_accepted_tokens_per_pos": [2, 1, 1], "num_draft_tokens_per_pos": [2, 2, 2]}  # fmt: skip
    more = {"queries": 10, "hits": 9, "hits_by_source": {"host": 4, "p2p": 2, "disk": 1, "external_unspecified": 2}}
    rig.message(stats=stats(num_waiting_reqs=5, kv_cache_usage=0.5, spec_decoding_stats=drafts))
    rig.message(stats=stats(num_running_reqs=1, num_skipped_waiting_reqs=2, connector_prefix_cache_stats=more,
                            spec_decoding_stats=drafts | {"num_accepted_tokens_per_pos": [1]}))  # fmt: skip
    counts = rig.pump.counters.read(0)
    assert (counts["running"], counts["waiting"], counts["deferred"], counts["kv_usage"]) == (1, 0, 2, 0.0)
    assert (counts["queries"], counts["hits"], counts["external_queries"], counts["external_hits"]) == (14, 4, 10, 9)
    assert (counts["host_hits"], counts["p2p_hits"], counts["disk_hits"]) == (4, 2, 1)
    assert (counts["drafts"], counts["draft_tokens"], counts["accepted_tokens"]) == (4, 12, 8)
    assert counts["accepted_at"] == [3, 1, 1]
    assert counts["messages"] == 2
    assert rig.pump.counters.read(1)["messages"] == 0


def test_python_sees_stats_only_when_they_tell_something(rig: Rig) -> None:
    assert rig.message(stats=stats()) is None
    for told in (stats(num_waiting_reqs=1), stats(kv_cache_usage=0.2)):
        rest = rig.message(stats=told)
        assert rest is not None
        assert unpackb(rest[: len(packb(told))]) == told
    assert rig.message(stats=stats()) is not None, "nothing waits any more"
    assert rig.message(stats=stats(kv_cache_usage=0.005, running_lora_adapters={"a": 1})) is None
    assert rig.message(stats=stats(cudagraph_stats={"runtime_mode": "FULL"})) is not None
    reply = [7, None, [None, True]]
    _, rest = rig.pump.feed(packb([0, [], None, 1.0, reply]))
    assert rest is not None
    assert rest.endswith(packb(reply))
    for wrong in ([1], "text", {"num_waiting_reqs": "many", 5: 6}):
        assert rig.message(stats=wrong) is not None


def eviction(lifetime: float, idle: float, *gaps: float) -> dict[str, Any]:
    return {"lifetime_seconds": lifetime, "idle_seconds": idle, "reuse_gaps_seconds": list(gaps)}


def test_what_became_of_blocks_is_observed(rig: Rig) -> None:
    assert rig.message(stats=stats(kv_cache_eviction_events=[eviction(60.0, 2.0, 0.5, 0.25), eviction(4, 4)])) is None
    rig.message(stats=stats(kv_cache_eviction_events=[]))
    rig.message(stats=stats(kv_cache_eviction_events=[eviction(1.0, 0.0)]), engine=1)
    assert observed(rig, "kv_block_lifetime_seconds") == (2, 64.0)
    assert observed(rig, "kv_block_idle_before_evict_seconds") == (2, 6.0)
    assert observed(rig, "kv_block_reuse_gap_seconds") == (2, 0.75)
    assert observed(rig, "kv_block_lifetime_seconds", 1) == (1, 1.0)
    bounds, counts, _ = rig.pump.counters.histograms(0)["vllm:kv_block_lifetime_seconds"]
    assert (bounds[0], bounds[-1], counts[bounds.index(60)], counts[bounds.index(5)]) == (0.001, 1800, 1, 1)


def test_the_work_of_devices_adds_up(rig: Rig) -> None:
    work = {"num_flops_per_gpu": 10**15, "num_read_bytes_per_gpu": 7, "num_write_bytes_per_gpu": 3, "debug_stats": {"x": []}}
    for _ in range(2):
        assert rig.message(stats=stats(perf_stats=work)) is None
    rig.message(stats=stats(perf_stats=None))
    counts = rig.pump.counters.read(0)
    assert (counts["flops"], counts["read_bytes"], counts["write_bytes"]) == (2e15, 14.0, 6.0)


def test_python_sees_steps_of_recorded_graphs(rig: Rig) -> None:
    assert rig.message(stats=stats(cudagraph_stats=None)) is None
    assert rig.message(stats=stats(cudagraph_stats={"runtime_mode": "FULL"})) is not None


@pytest.mark.parametrize("wrong", [
    {"kv_cache_eviction_events": 5}, {"kv_cache_eviction_events": [5, [1], {"lifetime_seconds": "x", "other": 1}]},
    {"kv_cache_eviction_events": [{"lifetime_seconds": -1.0, "idle_seconds": float("nan"), "reuse_gaps_seconds": {"a": 1}}]},
    {"kv_cache_eviction_events": [{"reuse_gaps_seconds": ["x", None, -2.0]}]}, {"perf_stats": 5},
    {"perf_stats": {"num_flops_per_gpu": -5, "num_read_bytes_per_gpu": "x", "num_write_bytes_per_gpu": float("inf")}},
])  # fmt: skip
def test_stats_of_another_shape_are_passed_over(rig: Rig, wrong: dict[str, Any]) -> None:
    rig.message(stats=wrong | {"prefix_cache_stats": {"queries": 4, "hits": 1}})
    counts = rig.pump.counters.read(0)
    assert (counts["queries"], counts["flops"], counts["read_bytes"], counts["write_bytes"]) == (4, 0, 0, 0)
    for name in FAMILIES["kv_cache_residency"]:
        assert observed(rig, name.removeprefix("vllm:")) == (0, 0.0)


def test_stats_that_are_cut_off(rig: Rig) -> None:
    work = {"num_flops_per_gpu": 1, "num_read_bytes_per_gpu": 2}
    frame = packb([0, [], stats(kv_cache_eviction_events=[eviction(1.0, 0.5, 0.25)], perf_stats=work), 1.0])
    for length in range(len(frame)):
        try:
            rig.pump.feed(frame[:length])
        except ValueError:
            continue


@pytest.mark.parametrize("cut", [False, True])
def test_what_cannot_be_read_is_not_counted(rig: Rig, cut: bool) -> None:
    """Events and prefill stats of another shape do no harm to the answer."""
    client = Client()
    _, (request,) = rig.start(client, stream=True)
    wrong_events: Any = [{"type": "x"}] if cut else 5
    rig.message(output(request, TOKEN, None, wrong_events, {"num_cached_tokens": 2}), at=5.0)
    rig.message(output(request, TOKEN, LENGTH, None, {"num_cached_tokens": -1}), at=6.0)
    assert client.finish() == ("length", None)
    assert observed(rig, "request_queue_time_seconds") == (0, 0.0)
    assert rig.pump.counters.read(0)["cached_tokens"] == 0


def test_a_real_engines_first_message(rig: Rig) -> None:
    """As captured: the request's id is another one, so that only the stats count."""
    frame = bytes.fromhex(json.loads((VECTORS / "16_output_first_token_stats.json").read_text())["frames"][0])
    assert rig.pump.feed(frame) == (0, None)
    counts = rig.pump.counters.read(0)
    assert (counts["running"], counts["queries"], counts["tokens"]) == (1, 3, 0)
    assert counts["kv_usage"] == 6.103888176767214e-05
    for length in range(len(frame)):
        try:
            rig.pump.feed(frame[:length])
        except ValueError:
            continue


def test_output_lag_is_measured_where_the_clock_is_shared(qwen3: Model) -> None:
    rig = Rig(qwen3.vocabulary, engines=2, local_engines=1)
    _, (a, b) = rig.start(Client(), stream=True, n=2, engines=[0, 1])
    now = time.monotonic()
    rig.message(output(a, TOKEN), engine=0, at=now - 0.3)
    rig.message(output(b, TOKEN), engine=1, at=now - 0.3)
    rig.message(output(a, TOKEN), engine=0, at=now + 1000.0)
    rig.message(output(a, TOKEN), engine=0, at=None)
    _, counts, total = rig.pump.counters.lane_histograms()["fastfront:output_lag_seconds"]
    assert sum(counts) == 2
    assert counts[0] == 1, "a time in the future is no lag"
    assert 0.3 <= total < 60.0


def test_tokens_per_event(rig: Rig) -> None:
    _, (request,) = rig.start(Client(), stream=True)
    rig.message(output(request, TOKEN))
    rig.message(output(request, TOKEN * 3))
    rig.message(output(request, TOKEN * 40, LENGTH))
    _, (whole,) = rig.start(Client())
    rig.message(output(whole, TOKEN * 5, LENGTH))
    bounds, counts, total = rig.pump.counters.lane_histograms()["fastfront:event_tokens"]
    assert (counts[bounds.index(1)], counts[bounds.index(3)], counts[-1], total) == (1, 1, 1, 44.0)


def test_intake_and_waiting_for_the_lane(rig: Rig) -> None:
    rig.start(Client())
    lane = rig.pump.counters.lane_histograms()
    assert sum(lane["fastfront:request_intake_seconds"][1]) == sum(lane["fastfront:lane_wait_seconds"][1]) == 1
    assert lane["fastfront:request_intake_seconds"][2] > 1e9
    assert lane["fastfront:lane_wait_seconds"][2] < 60


def test_prompt_tokens_wait_until_their_first_token_or_their_end(rig: Rig) -> None:
    call, (a, _) = rig.start(Client(), stream=True, n=2, prompts=[[1, 2, 3]])
    rig.start(Client(), prompts=[[1, 2]], engines=[1])
    assert rig.pump.prefill_tokens == 8
    rig.message(output(a, []))
    assert rig.pump.prefill_tokens == 8
    rig.message(output(a, TOKEN))
    rig.message(output(a, TOKEN))
    assert rig.pump.prefill_tokens == 5
    rig.pump.cancel(call)
    assert rig.pump.prefill_tokens == 2
    rig.pump.fail_engine(1, "gone")
    assert rig.pump.prefill_tokens == 0


def test_bounds_of_ones_own() -> None:
    counters = Counters(2, {"request_tokens": [3, 300], "time_to_first_token": [0.5]})
    for engine in range(2):
        read = counters.histograms(engine)
        changed = {name for name in ENGINE_NAMES if read[name][0] in ([3.0, 300.0], [0.5])}
        assert changed == {*FAMILIES["request_tokens"], *FAMILIES["time_to_first_token"]}
    assert {name for names in FAMILIES.values() for name in names} == set(ENGINE_NAMES)
    for wrong in ([], [1, 1], [2, 1], [float("nan")], [float("inf")], range(MOST_BOUNDS + 1)):
        with pytest.raises(ValueError, match="request_tokens"):
            Counters(1, {"request_tokens": wrong})  # type: ignore[dict-item]
    with pytest.raises(KeyError):
        Counters(1, {"x": [1]})


def test_others_read_while_the_lane_counts(qwen3: Model) -> None:
    """Every number only grows, and nothing is lost."""
    rig = Rig(qwen3.vocabulary, engines=2)
    start, stop = threading.Barrier(4), threading.Event()
    failures: list[str] = []

    def read() -> None:
        start.wait()
        tokens, count = 0, 0
        while not stop.is_set():
            now = rig.pump.counters.read(1)["tokens"]
            seen = sum(rig.pump.counters.histograms(1)["vllm:inter_token_latency_seconds"][1])
            if now < tokens or seen < count:
                failures.append(f"{tokens} {now} {count} {seen}")
            tokens, count = now, seen

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    requests = [rig.start(Client(), stream=True, engines=[1])[1][0] for _ in range(20)]
    start.wait()
    for k in range(300):
        rig.message(*[output(request, TOKEN) for request in requests], engine=1, stats=stats(), at=float(k + 1))
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert rig.pump.counters.read(1)["tokens"] == 6000
    assert observed(rig, "inter_token_latency_seconds", 1) == (20 * 299, 20 * 299.0)
    assert rig.pump.counters.read(1)["queries"] == 300 * 7
