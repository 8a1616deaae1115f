"""The mock engine as a process: token modes, scripts, reports, control, life and death."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
import zmq

from tests.engine.conftest import ROOT, Spawn
from tests.engine.wire_frontend import WireFrontend

PROMPT = [11, 12, 13]
EXIT_S = 60


class Control:
    """The mock's control socket."""

    def __init__(self, frontend: WireFrontend, address: str) -> None:
        self.socket = frontend.context.socket(zmq.REQ)
        self.socket.connect(address)

    def __call__(self, **command: Any) -> dict[str, Any]:
        self.socket.send(orjson.dumps(command))
        answer: dict[str, Any] = orjson.loads(self.socket.recv())
        return answer

    def close(self) -> None:
        self.socket.close(linger=0)


@pytest.fixture
def start(frontend: WireFrontend, spawn: Spawn, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """A mock without step clock that has joined the frontend; `script` is written to a file."""

    def run(*args: object, script: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        if script is not None:
            (tmp_path / "script.json").write_text(json.dumps(script))
            args = (*args, "--script", tmp_path / "script.json")
        process = spawn("engine.mock", "--step-ms", 0, *args)
        frontend.accept()
        return process

    return run


Start = Callable[..., "subprocess.Popen[str]"]


def test_handshake_of_a_local_and_of_a_headless_mock(frontend: WireFrontend, start: Start) -> None:
    start("--max-model-len", 777, "--index", 0)
    assert frontend.hello == {"status": "HELLO", "local": True, "headless": False}
    assert frontend.ready[0]["max_model_len"] == 777
    assert len(frontend.ready[0]) == 25


def test_headless_hello(frontend: WireFrontend, start: Start) -> None:
    start("--headless")
    assert frontend.hello == {"status": "HELLO", "local": False, "headless": True}


def test_random_mode_gives_one_token_per_step_until_max_tokens(frontend: WireFrontend, start: Start) -> None:
    start("--vocab", 5000)
    answers = [frontend.add(f"r{i}", PROMPT, {"max_tokens": i + 1, "_eos_token_id": 100}) for i in range(40)]
    frontend.finish()
    for i, answer in enumerate(answers):
        assert len(answer.tokens) == i + 1
        assert all(len(step) == 1 for step in answer.steps)
        assert (answer.finish, answer.stop_reason) == (1, None)
        assert all(100 <= token < 5000 for token in answer.tokens)
    assert len({tuple(answer.tokens[:3]) for answer in answers[3:]}) > 1


def test_first_outputs_carry_events_and_prefill_stats(frontend: WireFrontend, start: Start) -> None:
    start()
    answer = frontend.add("r", PROMPT, {"max_tokens": 2})
    frontend.finish()
    first, last = answer.outputs
    assert [event["type"] for event in first[7]] == [1, 2]
    assert first[7][0]["timestamp"] <= first[7][1]["timestamp"]
    assert first[11]["num_prompt_tokens"] == len(PROMPT)
    assert last[7] is None
    assert last[11] is None


def test_bare_leaves_them_out_and_stats_adds_complete_stats(frontend: WireFrontend, start: Start) -> None:
    start("--bare", "--stats")
    answer = frontend.add("r", PROMPT, {"max_tokens": 2})
    frontend.finish()
    assert answer.outputs[0][7] is None
    assert answer.outputs[0][11] is None
    assert [len(stats) for stats in frontend.stats] == [18, 18]


ECHO: list[tuple[dict[str, Any], list[int], int, int | None]] = [
    ({"_eos_token_id": 2}, [11, 12, 13, 2], 0, None),
    ({"_eos_token_id": 12}, [11, 12], 0, None),
    ({"stop_token_ids": [13], "_eos_token_id": 2}, [11, 12, 13], 0, 13),
    ({"max_tokens": 2}, [11, 12], 1, None),
    ({"max_tokens": 7}, [11, 12, 13, 11, 12, 13, 11], 1, None),
    ({"stop_token_ids": [12], "min_tokens": 3, "max_tokens": 9}, [11, 100, 13, 11, 12], 0, 12),
]


@pytest.mark.parametrize(("params", "tokens", "finish", "reason"), ECHO)
def test_echo_mode(
    frontend: WireFrontend, start: Start, params: dict[str, Any], tokens: list[int], finish: int, reason: int | None
) -> None:
    start("--tokens", "echo")
    answer = frontend.add("r", PROMPT, params)
    frontend.finish()
    assert (answer.tokens, answer.finish, answer.stop_reason) == (tokens, finish, reason)


def arrays(value: Any) -> list[Any]:
    """Decode logprob arrays; None elements are left."""
    names = {"int32": "<i4", "float32": "<f4"}
    out = []
    for item in value:
        if item is not None:
            dtype, shape, data = item
            item = np.frombuffer(data.data, names.get(dtype, dtype)).reshape(shape).tolist()
        out.append(item)
    return out


@pytest.mark.parametrize("mode", ["echo", "random"])
def test_logprobs(frontend: WireFrontend, start: Start, mode: str) -> None:
    start("--tokens", mode, "--vocab", 1000)
    answer = frontend.add("r", PROMPT, {"max_tokens": 3, "logprobs": 2, "prompt_logprobs": 1})
    frontend.finish()
    for output, token in zip(answer.outputs, answer.tokens, strict=True):
        ids = [[token, token, (token + 1) % 1000]]
        assert arrays(output[2]) == [ids, [[-0.25, -0.25, -1.25]], [1], None]
    prompt = [[[12, 12], [13, 13]], [[-0.5, -0.5], [-0.5, -0.5]], [1, 1], None, None]
    assert arrays(answer.outputs[0][3]) == prompt
    assert answer.outputs[1][3] is None


def test_requests_with_and_without_logprobs_side_by_side(frontend: WireFrontend, start: Start) -> None:
    """With few ids, so that alternatives go round; requests come and go at different steps."""
    start("--vocab", 5)
    wanted = {f"r{i}": count for i, count in enumerate((None, 2, None, None, 7, 0, 2, None))}
    lengths = {name: 2 + 3 * (i % 4) for i, name in enumerate(wanted)}
    answers = {name: frontend.add(name, PROMPT, {"max_tokens": lengths[name], "logprobs": wanted[name]}) for name in wanted}
    frontend.finish()
    for name, answer in answers.items():
        count = wanted[name]
        assert (len(answer.tokens), answer.finish) == (lengths[name], 1)
        assert all(len(output) == 18 for output in answer.outputs)
        for output, token in zip(answer.outputs, answer.tokens, strict=True):
            if count is None:
                assert output[2] is None
                continue
            ids = [token, *((token + i) % 5 for i in range(count))]
            assert arrays(output[2]) == [[ids], [[-0.25, *(-0.25 - i for i in range(count))]], [1], None]


def test_clients_get_their_own_outputs(tmp_path: Path, spawn: Spawn) -> None:
    (tmp_path / "two").mkdir()
    with WireFrontend(tmp_path / "two", clients=2) as two:
        spawn("engine.mock", "--step-ms", 0, handshake=two.handshake_address)
        two.accept()
        assert len(two.ready) == 2
        for client in (0, 1):
            two.add(f"c{client}", PROMPT, {"max_tokens": 3}, client=client)
        two.finish()
        assert two.call("get_supported_tasks", client=1)[2] == [None, ["generate"]]


def test_step_clock(frontend: WireFrontend, start: Start) -> None:
    start("--step-ms", 20)
    frontend.add("r", PROMPT, {"max_tokens": 11})
    frontend.finish()
    stamps = [message[3] for message in frontend.messages]
    assert len(stamps) == 11
    assert stamps[-1] - stamps[0] >= 8 * 0.020, "steps are two periods early at most, after one that was late"


def test_utilities(frontend: WireFrontend, start: Start) -> None:
    start(script={"utilities": {"is_sleeping": {"fail": "no"}, "answer": {"result": 42}}})
    assert frontend.call("get_supported_tasks")[1:] == [None, [None, ["generate"]]]
    assert frontend.call("reset_mm_cache")[1:] == [None, [None, None]]
    assert frontend.call("is_scheduler_paused")[1:] == [None, [None, False]]
    assert frontend.call("answer")[1:] == [None, [None, 42]]
    assert frontend.call("is_sleeping")[1:] == ["Call to is_sleeping method failed: no", None]


def test_script_rules_are_chosen_by_their_conditions(frontend: WireFrontend, start: Start) -> None:
    done = {"finish": "stop"}
    start(
        script={
            "rules": [
                {"when": {"prompt_has": [5, 6]}, "tokens": [1], **done},
                {"when": {"prompt": [9]}, "tokens": [2], **done},
                {"when": {"name": "n", "child": 1}, "tokens": [3], **done},
                {"when": {"name": "n"}, "tokens": [4], **done},
                {"when": {"order": 6}, "tokens": [5], **done},
                {"when": {"prompt_len": 2}, "tokens": [6], **done},
            ],
            "default": {"tokens": [7], **done},
        }
    )
    named: dict[str, Any] = {"extra_args": {"script": "n"}}
    family: dict[str, Any] = {"external_req_id": "x", "arrival_time": 1.0}
    inline = {"extra_args": {"script": {"tokens": [8], **done}}}
    asked = [
        frontend.add("a", [4, 5, 6, 7]),
        frontend.add("b", [9]),
        frontend.add("c", [1], named, **family),
        frontend.add("d", [1], named, **family),
        frontend.add("1_e", [1], named),
        frontend.add("f", [1, 1]),
        frontend.add("g", [1, 1]),
        frontend.add("h", [1], inline),
        frontend.add("i", [1], {"extra_args": {"script": json.dumps(inline["extra_args"]["script"])}}),
        frontend.add("j", [1]),
    ]
    frontend.finish()
    assert [answer.tokens for answer in asked] == [[1], [2], [4], [3], [3], [6], [5], [8], [8], [7]]


def test_scripted_steps(frontend: WireFrontend, start: Start) -> None:
    steps = [[1], [2, 3], {"wait_steps": 2, "tokens": [4]}, {"tokens": [5], "finish": "stop", "stop_reason": "why"}]
    start(script={"default": {"steps": steps}})
    answer = frontend.add("r", PROMPT, {"max_tokens": 99})
    frontend.finish()
    assert answer.steps == [[1], [2, 3], [4], [5]]
    assert (answer.finish, answer.stop_reason) == (0, "why")


def test_scripted_tokens_obey_the_stop_rules_unless_told_otherwise(frontend: WireFrontend, start: Start) -> None:
    rule = {"steps": [[1], [2, 3, 4], [5]], "finish": "length"}
    start(script={"rules": [{"when": {"order": 0}, **rule}], "default": {**rule, "obey": False}})
    params = {"stop_token_ids": [3], "max_tokens": 99}
    obedient, free = frontend.add("a", PROMPT, params), frontend.add("b", PROMPT, params)
    frontend.finish()
    assert (obedient.steps, obedient.finish, obedient.stop_reason) == ([[1], [2, 3]], 0, 3)
    assert (free.steps, free.finish) == ([[1], [2, 3, 4], [5]], 1)


THEN: list[tuple[str, list[int], int]] = [
    ("loop", [1, 2, 1, 2, 1], 1),
    ("stop", [1, 2], 0),
    ("length", [1, 2], 1),
    ("echo", [1, 2, 13, 11, 12], 1),
]


@pytest.mark.parametrize(("then", "tokens", "finish"), THEN)
def test_what_follows_a_script(frontend: WireFrontend, start: Start, then: str, tokens: list[int], finish: int) -> None:
    start(script={"default": {"tokens": [1, 2], "then": then}})
    answer = frontend.add("r", PROMPT, {"max_tokens": 5})
    frontend.finish()
    assert (answer.tokens, answer.finish) == (tokens, finish)


def test_scripted_logprobs_may_hold_anything(frontend: WireFrontend, start: Start) -> None:
    entry = {"logprob": -0.5, "rank": 3, "top": [[7, float("-inf")], [8, float("nan")]]}
    start(script={"default": {"steps": [{"tokens": [9], "logprobs": [entry], "finish": "stop"}]}})
    answer = frontend.add("r", PROMPT, {"logprobs": 2})
    frontend.finish()
    ids, values, ranks, _ = arrays(answer.outputs[0][2])
    assert (ids, ranks) == ([[9, 7, 8]], [3])
    assert str(values) == "[[-0.5, -inf, nan]]"


def test_scripted_error_foreign_id_and_raw_message(frontend: WireFrontend, start: Start) -> None:
    error = {"code": "engine_paused", "message": "later", "retryable": True}
    raw = msgspec.msgpack.encode([0, [["raw", [77], None, None, None, None, None]], None, 1.0, None, None]).hex()
    steps = [{"raw": raw}, {"tokens": [1], "as_id": "stranger"}, {"finish": "error", "error": error}]
    start(script={"default": {"steps": steps}})
    answer = frontend.add("r", PROMPT)
    frontend.finish("r")
    assert frontend.answers["raw"].tokens == [77]
    assert frontend.answers["stranger"].tokens == [1]
    assert answer.finish == 3
    assert answer.outputs[-1][18] == error


def test_silence_lasts_until_the_abort_and_the_report_tells_all(frontend: WireFrontend, start: Start, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    start("--report", report, script={"default": {"tokens": [1]}})
    params = {"max_tokens": 5, "temperature": 0.5}
    answer = frontend.add("r", PROMPT, params)
    frontend.until(lambda: answer.tokens == [1])
    frontend.abort("r", "unknown")
    frontend.call("reset_mm_cache")
    events = [orjson.loads(line) for line in report.read_bytes().splitlines()]
    assert [event["event"] for event in events] == ["ready", "add", "abort", "utility"]
    add, abort = events[1], events[2]
    assert (add["id"], add["prompt"], add["params"], add["client"]) == ("r", PROMPT, params, 0)
    assert len(add["fields"]) == 22
    assert (abort["ids"], abort["known"], abort["running"]) == (["r", "unknown"], ["r"], 0)
    assert answer.tokens == [1]


@pytest.mark.parametrize("mode", ["random", "echo"])
def test_abort_ends_a_running_request_of_any_kind(frontend: WireFrontend, start: Start, tmp_path: Path, mode: str) -> None:
    control = Control(frontend, f"ipc://{tmp_path}/control")
    start("--tokens", mode, "--control", f"ipc://{tmp_path}/control")
    answer = frontend.add("r", PROMPT, {"max_tokens": 1_000_000})
    frontend.until(lambda: len(answer.tokens) > 3)
    frontend.abort("r")
    frontend.until(lambda: control(cmd="counts")["running"] == 0)
    assert answer.finish is None
    control.close()


def test_paused_mock_steps_by_hand(frontend: WireFrontend, start: Start, tmp_path: Path) -> None:
    control = Control(frontend, f"ipc://{tmp_path}/control")
    start("--control", f"ipc://{tmp_path}/control")
    assert control(cmd="pause")["ok"]
    answer = frontend.add("r", PROMPT, {"max_tokens": 10})
    frontend.until(lambda: control(cmd="counts")["waiting"] == 1)
    assert control(cmd="step", count=4)["running"] == 1
    frontend.until(lambda: len(answer.tokens) == 4)
    assert control(cmd="script", script={"default": {"tokens": [5], "finish": "stop"}})["ok"]
    assert control(cmd="clock", step_ms=50)["ok"]
    began = time.monotonic()
    assert control(cmd="resume")["ok"]
    scripted = frontend.add("s", PROMPT)
    frontend.finish()
    assert (len(answer.tokens), scripted.tokens) == (10, [5])
    assert time.monotonic() - began > 0.2  # six steps
    assert not control(cmd="clock", step_ms=-1)["ok"]
    refusal, counts = control(cmd="nonsense"), control(cmd="counts")
    assert 0 < refusal.pop("cpu_s") <= counts.pop("cpu_s")
    assert refusal == counts | {"ok": False, "error": "ValueError: unknown command 'nonsense'"}
    control.close()


def test_a_step_waits_until_its_gate_is_opened(frontend: WireFrontend, start: Start, tmp_path: Path) -> None:
    control = Control(frontend, f"ipc://{tmp_path}/control")
    steps = [[1], {"gate": "one", "tokens": [2]}, {"gate": "two", "tokens": [3], "finish": "stop"}]
    start("--control", f"ipc://{tmp_path}/control", script={"default": {"steps": steps}})
    answer = frontend.add("r", PROMPT)

    def steps_pass() -> None:
        before = control(cmd="counts")["steps"]
        frontend.until(lambda: control(cmd="counts")["steps"] > before + 3)

    frontend.until(lambda: answer.tokens == [1])
    control(cmd="open", gate="two")
    steps_pass()
    assert answer.tokens == [1]
    control(cmd="open", gate="one")
    frontend.finish()
    assert answer.tokens == [1, 2, 3]
    later = frontend.add("later", PROMPT)
    frontend.finish()
    assert later.tokens == [1, 2, 3]
    assert not control(cmd="script", script={"default": {"steps": [{"gate": 5}]}})["ok"]
    assert not control(cmd="open")["ok"]
    control.close()


def test_a_malformed_request_fails_alone(frontend: WireFrontend, start: Start) -> None:
    start()
    frontend.add("good", PROMPT, {"max_tokens": 3})
    bad = frontend.add("bad", PROMPT, {"max_tokens": "three"})
    frontend.send([b"\x00", b"\xc1"])
    frontend.send([b"\x01", b"\xc1"])
    frontend.send([b"\x03", b"\xc1"])
    frontend.send([b"\x77", b"\xc1"])
    frontend.send([b"\x00"])
    frontend.finish()
    assert (bad.finish, bad.tokens) == (3, [])
    assert bad.outputs[0][18]["code"] == "validation_error"
    assert len(frontend.answers["good"].tokens) == 3


def test_max_seqs_holds_requests_back(frontend: WireFrontend, start: Start) -> None:
    start("--max-seqs", 2, "--stats")
    for i in range(6):
        frontend.add(f"r{i}", PROMPT, {"max_tokens": 5})
    frontend.finish()
    assert max(stats["num_running_reqs"] for stats in frontend.stats) <= 2


DEATHS: list[tuple[str, int, bool]] = [("exit", 5, False), ("dead", 5, True), ("kill", -signal.SIGKILL, False)]


@pytest.mark.parametrize(("how", "status", "sentinel"), DEATHS)
def test_death(frontend: WireFrontend, start: Start, how: str, status: int, sentinel: bool) -> None:
    process = start(script={"default": {"steps": [[1], {"tokens": [2], "die": how, "exit_code": 5}]}})
    answer = frontend.add("r", PROMPT)
    assert process.wait(EXIT_S) == status
    frontend.until(lambda: answer.tokens == [1, 2] and frontend.dead == sentinel)


def test_hang_keeps_the_process_but_nothing_moves(frontend: WireFrontend, start: Start) -> None:
    process = start(script={"rules": [{"when": {"order": 0}, "steps": [{"tokens": [1], "die": "hang"}]}]})
    answer = frontend.add("r", PROMPT)
    frontend.until(lambda: answer.tokens == [1])
    later = frontend.add("later", PROMPT, {"max_tokens": 1})
    frontend.pump(300)
    assert later.tokens == []
    assert process.poll() is None


def test_sigterm_finishes_everything_with_abort(frontend: WireFrontend, start: Start) -> None:
    process = start("--step-ms", 5, "--max-seqs", 2)
    for i in range(3):
        frontend.add(f"r{i}", PROMPT, {"max_tokens": 1_000_000})
    frontend.until(lambda: sum(bool(answer.tokens) for answer in frontend.answers.values()) == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(EXIT_S) == 0
    frontend.finish()
    assert {answer.finish for answer in frontend.answers.values()} == {2}
    assert not frontend.dead


def test_ignored_sigterm(frontend: WireFrontend, start: Start) -> None:
    process = start("--ignore-sigterm")
    process.send_signal(signal.SIGTERM)
    frontend.add("r", PROMPT, {"max_tokens": 2})
    frontend.finish()
    assert process.poll() is None


def test_a_headless_mock_leaves_when_the_frontend_has_gone(frontend: WireFrontend, start: Start) -> None:
    process = start("--headless", "--linger-s", 0.2)
    frontend.add("r", PROMPT, {"max_tokens": 2})
    frontend.finish()
    frontend.close()
    assert process.wait(EXIT_S) == 0


def test_a_local_mock_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-m', 'engine.mock', '--handshake', 'ipc://{tmp_path}/nobody']);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        cmdline = Path(f"/proc/{pid}/cmdline")
        deadline = time.monotonic() + EXIT_S
        while b"mock-engine" not in cmdline.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        parent.kill()
    while cmdline.exists() and cmdline.read_bytes():
        assert time.monotonic() < deadline, "still alive"
        time.sleep(0.02)


def test_startup_failures(frontend: WireFrontend, spawn: Spawn) -> None:
    leaving = spawn("engine.mock", "--startup", "exit")
    identity, hello = frontend.handshake.recv_multipart()
    assert msgspec.msgpack.decode(hello)["status"] == "HELLO"
    addresses = {"inputs": frontend.input_addresses, "outputs": frontend.output_addresses}
    init = msgspec.msgpack.encode({"addresses": addresses, "parallel_config": {}})
    frontend.handshake.send_multipart([identity, init])
    assert leaving.wait(EXIT_S) == 3


def test_a_wrong_script_is_refused_with_its_key(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"default": {"tokns": [1]}}')
    process = spawn("engine.mock", "--script", tmp_path / "s.json")
    _, errors = process.communicate(timeout=EXIT_S)
    assert process.returncode == 2
    assert "tokns" in errors
