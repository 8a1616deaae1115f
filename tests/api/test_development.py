"""Routes for development, and that they are not there otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.metrics import metric
from tests.support.mock import MockEngine
from tests.support.server import Server


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("dev")
    env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": "very-secret"}
    with Server(folder, "--hf-token", "very-secret", mock=MockEngine(folder, "--tokens", "echo", "--stats"), env=env) as server:
        server.wait_ready()
        server.client.headers["authorization"] = "Bearer very-secret"
        yield server
        assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    ("path", "method", "args", "answer"),
    [
        ("/reset_prefix_cache", "reset_prefix_cache", [False, False], {"success": True}),
        ("/reset_prefix_cache?reset_running_requests=true", "reset_prefix_cache", [True, False], {"success": True}),
        ("/reset_mm_cache", "reset_mm_cache", [], None),
        ("/sleep", "sleep", [1, "abort"], {"status": "sleeping", "level": 1}),
        ("/sleep?level=2&mode=wait", "sleep", [2, "wait"], {"status": "sleeping", "level": 2}),
        ("/wake_up", "wake_up", [None], {"status": "awake", "tags": None}),
        ("/wake_up?tags=weights&tags=x", "wake_up", [["weights", "x"]], {"status": "awake", "tags": ["weights", "x"]}),
    ],
)
def test_calls_reach_the_engine(dev: Server, path: str, method: str, args: list[object], answer: object) -> None:
    assert dev.mock is not None
    mark = dev.mock.mark()
    response = dev.client.post(path)
    assert response.status_code == 200
    assert (response.json() if response.content else None) == answer
    (call,) = dev.mock.of("utility", mark)
    assert (call["method"], call["args"]) == (method, repr(args))


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("GET", "/is_sleeping", {"is_sleeping": False}),
        ("GET", "/is_paused", {"is_paused": False}),
        ("POST", "/pause", {"status": "paused"}),
        ("POST", "/resume", {"status": "resumed"}),
    ],
)
def test_answers(dev: Server, verb: str, path: str, body: object) -> None:
    assert dev.client.request(verb, path).json() == body


def test_an_engine_that_still_sleeps_or_cannot_reset(dev: Server) -> None:
    assert dev.mock is not None
    dev.mock.use(utilities={"wake_up": {"result": False}, "reset_prefix_cache": {"result": False}})
    assert dev.client.post("/wake_up?tags=weights").json() == {"status": "sleeping", "tags": ["weights"]}
    assert dev.client.post("/reset_prefix_cache").json() == {"success": False}
    dev.mock.use()


@pytest.mark.parametrize("path", ["/sleep?level=9", "/sleep?mode=deep", "/reset_prefix_cache?reset_external=perhaps"])
def test_bad_arguments(dev: Server, path: str) -> None:
    assert dev.client.post(path).status_code == 400


@pytest.mark.parametrize(("said", "status"), [("this engine has no method 'sleep'", 501), ("out of memory", 500)])
def test_an_engine_that_refuses(dev: Server, said: str, status: int) -> None:
    assert dev.mock is not None
    dev.mock.use(utilities={"sleep": {"fail": said}})
    response = dev.client.post("/sleep")
    dev.mock.use()
    assert response.status_code == status
    assert said in response.json()["error"]["message"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_server_info_has_no_secrets(dev: Server, form: str) -> None:
    response = dev.get(f"/server_info?config_format={form}")
    assert isinstance(response.json()["vllm_config"], dict if form == "json" else str)
    assert "smollm2" in response.text
    assert "very-secret" not in response.text
    assert response.json()["vllm_env"]["VLLM_SERVER_DEV_MODE"] == "1"


def test_still_serves(dev: Server) -> None:
    assert dev.chat(max_tokens=2).status_code == 200


@pytest.mark.parametrize("path", ["/sleep", "/wake_up", "/reset_prefix_cache", "/server_info"])
def test_not_there_otherwise(server: Server, path: str) -> None:
    assert server.client.post(path).status_code == 404


def test_metrics_tell_who_sleeps(dev: Server) -> None:
    def state() -> list[str]:
        states = ("awake", "weights_offloaded", "discard_all")
        return [name for name in states if metric(dev, "vllm:engine_sleep_state", sleep_state=name)]

    found = []
    for path in ("/wake_up", "/sleep?level=1", "/sleep?level=2", "/sleep?level=9", "/wake_up"):
        dev.client.post(path)
        found.append(state())
    assert found == [["awake"], ["weights_offloaded"], ["discard_all"], ["discard_all"], ["awake"]]


def test_metrics_tell_how_long_going_to_sleep_takes(dev: Server) -> None:
    def seen(operation: str) -> float:
        return metric(dev, "vllm:sleep_mode_operation_duration_seconds_count", operation=operation)

    for path in ("/sleep", "/wake_up"):
        dev.client.post(path)
    before = seen("sleep"), seen("wake")
    dev.client.post("/sleep")
    dev.client.post("/is_sleeping")
    assert (seen("sleep"), seen("wake")) == (before[0] + 1, before[1])
    dev.client.post("/wake_up")
    assert seen("wake") == before[1] + 1
    assert metric(dev, "vllm:sleep_mode_operation_duration_seconds_bucket", operation="wake", le="600.0") == seen("wake")
    assert metric(dev, "vllm:sleep_mode_operations_in_flight", operation="wake") == 0
