"""Loads against a server whose behaviour and times are known."""

from __future__ import annotations

import dataclasses
import json
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.load import Load, LoadError, run
from bench.load.__main__ import main
from bench.load.bodies import bodies
from bench.load.build import program
from tests.bench.tiny_server import EVENT_HEAD, Exchange, TinyServer, chunk, delta, event, plain, tokens, usage, whole

FIRST_S, GAP_S, TOKENS = 0.05, 0.02, 4


def paced(exchange: Exchange) -> None:
    """A role event at once, then `TOKENS` tokens at known times."""
    exchange.send(EVENT_HEAD)
    exchange.send_event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    for i in range(TOKENS):
        time.sleep(GAP_S if i else FIRST_S)
        exchange.send_event(delta(f" word{i}"))
    exchange.send(chunk(event(usage(7, TOKENS))) + chunk(event("[DONE]")) + b"0\r\n\r\n")


def answering(data: bytes) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.send(data)


def one_more(load: Load, answer: Callable[[Exchange], None]) -> tuple[dict[str, Any], TinyServer]:
    """The result of a load on a server that answers so."""
    with TinyServer(answer) as server:
        return run(dataclasses.replace(load, port=server.port)), server


LOAD = Load(port=1, streams=3, requests=12, max_tokens=TOKENS, progress=False, distinct=5)


def test_latencies_are_those_of_the_server() -> None:
    result, server = one_more(LOAD, paced)
    assert result["requests"] == {
        "started": 12, "ok": 12, "failed": 0, "disconnected": 0, "unfinished": 0, "slow": 0, "short": 0,
    }  # fmt: skip
    assert (result["tokens"], result["completed"]) == (12 * TOKENS, 12)
    assert result["tokens_counted_by"] == ["usage"]
    assert result["prompt_tokens_mean"] == 7
    assert result["ttft_ms"]["count"] == result["e2e_ms"]["count"] == 12
    assert result["itl_ms"]["count"] == 12 * (TOKENS - 1)
    # The server never sends early. (A percentile may be half a bucket off.)
    assert result["ttft_ms"]["p50"] >= FIRST_S * 1e3 * 0.99
    assert result["first_event_ms"]["p50"] <= result["ttft_ms"]["p50"], "seen at once where the machine is busy"
    assert result["e2e_ms"]["mean"] >= (FIRST_S + GAP_S * (TOKENS - 1)) * 1e3
    assert result["e2e_ms"]["mean"] >= result["ttft_ms"]["mean"] + result["tpot_ms"]["mean"] * (TOKENS - 1) - 0.001
    assert result["itl_ms"]["mean"] == pytest.approx(result["tpot_ms"]["mean"], rel=1e-3)
    assert result["elapsed_s"] >= 4 * (FIRST_S + GAP_S * (TOKENS - 1)), "four rounds of three"
    assert result["tokens_per_s"] == pytest.approx(12 * TOKENS / result["elapsed_s"])
    assert server.connections == 3, "kept open"


def test_the_clock_runs_while_a_connection_waits_to_be_accepted() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def late() -> None:
        select.select([listener], [], [])
        time.sleep(0.1)
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(whole(tokens(1)))

    thread = threading.Thread(target=late)
    thread.start()
    result = run(dataclasses.replace(LOAD, port=listener.getsockname()[1], streams=1, requests=1, max_tokens=1))
    thread.join()
    listener.close()
    assert result["ttft_ms"]["max"] >= 100


def cut(data: bytes) -> Callable[[Exchange], None]:
    """Sends the answer in many small pieces; which, depends on the request."""

    def answer(exchange: Exchange) -> None:
        rng = random.Random(exchange.body["messages"][0]["content"])
        at = 0
        while at < len(data):
            step = rng.randrange(1, 60)
            exchange.send(data[at : at + step])
            at += step

    return answer


@pytest.mark.parametrize("how", [answering, cut])
def test_tokens_are_counted_however_the_bytes_are_cut(how: Callable[[bytes], Callable[[Exchange], None]]) -> None:
    events = [delta("a", [1]), delta("bcd", [2, 3, 4]), delta("", []), delta("e", [5, 6, 7]), usage(7, 7), "[DONE]"]
    load = dataclasses.replace(LOAD, return_token_ids=True, max_tokens=7)
    result, server = one_more(load, how(whole(events)))
    assert (result["requests"]["ok"], result["requests"]["short"], result["failures"]) == (12, 0, {})
    assert result["tokens"] == 12 * 7
    assert result["tokens_counted_by"] == ["ids"]
    assert result["tokens_per_event"] == {"mean": pytest.approx(7 / 3), "max": 3, "counts": {"1": 12, "3": 24}}
    assert all(exchange.body["return_token_ids"] for exchange in server.exchanges)


def test_the_usage_puts_the_count_right() -> None:
    result, _ = one_more(LOAD, answering(whole([delta("ab"), delta("cd"), usage(1, 9), "[DONE]"])))
    assert result["tokens"] == 12 * 9
    assert sum(result["tokens_by_second"]) == 12 * 9
    assert result["tokens_per_event"] == {"mean": 4.5, "max": 1, "counts": {"1": 24}}


def test_gaps_are_those_of_each_choice() -> None:
    """Two choices take turns; a gap is from a choice's token to its next."""

    def answer(exchange: Exchange) -> None:
        exchange.send(EVENT_HEAD)
        for i in range(6):
            time.sleep(0.01)
            exchange.send_event(delta("x", index=i % 2))
        exchange.send(chunk(event("[DONE]")) + b"0\r\n\r\n")

    result, _ = one_more(dataclasses.replace(LOAD, requests=2, streams=1, extra={"n": 2}, max_tokens=3), answer)
    assert result["itl_ms"]["count"] == 2 * 2 * 2
    assert result["requests"]["short"] == 0
    assert result["tokens_counted_by"] == ["events"]


def test_answers_that_do_not_stream() -> None:
    body = {"choices": [{"message": {"content": 'x "usage":{"completion_tokens":5} '}}], "usage": usage(11, 3)["usage"]}
    load = dataclasses.replace(LOAD, stream=False, max_tokens=3)
    result, server = one_more(load, answering(plain(200, body)))
    assert (result["requests"]["ok"], result["tokens"], result["prompt_tokens_mean"]) == (12, 36, 11)
    assert (result["ttft_ms"], result["e2e_ms"]["count"]) == ({"count": 0}, 12)
    assert not any("stream" in exchange.body for exchange in server.exchanges)


def hang(exchange: Exchange) -> None:
    exchange.connection.recv(1)


def reset(exchange: Exchange) -> None:
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    exchange.connection.close()
    raise ConnectionResetError


def cut_off(exchange: Exchange) -> None:
    exchange.send(EVENT_HEAD + chunk(event(delta("a"))))
    raise ConnectionResetError  # closes


FAILURES: dict[str, tuple[Callable[[Exchange], None], str]] = {
    "http_503": (answering(plain(503, {"error": {"message": 'no "room"'}})), '{"error": {"message": "no \\"room\\""}}'),
    "error_event": (answering(whole([delta("a"), {"error": {"code": 500}}, "[DONE]"])), '{"error":{"code":500}}'),
    "no_done": (answering(whole([delta("a")])), ""),
    "bad_response": (answering(b"220 mail.example ESMTP\r\n"), ""),
    "closed_early": (cut_off, ""),
    "reset": (reset, ""),
    "timeout": (hang, ""),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_are_told_apart(kind: str) -> None:
    answer, first = FAILURES[kind]
    result, _ = one_more(dataclasses.replace(LOAD, requests=4, timeout_s=0.3 if kind == "timeout" else 60), answer)
    assert result["failures"] == {kind: 4}
    assert (result["requests"]["failed"], result["requests"]["ok"], result["completed"]) == (4, 0, 0)
    assert result["first_failure"] == first
    assert result["e2e_ms"] == {"count": 0}
    assert result["connect_failures"] == 0


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = run(dataclasses.replace(LOAD, port=port, requests=3))
    assert result["failures"] == {"connect_refused": 3}
    assert result["connect_failures"] == 3
    assert result["requests_per_s"] == 0


def test_an_open_loop_goes_on_when_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = run(dataclasses.replace(LOAD, port=port, mode="open", rate=500, requests=20))
    assert result["failures"] == {"connect_refused": 20}


def test_a_connection_for_each_request() -> None:
    result, server = one_more(dataclasses.replace(LOAD, connections="new"), answering(whole(tokens(TOKENS))))
    assert (server.connections, result["connect_ms"]["count"]) == (12, 12)
    assert all("connection: close" in exchange.head for exchange in server.exchanges)


def test_idle_connections_that_the_server_closes_are_no_failures() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(whole(tokens(1)))
        raise ConnectionResetError  # closes, unannounced

    result, server = one_more(dataclasses.replace(LOAD, max_tokens=1, requests=60), answer)
    assert (result["requests"]["ok"], result["failures"]) == (60, {})
    assert server.connections >= 60


def test_waiting_for_a_connection_is_part_of_the_latency() -> None:
    """One connection, 20 ms a request, 200 requests due per second: no omission is coordinated."""

    def answer(exchange: Exchange) -> None:
        time.sleep(0.02)
        exchange.send(whole(tokens(1)))

    load = dataclasses.replace(LOAD, mode="open", rate=200.0, streams=1, requests=40, max_tokens=1)
    result, server = one_more(load, answer)
    assert (result["requests"]["ok"], server.connections) == (40, 1)
    # The last one was due after 0.2 s or so and begins after 0.78 s at the earliest.
    assert result["e2e_ms"]["max"] > 300
    assert result["ttft_ms"]["p50"] > 100
    assert result["backlog_max"] > 10


def test_an_open_loop_keeps_its_rate() -> None:
    load = dataclasses.replace(LOAD, mode="open", rate=400.0, streams=64, requests=200, max_tokens=1)
    result, _ = one_more(load, answering(whole(tokens(1))))
    assert result["requests"]["ok"] == 200
    assert result["elapsed_s"] > 0.35, "200 arrivals at 400 per second, with this seed"


def test_connections_that_begin_while_timeouts_are_looked_for_are_not_late() -> None:
    load = dataclasses.replace(LOAD, mode="open", connections="new", rate=800.0, streams=64, requests=1000, max_tokens=1)
    result, _ = one_more(load, answering(whole(tokens(1))))
    assert (result["requests"]["ok"], result["failures"]) == (1000, {})


def test_clients_leave() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(EVENT_HEAD)
        while True:
            exchange.send_event(delta("x"))
            time.sleep(0.002)

    result, server = one_more(dataclasses.replace(LOAD, disconnect_share=1.0, max_tokens=20), answer)
    assert (result["requests"]["disconnected"], result["requests"]["ok"], result["failures"]) == (12, 0, {})
    assert len(server.exchanges) == server.connections == 12


def test_clients_that_do_not_stream_leave_too() -> None:
    load = dataclasses.replace(LOAD, disconnect_share=1.0, stream=False, requests=4, streams=4)
    result, _ = one_more(load, hang)
    assert (result["requests"]["disconnected"], result["failures"]) == (4, {})


def test_slow_readers_are_slow_and_kept_out_of_latencies() -> None:
    times: list[float] = []

    def answer(exchange: Exchange) -> None:
        exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        began = time.monotonic()
        exchange.send(whole([*(delta("x" * 100) for _ in range(150)), "[DONE]"]))
        times.append(time.monotonic() - began)

    load = dataclasses.replace(LOAD, streams=2, requests=2, slow_share=0.5, slow_bytes_per_s=100_000, max_tokens=150)
    result, _ = one_more(load, answer)
    assert (result["requests"]["ok"], result["requests"]["slow"]) == (2, 1)
    assert (result["ttft_ms"]["count"], result["e2e_ms"]["count"]) == (1, 1)
    assert result["tokens"] == 300
    assert max(times) > 0.05, "the server had to wait for one of them"


def test_phases() -> None:
    """Warm-up does not count, and both ends of the measuring phase are told."""
    seen: list[tuple[str, int]] = []
    with TinyServer(answering(whole(tokens(1)))) as server:
        load = dataclasses.replace(LOAD, port=server.port, requests=0, seconds=1.0, warmup_s=1.0, max_tokens=1)
        result = run(load, lambda phase: seen.append((phase, len(server.exchanges))))
        served = len(server.exchanges)
    assert [phase for phase, _ in seen] == ["measuring", "ended"]
    assert 0 < seen[0][1] < seen[1][1]
    assert result["requests"]["started"] <= served - seen[0][1] + load.streams
    assert 0.9 < result["elapsed_s"] < 60


def test_requests_at_the_end_are_waited_for() -> None:
    ended = threading.Event()

    def answer(exchange: Exchange) -> None:
        assert ended.wait(60)
        exchange.send(whole(tokens(TOKENS)))

    load = dataclasses.replace(LOAD, requests=0, seconds=1.0)
    with TinyServer(answer) as server:
        result = run(dataclasses.replace(load, port=server.port), lambda phase: ended.set() if phase == "ended" else None)
    assert (result["requests"]["ok"], result["requests"]["unfinished"]) == (3, 0)
    assert result["completed"] == 0, "behind the end"
    result, _ = one_more(dataclasses.replace(load, drain_s=0.05), hang)
    assert (result["requests"]["ok"], result["requests"]["unfinished"]) == (0, 3)


def test_a_callback_that_raises_ends_the_generator() -> None:
    def raise_it(phase: str) -> None:
        raise ZeroDivisionError(phase)

    with TinyServer(hang) as server, pytest.raises(ZeroDivisionError, match="measuring"):
        run(dataclasses.replace(LOAD, port=server.port), raise_it)


def test_progress_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    load = dataclasses.replace(LOAD, requests=0, seconds=0.6, warmup_s=0.3, progress=True)
    one_more(load, paced)
    shown = capfd.readouterr().err
    assert "warm-up" in shown
    assert "measuring [" in shown
    assert "3 live" in shown
    assert "tok/s" in shown
    one_more(LOAD, answering(whole(tokens(TOKENS))))
    assert capfd.readouterr().err == ""


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    with TinyServer(answering(whole(tokens(3)))) as server:
        words = ["--port", str(server.port), "--requests", "5", "--streams", "2", "--max-tokens", "3", "--no-ignore-eos"]
        assert main([*words, "--extra", '{"stop": ["x"]}', "--json", str(out)]) == 0
        assert main(["--port", str(server.port)]) == 2
    result = json.loads(out.read_text())
    assert (result["requests"]["ok"], result["load"]["extra"]) == (5, {"stop": ["x"]})
    assert server.exchanges[0].body["stop"] == ["x"]
    assert "ignore_eos" not in server.exchanges[0].body
    assert "requests, seconds" in capsys.readouterr().err
    assert main(["--port", str(server.port), "--requests", "1", "--no-progress"]) == 1, "nobody listens any more"


def test_threads_share_the_work() -> None:
    load = dataclasses.replace(LOAD, threads=3, streams=7, requests=100, max_tokens=1)
    result, server = one_more(load, answering(whole(tokens(1))))
    assert (result["requests"]["ok"], server.connections, result["threads"]) == (100, 7, 3)


# --- bodies


def made(**fields: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bodies(dataclasses.replace(LOAD, **fields))]


def test_random_prompts() -> None:
    first, *others = made(prompt_tokens=9, distinct=4, model="m", extra={"stop": ["x"], "ignore_eos": None})
    assert first == {
        "model": "m", "messages": first["messages"], "max_tokens": TOKENS, "stream": True,
        "stream_options": {"include_usage": True}, "stop": ["x"],
    }  # fmt: skip
    words = [body["messages"][0]["content"] for body in (first, *others)]
    assert [len(text.split()) for text in words] == [9] * 4
    assert len(set(words)) == 4
    assert len({text.split()[0] for text in words}) == 1, "what the generator changes"
    assert made(prompt_tokens=9, distinct=4)[1]["messages"] == others[0]["messages"], "the same in every run"
    assert made(path="/v1/completions", stream=False, return_token_ids=True, ignore_eos=False, distinct=1) == [
        {"prompt": made(distinct=1)[0]["messages"][0]["content"], "max_tokens": TOKENS, "return_token_ids": True}
    ]


@pytest.mark.parametrize("extra", [{}, {"messages": None, "prompt": "with that this from here"}])
def test_random_prompts_are_never_the_same(extra: dict[str, Any]) -> None:
    load = dataclasses.replace(LOAD, requests=200, distinct=2, threads=2, prompt_tokens=6, extra={"stop": ["that this"], **extra})
    result, server = one_more(load, answering(whole(tokens(TOKENS))))
    bodies = [exchange.body for exchange in server.exchanges]
    texts = [body["messages"][0]["content"] if "messages" in body else body["prompt"] for body in bodies]
    assert result["requests"]["ok"] == len({tuple(text.split()[:4]) for text in texts}) == 200
    assert {tuple(map(len, text.split()[:4])) for text in texts} == {(4, 4, 4, 4)}
    assert len({tuple(text.split()[4:]) for text in texts}) == (1 if extra else 2), "the rest stays"
    assert all(body["stop"] == ["that this"] for body in bodies)


def test_a_prompt_that_the_extra_fields_replace_stays() -> None:
    load = dataclasses.replace(LOAD, extra={"messages": None, "prompt": "always this"})
    _, server = one_more(load, answering(whole(tokens(TOKENS))))
    assert {exchange.body["prompt"] for exchange in server.exchanges} == {"always this"}


def test_prompts_may_come_again() -> None:
    load = dataclasses.replace(LOAD, unique=False, distinct=3)
    _, server = one_more(load, answering(whole(tokens(TOKENS))))
    assert len({exchange.body["messages"][0]["content"] for exchange in server.exchanges}) == 3


def test_prompts_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"messages": [{"role": "user", "content": "ü"}]}\n')
    assert [body["messages"][0]["content"] for body in made(prompts=file)] == ["a", "ü"]


def test_fields_of_a_mix_take_turns(tmp_path: Path) -> None:
    mix = [{}, {"stop": ["a"]}, {"logprobs": True, "extra": 2}]
    assert [body.get("stop") for body in made(mix=mix, distinct=5)] == [None, ["a"], None, None, ["a"]]
    assert [body["extra"] for body in made(mix=mix, distinct=3, extra={"extra": 1})] == [1, 1, 2]
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"prompt": "b"}\n')
    assert [body.get("stop") for body in made(mix=mix, prompts=file)] == [None, ["a"]]
    _, server = one_more(dataclasses.replace(LOAD, mix=mix, requests=60, distinct=3), answering(whole(tokens(TOKENS))))
    stops = [exchange.body["messages"][0]["content"] for exchange in server.exchanges if "stop" in exchange.body]
    assert len(stops) == len(set(stops)) == 20, "prompts are varied in the same place"


def test_bodies_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bodies.jsonl"
    file.write_text('{"a": 1}\n{"b": "ü"}\n')
    _, server = one_more(dataclasses.replace(LOAD, bodies=file, requests=4, streams=1), answering(whole(tokens(TOKENS))))
    assert [exchange.body for exchange in server.exchanges] == [{"a": 1}, {"b": "ü"}] * 2


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "mode": ({"mode": "both"}, "^mode:"),
    "rate": ({"rate": 3.0}, "^rate:"),
    "no rate": ({"mode": "open"}, "^rate:"),
    "no end": ({"requests": 0}, "^requests, seconds:"),
    "two ends": ({"seconds": 1.0}, "^requests, seconds:"),
    "streams": ({"streams": 0}, "^streams:"),
    "mix": ({"mix": [{"n": 2}]}, "^mix: no max_tokens, messages, model, n, "),
    "share": ({"slow_share": 1.5}, "^slow_share:"),
    "n": ({"extra": {"n": 0}}, r"^extra\.n:"),
    "header": ({"headers": {"x": "a\r\nb"}}, "headers:"),
    "two files": ({"prompts": Path("a"), "bodies": Path("b")}, "^prompts, bodies:"),
    "no file": ({"prompts": Path("/nowhere")}, "^prompts: .*nowhere"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_named(case: str) -> None:
    fields, message = WRONG[case]
    with pytest.raises(LoadError, match=message):
        made(**fields)


@pytest.mark.parametrize(
    ("line", "message"), [("{", "1: Expecting"), ("3", "neither"), ('{"text": 1}', "neither"), ("", "is empty")]
)
def test_wrong_prompt_files_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(line)
    with pytest.raises(LoadError, match=message):
        made(prompts=file)


def test_a_file_of_bodies_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadError, match="status 2"):
        run(dataclasses.replace(LOAD, bodies=Path("/nowhere")))
    assert "/nowhere: No such file" in capfd.readouterr().err


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="needs a C compiler"):
        program(tmp_path)


def test_the_program_is_built_once(tmp_path: Path) -> None:
    first = program(tmp_path)
    stamp = first.stat().st_mtime_ns
    assert program(tmp_path) == first
    assert first.stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
