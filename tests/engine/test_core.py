"""The engine core as a process, driven over the wire with a tiny model."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.engine.conftest import ROOT, Spawn
from tests.engine.relay import Relay
from tests.engine.tiny import VOCAB, reference
from tests.engine.wire_frontend import WireFrontend

pytestmark = pytest.mark.filterwarnings("default")
PROMPT = [11, 12, 13, 14]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 8}
EXIT_S = 60


@pytest.fixture(scope="module")
def folder(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One engine for all tests that leave it alive."""
    with WireFrontend(tmp_path_factory.mktemp("wire"), clients=2) as frontend:
        command = [sys.executable, "-m", "engine", str(folder), "--handshake", frontend.handshake_address]
        options = ["--max-model-len", "64", "--max-num-seqs", "8", "--num-gpu-blocks-override", "64", "--seed", "5"]
        with subprocess.Popen([*command, *options], cwd=ROOT) as process:
            frontend.accept()
            yield frontend
            assert process.poll() is None
            process.terminate()
            assert process.wait(EXIT_S) == 0


@pytest.fixture
def wire(engine: WireFrontend) -> WireFrontend:
    engine.answers.clear()
    engine.stats.clear()
    return engine


def test_handshake_and_ready_payload(wire: WireFrontend) -> None:
    assert wire.hello == {"status": "HELLO", "local": True, "headless": False}
    assert len(wire.ready) == 2
    ready = wire.ready[0]
    assert (ready["max_model_len"], ready["num_gpu_blocks"], ready["block_size"]) == (64, 64, 16)
    assert (ready["dtype"], ready["max_num_seqs"], ready["data_parallel_rank"]) == ("float32", 8, 0)


def test_greedy_tokens_equal_generate_for_many_at_once(wire: WireFrontend, folder: Path) -> None:
    prompts = [[3 + i, 5, 7 + 2 * i, *range(10, 10 + i)] for i in range(20)]
    answers = [wire.add(f"r{i}", prompt, GREEDY) for i, prompt in enumerate(prompts)]
    wire.finish()
    assert [answer.tokens for answer in answers] == reference(folder, prompts, 8)
    assert {(answer.finish, answer.stop_reason) for answer in answers} == {(1, None)}


def test_first_output_has_events_and_prefill_stats_and_stats_are_complete(wire: WireFrontend) -> None:
    answer = wire.add("r", PROMPT, GREEDY)
    wire.finish()
    first, second = answer.outputs[:2]
    assert [event["type"] for event in first[7]] == [1, 2]
    assert first[7][0]["timestamp"] <= first[7][1]["timestamp"] <= time.monotonic()
    assert (first[11]["num_prompt_tokens"], first[11]["num_cached_tokens"]) == (4, 0)
    assert (second[7], second[11]) == (None, None)
    assert all(len(output) == 18 for output in answer.outputs)
    assert all(len(stats) == 18 for stats in wire.stats)
    assert wire.stats[0]["num_running_reqs"] == 1
    assert wire.stats[-1]["num_running_reqs"] == 0
    assert wire.stats[-1]["kv_cache_usage"] == 0.0


def test_prefix_caching_over_the_wire(wire: WireFrontend, folder: Path) -> None:
    prompt = list(range(60, 100))
    answers = [wire.add("cold", prompt, GREEDY, cache_salt="s")]
    wire.finish()
    answers.append(wire.add("warm", prompt, GREEDY, cache_salt="s"))
    answers.append(wire.add("scored", prompt, {**GREEDY, "prompt_logprobs": 0}, cache_salt="s"))
    answers.append(wire.add("stranger", prompt, GREEDY, cache_salt="t"))
    wire.finish()
    assert wire.call("reset_prefix_cache", False, False)[1:] == [None, [None, True]]
    answers.append(wire.add("after", prompt, GREEDY, cache_salt="s"))
    wire.finish()
    assert [answer.tokens for answer in answers] == reference(folder, [prompt], 8) * 5
    stats = [answer.outputs[0][11] for answer in answers]
    counts = [(each["num_cached_tokens"], each["num_cache_creation_tokens"]) for each in stats]
    full = max(created for _, created in counts)
    assert 0 < full <= len(prompt)
    assert counts == [(0, full), (full, 0), (0, full), (0, full), (0, full)]
    stats = [answer.outputs[0][11] for answer in answers]
    assert [one["num_cached_tokens"] for one in stats] == [0, 32, 0, 0, 0]
    assert all(one["num_computed_tokens"] + one["num_cached_tokens"] == 40 for one in stats)
    assert all(one["num_local_cached_tokens"] == one["num_cached_tokens"] for one in stats)
    prefix = [one["prefix_cache_stats"] for one in wire.stats]
    assert [sum(one[name] for one in prefix) for name in ("requests", "queries", "hits")] == [4, 160, 32]
    assert [one["reset"] for one in prefix].count(True) == 1


def test_a_reset_may_preempt_what_runs(wire: WireFrontend, folder: Path) -> None:
    wanted = reference(folder, [PROMPT], 50)[0]
    for number in range(50):                       # its tokens may all be there before a call arrives: then once more
        long = wire.add(f"r{number}", PROMPT, {**GREEDY, "max_tokens": 50})
        wire.until(lambda long=long: len(long.tokens) > 2)
        idle = wire.call("reset_prefix_cache", False, False)[2][1]
        assert wire.call("reset_prefix_cache", True, False)[1:] == [None, [None, True]]
        wire.finish()
        assert long.tokens == wanted
        events = [event["type"] for output in long.outputs for event in output[7] or []]
        if 3 in events:
            break
    assert (idle, events) == (False, [1, 2, 3, 2])


def test_preempted_requests_say_so_and_lose_nothing(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    spawn("engine", folder, "--num-gpu-blocks-override", 6, "--max-model-len", 96)
    frontend.accept()
    prompts = [[10 + i] * 20 for i in range(4)]
    answers = [frontend.add(f"r{i}", prompt, {**GREEDY, "max_tokens": 30}) for i, prompt in enumerate(prompts)]
    frontend.finish()
    kinds = [[event["type"] for output in answer.outputs for event in output[7] or []] for answer in answers]
    assert kinds[0] == [1, 2]
    assert any(kind[:4] == [1, 2, 3, 2] for kind in kinds)
    assert [answer.tokens for answer in answers] == reference(folder, prompts, 30)


def test_stop_rules(wire: WireFrontend) -> None:
    free = wire.add("free", PROMPT, GREEDY)
    wire.finish()
    third = free.tokens[2]
    at = free.tokens.index(third)
    eos = wire.add("eos", PROMPT, {**GREEDY, "_eos_token_id": third, "_all_stop_token_ids": [third]})
    stop = wire.add("stop", PROMPT, {**GREEDY, "stop_token_ids": [third]})
    early = wire.add("early", PROMPT, {**GREEDY, "stop_token_ids": [third], "min_tokens": 6})
    wire.finish()
    assert (eos.tokens, eos.finish, eos.stop_reason) == (free.tokens[: at + 1], 0, None)
    assert (stop.tokens, stop.finish, stop.stop_reason) == (free.tokens[: at + 1], 0, third)
    assert third not in early.tokens[:6]
    assert len(early.tokens) >= 6


def test_a_prompt_of_full_length_gets_one_token(wire: WireFrontend) -> None:
    answer = wire.add("r", [5] * 64, GREEDY)
    wire.finish()
    assert (len(answer.tokens), answer.finish) == (1, 1)


def test_seeded_sampling_is_the_same_in_any_company(wire: WireFrontend) -> None:
    params = {"temperature": 1.0, "max_tokens": 12, "seed": 42}
    alone = wire.add("alone", PROMPT, params)
    wire.finish()
    crowd = [wire.add(f"c{i}", [20 + i], {"max_tokens": 9}) for i in range(5)]
    among = wire.add("among", PROMPT, params)
    other = wire.add("other", PROMPT, {**params, "seed": 43})
    wire.finish()
    assert among.tokens == alone.tokens
    assert other.tokens != alone.tokens
    assert len({tuple(answer.tokens) for answer in crowd}) == 5


def test_unseeded_requests_differ(wire: WireFrontend) -> None:
    params = {"temperature": 1.5, "max_tokens": 12}
    answers = [wire.add(f"r{i}", PROMPT, params) for i in range(4)]
    wire.finish()
    assert len({tuple(answer.tokens) for answer in answers}) == 4


def arrays(value: Any) -> list[Any]:
    names = {"int32": "<i4", "float32": "<f4"}
    return [np.frombuffer(a[2].data, names.get(a[0], a[0])).reshape(a[1]) if a is not None else None for a in value]


def test_logprobs(wire: WireFrontend) -> None:
    answer = wire.add("r", PROMPT, {**GREEDY, "max_tokens": 3, "logprobs": 2, "prompt_logprobs": 1})
    wire.finish()
    for output in answer.outputs:
        ids, values, ranks, _ = arrays(output[2])
        assert ids.shape == values.shape == (1, 3)
        assert ids[0, 0] == ids[0, 1] == output[1][0]
        assert values[0, 0] == values[0, 1] >= values[0, 2]
        assert ranks.tolist() == [1]
    ids, values, ranks, *_ = arrays(answer.outputs[0][3])
    assert [entry[0] for entry in answer.outputs[0][3][:3]] == ["int32", "float32", "int32"]
    assert ids.shape == (3, 2)
    assert ids[:, 0].tolist() == PROMPT[1:]
    assert (values[:, 0] <= values[:, 1]).all()
    assert (ranks >= 1).all()
    assert answer.outputs[1][3] is None


BAD: list[tuple[list[int] | None, dict[str, Any], dict[str, Any], str]] = [
    ([], {}, {}, "the prompt is empty"),
    (None, {}, {}, "the prompt is empty"),
    ([5] * 65, {}, {}, "the prompt has 65 tokens, the limit is 64"),
    ([1, VOCAB], {}, {}, f"token id {VOCAB} is out of the vocabulary"),
    ([1, -1], {}, {}, "token id -1 is out of the vocabulary"),
    ([1], {"max_tokens": None}, {}, "max_tokens must be at least 1, got None"),
    ([1], {"max_tokens": 0}, {}, "max_tokens must be at least 1, got 0"),
    ([1], {"max_tokens": "8"}, {}, "malformed request"),
    ([1], {"max_tokens": 3, "min_tokens": 4}, {}, "min_tokens"),
    ([1], {"temperature": -1.0}, {}, "temperature"),
    ([1], {"temperature": float("nan")}, {}, "temperature"),
    ([1], {"top_p": 0.0}, {}, "top_p"),
    ([1], {"top_k": -2}, {}, "top_k"),
    ([1], {"min_p": 1.5}, {}, "min_p"),
    ([1], {"repetition_penalty": 0.0}, {}, "repetition_penalty"),
    ([1], {"frequency_penalty": 3.0}, {}, "frequency_penalty"),
    ([1], {"logprobs": -2}, {}, "logprobs"),
    ([1], {"logit_bias": {"5": 1.0}}, {}, "malformed request"),
    ([1], {"logit_bias": {VOCAB: 1.0}}, {}, "logit_bias"),
    ([1], {"allowed_token_ids": []}, {}, "allowed_token_ids"),
    ([1], {"_bad_words_token_ids": [[VOCAB]]}, {}, "bad_words"),
    ([1], {"logprob_token_ids": [VOCAB]}, {}, "logprob_token_ids"),
    ([1], {"repetition_detection": {"min_count": "x"}}, {}, "repetition_detection.min_count must be an integer"),
    ([1], {"repetition_detection": {"max_pattern_size": -1}}, {}, "repetition_detection.max_pattern_size"),
    ([1], {"structured_outputs": {}}, {}, "exactly one kind of constraint must be given, got none"),
    ([1], {"structured_outputs": {"regex": "a", "choice": ["b"]}}, {}, "got regex, choice"),
    ([1], {"structured_outputs": {"regex": 5}}, {}, "must be a text"),
    ([1], {"structured_outputs": {"choice": [""]}}, {}, "none of them empty"),
    ([1], {}, {"sampling_params": None}, "sampling_params are missing"),
    ([1], {}, {"pooling_params": [None]}, "pooling"),
    ([1], {}, {"lora_request": ["a", 1, "p"]}, "LoRA"),
    ([1], {}, {"resumable": True}, "streaming input"),
    ([1], {}, {"mm_features": [{}]}, "only text prompts"),
]


@pytest.mark.parametrize(("prompt", "params", "fields", "message"), BAD)
def test_a_bad_request_fails_alone(
    wire: WireFrontend, prompt: list[int] | None, params: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    good = wire.add("good", PROMPT, GREEDY)
    bad = wire.add("bad", prompt, params, **fields)
    wire.finish()
    assert (bad.finish, bad.tokens) == (3, [])
    assert bad.outputs[0][18]["code"] == "validation_error"
    assert message in bad.outputs[0][18]["message"]
    assert (len(good.tokens), good.finish) == (8, 1)


def test_garbage_is_survived(wire: WireFrontend) -> None:
    for frames in ([b"\x00"], [b"\x00", b""], [b"\x01", b"\xff"], [b"\x03", b"\x90"], [b"\x09", b"x"], [b""], [b"\x00", b"\xc1"]):
        wire.send(frames)
    good = wire.add("good", PROMPT, GREEDY)
    wire.finish()
    assert len(good.tokens) == 8


def test_a_duplicate_id_ends_with_an_error(wire: WireFrontend) -> None:
    other = wire.add("other", PROMPT, GREEDY)
    first = wire.add("twin", PROMPT, {**GREEDY, "max_tokens": 50})
    wire.add("twin", PROMPT, GREEDY)
    wire.answers["twin"] = first
    wire.finish()
    assert first.finish == 3
    assert len(other.tokens) == 8
    again = wire.add("twin", PROMPT, GREEDY)
    wire.finish()
    assert len(again.tokens) == 8


def test_abort_stops_a_request_and_only_that(wire: WireFrontend) -> None:
    gone = wire.add("gone", PROMPT, {**GREEDY, "max_tokens": 55})
    stays = wire.add("stays", PROMPT, {**GREEDY, "max_tokens": 55})
    wire.until(lambda: len(gone.tokens) > 2)
    wire.abort("gone", "unknown")
    wire.finish("stays")
    assert gone.finish is None
    assert len(gone.tokens) < 55
    assert len(stays.tokens) == 55
    assert wire.stats[-1]["kv_cache_usage"] == 0.0


def test_outputs_go_to_the_client_that_asked(wire: WireFrontend) -> None:
    for client in (0, 1):
        wire.add(f"c{client}", PROMPT, GREEDY, client=client)
    wire.finish()
    assert wire.answers["c0"].tokens == wire.answers["c1"].tokens
    assert wire.call("get_supported_tasks", client=1)[1:] == [None, [None, ["generate"]]]


UTILITIES: list[tuple[str, list[Any], Any]] = [
    ("get_supported_tasks", [], ["generate"]),
    ("reset_mm_cache", [], None),
    ("is_sleeping", [], False),
    ("is_scheduler_paused", [], False),
    ("reset_prefix_cache", [False, False], True),
    ("get_weight_version", [], "default"),
    ("list_loras", [], []),
]


@pytest.mark.parametrize(("method", "args", "result"), UTILITIES)
def test_utilities(wire: WireFrontend, method: str, args: list[Any], result: Any) -> None:
    assert wire.call(method, *args)[1:] == [None, [None, result]]


def test_an_unknown_utility_fails(wire: WireFrontend) -> None:
    _, failure, result = wire.call("brew_coffee")
    assert failure.startswith("Call to brew_coffee method failed:")
    assert result is None


@pytest.mark.parametrize("level", [1, 2])
def test_requests_go_on_after_the_engine_has_slept(wire: WireFrontend, folder: Path, level: int) -> None:
    long = wire.add("r", PROMPT, {**GREEDY, "max_tokens": 50})
    wire.until(lambda: len(long.tokens) > 2)
    assert wire.call("sleep", level, "keep")[1:] == [None, [None, None]]
    made = len(long.tokens)
    assert made < 50
    assert wire.call("is_sleeping")[1:] == [None, [None, True]]
    queued = wire.add("queued", PROMPT, GREEDY)
    assert wire.call("wake_up", ["weights"])[1:] == [None, [None, False]]
    assert (len(long.tokens), queued.tokens) == (made, [])
    assert wire.call("wake_up", None)[1:] == [None, [None, True]]
    wire.finish()
    expected = reference(folder, [PROMPT], 50)[0]
    assert (long.tokens, queued.tokens) == (expected, expected[:8])


def test_sigterm_drains_for_as_long_as_it_may(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    process = spawn("engine", folder, "--headless", "--shutdown-timeout", 60)
    frontend.accept()
    answer = frontend.add("r", PROMPT, {**GREEDY, "max_tokens": 500})
    frontend.until(lambda: len(answer.tokens) > 2)
    process.send_signal(signal.SIGTERM)
    for number in itertools.count():  # until the signal has been noticed
        late = frontend.add(f"late-{number}", PROMPT, {**GREEDY, "max_tokens": 1})
        frontend.finish(f"late-{number}")
        if late.finish == 2:
            break
    assert late.tokens == []
    frontend.finish("r")
    assert (answer.finish, len(answer.tokens)) == (1, 500)
    assert process.wait(EXIT_S) == 0
    assert not frontend.dead


def test_a_second_sigterm_ends_a_drain(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    process = spawn("engine", folder, "--headless", "--shutdown-timeout", 600)
    frontend.accept()
    answer = frontend.add("r", PROMPT, {**GREEDY, "max_tokens": 500})
    frontend.until(lambda: len(answer.tokens) > 2)
    process.send_signal(signal.SIGTERM)
    frontend.until(lambda: len(answer.tokens) > 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(EXIT_S) == 0
    frontend.finish()
    assert answer.finish == 2


def test_sigterm_aborts_what_is_in_flight_and_exits_0(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    process = spawn("engine", folder, "--headless")
    frontend.accept()
    assert frontend.hello["headless"] is True
    answer = frontend.add("r", PROMPT, {**GREEDY, "max_tokens": 500})
    frontend.until(lambda: len(answer.tokens) > 2)
    title = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert title.startswith(b"fastfront::engine-core-0")
    process.send_signal(signal.SIGTERM)
    assert process.wait(EXIT_S) == 0
    frontend.finish()
    assert answer.finish == 2
    assert not frontend.dead


def test_a_headless_engine_leaves_when_the_frontend_has_gone(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    process = spawn("engine", folder, "--headless", "--disconnect-timeout", 0.5)
    frontend.accept()
    frontend.close()
    assert process.wait(EXIT_S) == 0


def test_a_headless_engine_leaves_when_its_connection_was_interrupted(
    frontend: WireFrontend, spawn: Spawn, folder: Path
) -> None:
    """Its frontend counts it as lost from then on, though the connection stands again."""
    path = frontend.input_addresses[0].removeprefix("ipc://")
    with Relay(path) as relay:
        frontend.input_addresses[0] = f"tcp://127.0.0.1:{relay.port}"
        process = spawn("engine", folder, "--headless", "--disconnect-timeout", 600)
        frontend.accept()
        frontend.add("a", PROMPT, {**GREEDY, "max_tokens": 2})
        frontend.finish()
        relay.interrupt()
        assert process.wait(EXIT_S) == 0


def test_an_engine_leaves_when_the_frontend_falls_silent(frontend: WireFrontend, spawn: Spawn, folder: Path) -> None:
    """A machine that is gone closes no connection. Requests under way end with the engine."""
    path = frontend.input_addresses[0].removeprefix("ipc://")
    with Relay(path) as relay:
        frontend.input_addresses[0] = f"tcp://127.0.0.1:{relay.port}"
        frontend.init = {"heartbeat_ms": 200, "silence_ms": 2000}
        process = spawn("engine", folder, "--headless", "--disconnect-timeout", 0.2)
        frontend.accept()
        frontend.add("a", PROMPT, {**GREEDY, "max_tokens": 2})
        frontend.finish()
        relay.silent.set()
        assert process.wait(EXIT_S) == 0


def test_a_local_engine_dies_with_its_parent(frontend: WireFrontend, folder: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-m', 'engine', *sys.argv[1:]]);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(folder), "--handshake", frontend.handshake_address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        frontend.accept()
        parent.kill()
    deadline = time.monotonic() + EXIT_S
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "still alive"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("from engine.worker.worker import Worker; Worker.execute = lambda self, plan: 1 / 0", "ZeroDivisionError"),
        (
            "from engine.core.output_thread import Codec; Codec.encode_into = lambda self, message, buffer: 1 / 0",
            "the output thread failed",
        ),
    ],
    ids=["step", "output-thread"],
)
def test_a_failure_sends_the_sentinel_and_exits_1(frontend: WireFrontend, folder: Path, fault: str, message: str) -> None:
    code = f"import sys; {fault}; from engine.core.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(folder), "--handshake", frontend.handshake_address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        frontend.accept()
        frontend.add("r", PROMPT, GREEDY)
        frontend.until(lambda: frontend.dead)
        _, errors = process.communicate(timeout=EXIT_S)
    assert process.returncode == 1
    assert message in errors


def test_a_model_that_cannot_be_loaded_ends_the_engine_with_a_clear_line(
    frontend: WireFrontend, spawn: Spawn, tmp_path: Path
) -> None:
    process = spawn("engine", tmp_path / "nowhere")
    identity, _ = frontend.handshake.recv_multipart()
    addresses = {"inputs": frontend.input_addresses, "outputs": frontend.output_addresses}
    init = {"addresses": addresses, "parallel_config": {}}
    frontend.handshake.send_multipart([identity, msgspec.msgpack.encode(init)])
    _, errors = process.communicate(timeout=EXIT_S)
    assert process.returncode == 1
    assert "nowhere: no such folder" in errors
    assert "Traceback" not in errors


def test_without_a_frontend_the_engine_gives_up(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn("engine", tmp_path, "--handshake-timeout", 0.2, handshake=f"ipc://{tmp_path}/nobody")
    _, errors = process.communicate(timeout=EXIT_S)
    assert process.returncode == 1
    assert "no answer from a frontend" in errors


OPTIONS: list[tuple[list[str], str]] = [
    (["m", "--max-model-len", "0"], "not positive"),
    (["m", "--kv-cache-memory", "lots"], "not a size"),
    (["m", "--max-num-seqs", "64", "--max-num-batched-tokens", "32"], "--max-num-batched-tokens 32 is less than"),
]


@pytest.mark.parametrize(("args", "message"), OPTIONS)
def test_wrong_options_are_refused_by_name(args: list[str], message: str) -> None:
    process = subprocess.run([sys.executable, "-m", "engine", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert message in process.stderr
