"""Log lines: their settings, their form, and when they are written."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from fastfront._speedups.watched import Line, Watched
from fastfront.config import LogOptions
from fastfront.errors import SetupError
from fastfront.metrics.graphs import GraphUses
from fastfront.metrics.http import HttpMetrics
from fastfront.metrics.loads import EngineLoad, engine_load
from fastfront.metrics.stats_log import Counts, StatsLog, counts, stats_lines
from fastfront.server.access import AccessLog
from fastfront.server.exchange import Exchange
from fastfront.server.logs import TextHandler, configure_logging, sole_text_handler
from fastfront.server.output_log import LoggedAnswer, OutputLog
from fastfront.server.request_log import RequestLog
from fastfront.server.watch import Watch
from fastfront.streams.prepared import PreparedCall, PreparedPrompt
from tests.support.waiting import wait_for
from tests.unit.support import config_from


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger without handlers; as it was afterwards."""
    found = logging.getLogger()
    handlers, level = found.handlers[:], found.level
    found.handlers[:] = []
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)


def options(folder: Path, *words: str) -> LogOptions:
    return config_from(str(folder), *words).log


# --- flags and variables ---------------------------------------------------------------------------------------------


def test_flags(tiny_folder: Path) -> None:
    assert options(tiny_folder) == LogOptions()
    got = options(
        tiny_folder, "--log-level", "DEBUG", "--log-format", "json", "--disable-uvicorn-access-log", "--enable-log-requests",
        "--max-log-len", "10", "--disable-log-stats", "--disable-access-log-for-endpoints", "/health,/metrics",
    )  # fmt: skip
    assert (got.level, got.form, got.access, got.requests, got.max_prompt_chars) == ("debug", "json", False, True, 10)
    assert (got.stats_interval_s, got.access_skips) == (0.0, {"/health", "/metrics"})
    assert options(tiny_folder, "--uvicorn-log-level", "TRACE").level == "debug"


def test_outputs_need_requests(tiny_folder: Path) -> None:
    got = options(tiny_folder, "--enable-log-requests", "--enable-log-outputs", "--no-enable-log-deltas")
    assert (got.requests, got.outputs, got.deltas) == (True, True, False)
    with pytest.raises(SetupError, match="--enable-log-outputs requires --enable-log-requests"):
        options(tiny_folder, "--enable-log-outputs")


class GoneStream:
    def send_bytes(self, _data: bytes) -> bool:
        return False


def test_a_write_that_fails_is_told_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    request = SimpleNamespace(response_stream=lambda *_: GoneStream())
    answer = LoggedAnswer(cast(Any, SimpleNamespace(protocol=request, on_end=None)), "r", OutputLog(None, True))
    sent = answer.response_stream(200, []).send_bytes(b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n')
    assert sent is False
    assert caplog.messages == ["Generated response r (streaming delta): output: 'a', finish_reason: None"]


def test_the_environment(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "logging.json"
    path.write_text('{"root": {"level": "ERROR"}}')
    for name, value in {
        "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOG_STATS_INTERVAL": "3", "VLLM_LOGGING_PREFIX": "p ",
        "VLLM_LOGGING_STREAM": "ext://sys.stdout", "VLLM_CONFIGURE_LOGGING": "0", "VLLM_LOGGING_CONFIG_PATH": str(path),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    got = options(tiny_folder)
    assert (got.level, got.stats_interval_s, got.prefix, got.stream, got.configure) == ("warning", 3.0, "p ", "stdout", False)
    assert got.config == {"root": {"level": "ERROR"}}
    assert options(tiny_folder, "--log-level", "info").level == "info"


@pytest.mark.parametrize(
    ("name", "value"),
    [("VLLM_LOGGING_LEVEL", "loud"), ("VLLM_LOGGING_STREAM", "x"), ("VLLM_CONFIGURE_LOGGING", "maybe"),
     ("VLLM_LOG_STATS_INTERVAL", "0"), ("VLLM_LOGGING_CONFIG_PATH", "/no/such")],
)  # fmt: skip
def test_bad_variables_are_named(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=value if name.endswith("PATH") else name):
        options(tiny_folder)


# --- set-up ----------------------------------------------------------------------------------------------------------


def test_text_lines(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogOptions(level="warning", prefix="100% ", stream="stdout"))
    logging.getLogger("x").info("hidden")
    logging.getLogger("x").warning("shown %d", 5)
    out = capsys.readouterr().out
    assert out.startswith("100% ")
    assert out.endswith(" WARNING x: shown 5\n")
    assert out.count("\n") == 1


def test_json_lines(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogOptions(form="json"))
    logging.getLogger("x").info('a "b"\n%s', "c", extra={"status": 200})
    try:
        raise ValueError("oh")
    except ValueError:
        logging.getLogger("x").exception("failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "INFO", "logger": "x", "message": 'a "b"\nc', "status": 200}
    assert second["exception"].endswith("ValueError: oh")


def test_a_configuration_of_ones_own(root: logging.Logger) -> None:
    config = {"handlers": {"h": {"class": "logging.NullHandler"}}, "root": {"level": "ERROR", "handlers": ["h"]}}
    configure_logging(LogOptions(config=config))
    assert root.level == logging.ERROR
    assert [type(handler).__name__ for handler in root.handlers] == ["NullHandler"]
    with pytest.raises(SetupError, match="--log-config-file"):
        configure_logging(LogOptions(config={"root": {"handlers": ["none"]}}))


def test_logging_can_stay_as_it_is(root: logging.Logger) -> None:
    before = root.handlers[:]
    configure_logging(LogOptions(configure=False))
    assert root.handlers == before


# --- access ----------------------------------------------------------------------------------------------------------


class Protocol:
    """A request that notes its answers."""

    client, http_version, method, query_string = "1.2.3.4:5", "1.1", "POST", ""

    def __init__(self, path: str) -> None:
        self.path = path
        self.sent: list[tuple[Any, ...]] = []

    def response_bytes(self, *answer: Any) -> None:
        self.sent.append(answer)

    response_empty = response_stream = response_bytes

    def get(self, name: str) -> str | None:
        return None


def lines_of(caplog: pytest.LogCaptureFixture, act: Any, path: str = "/v1/x", skips: frozenset[str] = frozenset()) -> list[str]:
    """The lines that an exchange leads to."""
    caplog.set_level(logging.INFO)
    access = AccessLog(skips)
    exchange = Exchange(Protocol(path))  # type: ignore[arg-type]
    Watch(access, HttpMetrics(["/"], "", 0.0)).watch(exchange)
    act(exchange)
    access.start()
    access.stop(10.0)
    return [record.getMessage().rpartition(" ")[0] for record in caplog.records if record.name == "fastfront.access"]


def test_whole_answers(caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of(caplog, lambda e: e.json(b"{}", 400)) == ['1.2.3.4:5 - "POST /v1/x HTTP/1.1" 400 Bad Request']
    caplog.clear()
    assert lines_of(caplog, lambda e: e.empty(200)) == ['1.2.3.4:5 - "POST /v1/x HTTP/1.1" 200 OK']
    assert caplog.records[0].__dict__["status"] == 200
    assert caplog.records[0].__dict__["duration_s"] >= 0


def test_streams_are_told_when_they_end(caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of(caplog, lambda e: e.protocol.response_stream(200, [])) == []

    def whole(exchange: Exchange) -> None:
        exchange.protocol.response_stream(200, [])
        assert exchange.on_end is not None
        exchange.on_end(None)
        exchange.on_end(None)

    assert lines_of(caplog, whole) == ['1.2.3.4:5 - "POST /v1/x HTTP/1.1" 200 OK']


def test_clients_that_left_before_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def leave(exchange: Exchange) -> None:
        assert exchange.on_end is not None
        exchange.on_end(None)

    assert lines_of(caplog, leave) == ['1.2.3.4:5 - "POST /v1/x HTTP/1.1" 499 Client Closed Request']


def test_an_answer_and_the_end_of_its_call_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def both(exchange: Exchange) -> None:
        exchange.json(b"{}")
        assert exchange.on_end is not None
        exchange.on_end(None)

    assert len(lines_of(caplog, both)) == 1


def test_some_paths_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of(caplog, lambda e: e.empty(200), "/health", frozenset({"/health"})) == []


def test_a_path_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines_of(caplog, lambda e: e.empty(200), "/a\nb\x1b")
    assert "/a%0Ab%1B" in line


@pytest.mark.parametrize("path", ['/x HTTP/1.1" 200 OK 0.000s', "/a b", '/a"b'])
def test_a_path_does_not_look_like_the_rest_of_its_line(caplog: pytest.LogCaptureFixture, path: str) -> None:
    (line,) = lines_of(caplog, lambda e: e.empty(404), path)
    assert line == f'1.2.3.4:5 - "POST {quote(path)} HTTP/1.1" 404 Not Found'


def test_handlers_that_fail_do_not_end_the_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            if "first" in record.getMessage():
                raise ValueError("no room")
            return True

    caplog.set_level(logging.INFO)
    logger, failing = logging.getLogger("fastfront.access"), Failing()
    logger.addHandler(failing)
    try:
        access = AccessLog(frozenset())
        access.start()
        access.add(Line("c", "GET", "/first", "1.1", 200, 0.1))
        wait_for(lambda: "no room" in capsys.readouterr().err, "the failure")
        access.add(Line("c", "GET", "/second", "1.1", 200, 0.1))
        access.stop(10.0)
    finally:
        logger.removeHandler(failing)
    assert "/second" in caplog.text


def test_a_path_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines_of(caplog, lambda e: e.empty(200), "/" + "a" * 100_000)
    assert len(line) < 2500


def test_nothing_refers_back_to_the_exchange() -> None:
    """A cycle would leave every request to the garbage collector."""
    watch = Watch(AccessLog(frozenset()), HttpMetrics(["/"], "", 0.0))
    exchange = Exchange(Protocol("/"))  # type: ignore[arg-type]
    before = sys.getrefcount(exchange)
    watch.watch(exchange)
    assert isinstance(exchange.protocol, Watched)
    assert sys.getrefcount(exchange) == before


def plain_logger(handlers: list[logging.Handler]) -> logging.Logger:
    logger = logging.getLogger(f"fastfront.test.{id(handlers)}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in handlers:
        logger.addHandler(handler)
    return logger


def test_lines_written_at_once_look_like_records() -> None:
    stream = io.StringIO()
    handler = TextHandler(stream, "100% ")
    logger = plain_logger([handler])
    logger.info("a %s", "b")
    assert sole_text_handler(logger) is handler
    handler.write_lines(logger.name, ["a b", "c"])
    one, two, three = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME", line) for line in stream.getvalue().splitlines())
    assert one == two == f"100% TIME INFO {logger.name}: a b"
    assert three.endswith(": c")


def test_lines_go_through_logging_where_it_may_do_something_else_with_them() -> None:
    def handler() -> TextHandler:
        return TextHandler(io.StringIO(), "")

    assert sole_text_handler(plain_logger([logging.StreamHandler()])) is None
    assert sole_text_handler(plain_logger([handler(), handler()])) is None
    assert sole_text_handler(plain_logger([])) is None
    loud, filtered, chosen = handler(), handler(), handler()
    loud.setLevel(logging.WARNING)
    filtered.addFilter(lambda record: True)
    assert sole_text_handler(plain_logger([loud])) is None
    assert sole_text_handler(plain_logger([filtered])) is None
    logger = plain_logger([chosen])
    logger.addFilter(lambda record: True)
    assert sole_text_handler(logger) is None


def test_a_stream_that_is_closed_fails_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler = TextHandler(stream, "")
    stream.close()
    handler.write_lines("x", ["a"])
    assert "ValueError" in capsys.readouterr().err


# --- requests --------------------------------------------------------------------------------------------------------


def call_of(**changes: Any) -> PreparedCall:
    return PreparedCall("chat", "chatcmpl-1", 0, "m", [PreparedPrompt([1, 2, 3], 7)], {"top_p": 0.5}, **changes)


def test_parameters_at_info_and_prompts_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastfront.requests")
    request_log = RequestLog(lambda ids: "text\n" * len(ids), 7)
    request_log(call_of(stream=True))
    (line,) = caplog.messages
    for part in ("chatcmpl-1", "stream=True", "[3]", "[7]", "'top_p': 0.5"):
        assert part in line
    caplog.set_level(logging.DEBUG, "fastfront.requests")
    request_log(call_of())
    assert caplog.messages[-1] == "Request chatcmpl-1, prompt 0: 'text\\nte'"


def test_long_parameters_are_cut_and_ids_cannot_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastfront.requests")
    call = call_of()
    call.sampling = {"structured_outputs": "x" * 10_000}
    call.external_id = "a\nb"
    RequestLog(str, None)(call)
    assert len(caplog.messages[0]) < 3000
    assert "\n" not in caplog.messages[0]
    RequestLog(str, None)(call_of(stop=["x" * 10_000] * 2))
    assert len(caplog.messages[1]) < 3000
    call.external_id = "a" * 10_000
    RequestLog(str, None)(call)
    assert len(caplog.messages[2]) < 3000


# --- statistics ------------------------------------------------------------------------------------------------------


SUMMED = (
    "preemptions", "queries", "hits", "external_queries", "external_hits", "drafts", "draft_tokens", "accepted_tokens",
    "flops", "read_bytes", "write_bytes",
)  # fmt: skip


def pump_of(tokens: int, *engines: dict[str, Any]) -> Any:
    """What is looked at of a pump."""
    return SimpleNamespace(
        tokens=tokens, counters=SimpleNamespace(read=lambda engine: engines[engine])
    )


def load_of(at: float, waiting: int = 0, deferred: int = 0, kv_usage: float = 0.0, computed: int = 0) -> Any:
    zeros = dict.fromkeys(SUMMED, 0)
    return zeros | {"at": at, "waiting": waiting, "deferred": deferred, "kv_usage": kv_usage, "accepted_at": [],
                    "computed_tokens": computed}  # fmt: skip


def test_counts_of_all_lanes_and_engines() -> None:
    pumps = [
        pump_of(10, load_of(5.0, 2, 0, 0.25, computed=3), load_of(0.0)),
        pump_of(1, load_of(4.0, 5), load_of(1.0, 9, 0, 0.5, computed=4)),
    ]
    assert counts(pumps, {0: 5, 1: 0}) == Counts(7, 11, 3, 2, 0.25)
    assert counts(pumps, {0: 0, 1: 3}) == Counts(7, 11, 0, 3, 0.5)
    assert counts(pumps, {0: 1, 1: 1}) == Counts(7, 11, 0, 2, 0.5)


def test_the_newest_stats_split_what_is_in_flight() -> None:
    assert engine_load(10, [load_of(1.0, 9), load_of(2.0, 3, 4, 0.5)]) == EngineLoad(3, 3, 4, 0.5)
    assert engine_load(5, [load_of(2.0, 3, 4)]) == EngineLoad(0, 3, 2, 0.0), "never more than there is"
    assert engine_load(5, [load_of(2.0, -3, -4)]) == EngineLoad(5, 0, 0, 0.0)
    assert engine_load(0, [load_of(2.0, 3, 4, 0.5)]) == EngineLoad(0, 0, 0, 0.0), "an idle engine sends none"


def test_what_engines_tell_is_added_up() -> None:
    one = {name: 10**k for k, name in enumerate(SUMMED)} | load_of(1.0) | {"accepted_at": [5, 4]}
    one |= {name: 10**k for k, name in enumerate(SUMMED)}
    other = load_of(1.0) | {"accepted_at": [1], "deferred": 2}
    assert counts([pump_of(0, one, other)], {0: 0, 1: 3})[5:] == (
        2, 1, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**7, (6, 4), 10**8 / 2, (10**9 + 10**10) / 2,
    )  # fmt: skip


def test_the_line() -> None:
    before, now = Counts(0, 100, 0, 0, 0.0), Counts(20, 150, 3, 1, 0.125)
    plain = (
        "Avg prompt throughput: 4.0 tokens/s, Avg generation throughput: 10.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs, "
        "KV cache usage: 12.5%"
    )
    assert stats_lines(before, now, 5.0) == [plain]
    before = before._replace(queries=100, hits=50, external_queries=7, preemptions=2)
    more = now._replace(queries=200, hits=75, external_queries=17, external_hits=4, preemptions=5, deferred=1)
    assert stats_lines(before, more, 5.0) == [
        plain.replace("KV cache", "Deferred: 1 reqs, Preemptions: 3, KV cache")
        + ", Prefix cache hit rate: 25.0%, External prefix cache hit rate: 40.0%"
    ]
    work = now._replace(flops=5e13, moved_bytes=2e10)
    assert stats_lines(now, work, 5.0)[1:] == ["MFU: 10.0 TF/s/device 4.0 GB/s/device"]


def test_the_line_of_drafts() -> None:
    before = Counts(0, 0, 1, 0, 0.0, drafts=10, draft_tokens=30, accepted_tokens=20, accepted_at=(10, 10))
    now = before._replace(drafts=20, draft_tokens=60, accepted_tokens=35, accepted_at=(19, 15, 1))
    line = (
        "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 7.50 tokens/s, "
        "Drafted throughput: 15.00 tokens/s, Accepted: 15 tokens, Drafted: 30 tokens, "
        "Per-position acceptance rate: 0.900, 0.500, 0.100, Avg Draft acceptance rate: 50.0%"
    )
    assert stats_lines(before, now, 2.0)[1:] == [line]
    assert len(stats_lines(now, now, 2.0)) == 1


def test_the_table_of_graphs() -> None:
    uses = GraphUses()
    assert uses.take() is None
    for tokens, mode in ((7, "FULL"), (3, "NONE"), (7, "FULL")):
        uses.add({"num_unpadded_tokens": tokens, "num_padded_tokens": 8, "num_paddings": 8 - tokens, "runtime_mode": mode})
    for odd in (None, [], {}, {"num_unpadded_tokens": "x", "num_padded_tokens": 8, "num_paddings": 1}):
        uses.add(odd)
    assert uses.take() == (
        "Recorded graphs:\n"
        "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |\n"
        "|-----------------|---------------|--------------|--------------|-------|\n"
        "| 7               | 8             | 1            | FULL         | 2     |\n"
        "| 3               | 8             | 5            | NONE         | 1     |"
    )
    assert uses.take() is None


def test_there_is_one_last_line_and_then_silence() -> None:
    idle, busy, after = Counts(0, 0, 0, 0, 0.0), Counts(5, 5, 1, 0, 0.1), Counts(5, 9, 0, 0, 0.0)
    states = iter([idle, idle, busy, after, after, after, Counts(6, 9, 0, 0, 0.0)])
    log = StatsLog(lambda: next(states), 1.0)
    assert [len(log.next_lines(1.0)) == 1 for _ in range(6)] == [False, True, True, True, False, True]
    states = iter([busy, after])
    log = StatsLog(lambda: next(states), 1.0, lambda: "more")
    assert log.next_lines(1.0)[1:] == ["more"]
