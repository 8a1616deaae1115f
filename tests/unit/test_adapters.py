"""LoRA adapters in the frontend: which there are, and what requests for them become."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fastfront._speedups.msgpack import unpackb
from fastfront.config import LoraModule, LoraOptions, ServeConfig
from fastfront.engine_client.commands import engine_command
from fastfront.errors import ApiError, EngineError
from fastfront.openai.adapters import Adapters, LoraRequest
from fastfront.openai.chat import prepare_chat
from fastfront.openai.completions import prepare_completion
from fastfront.openai.invocations import prepare_invocation
from fastfront.openai.messages.prepare import prepare_message
from fastfront.openai.models import models_body
from fastfront.openai.responses.prepare import prepare_response
from fastfront.openai.serving import Serving
from fastfront.streams.prepared import PreparedCall
from tests.unit.support import config_from, config_of, prepare, refusal

JSON = {"content-type": "application/json"}


def loaded(*names: str, **options: Any) -> Adapters:
    adapters = Adapters(frozenset(["tiny"]))
    for name in names:
        adapters.load(name, f"/adapters/{name}", lambda _: None, **options)
    return adapters


@pytest.fixture
def with_adapters(serving: Serving) -> Serving:
    return dataclasses.replace(serving, adapters=loaded("sql", "poems"))


def test_engines_are_asked_before_requests_may_name_it() -> None:
    adapters, asked = loaded(), list[LoraRequest]()

    def add(request: LoraRequest) -> None:
        assert not adapters.known
        asked.append(request)

    assert adapters.load("sql", "/a", add, parent="tiny", stacked=True) == "Success: LoRA adapter 'sql' added successfully."
    assert asked == [["sql", 1, "/a", "tiny", False, True]]
    assert unpackb(adapters.known["sql"].wire) == asked[0]


def test_numbers_are_not_used_twice_but_for_reloading() -> None:
    adapters, asked = loaded("a", "b"), list[LoraRequest]()
    adapters.unload("b")
    adapters.load("c", "/c", asked.append)
    adapters.load("a", "/new", asked.append, in_place=True)
    adapters.load("b", "/b", asked.append, in_place=True)
    assert [(one[0], one[1], one[4]) for one in asked] == [("c", 3, False), ("a", 1, True), ("b", 4, True)]
    # Requests do not ask for loading anew.
    assert unpackb(adapters.known["a"].wire) == ["a", 1, "/new", None, False, False]


def test_a_base_model_that_is_not_served_is_none() -> None:
    assert loaded("a", parent="another").known["a"].parent is None


@pytest.mark.parametrize(
    ("change", "status", "kind", "message"),
    [
        (lambda a: a.load("", "/a", list), 400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided."),
        (lambda a: a.load("b", "", list), 400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided."),
        (lambda a: a.load("tiny", "/a", list), 400, "InvalidUserInput", "conflicts with a served base model"),
        (lambda a: a.load("a", "/a", list), 400, "InvalidUserInput", "set 'load_inplace' to True."),
        (lambda a: a.unload(""), 400, "InvalidUserInput", "'lora_name' needs to be provided to unload a LoRA adapter."),
        (lambda a: a.unload("b"), 404, "NotFoundError", "The lora adapter 'b' cannot be found."),
    ],
)
def test_changes_that_are_refused(change: Any, status: int, kind: str, message: str) -> None:
    adapters = loaded("a")
    before = adapters.known
    with pytest.raises(ApiError, match=message) as caught:
        change(adapters)
    assert (caught.value.status, caught.value.kind) == (status, kind)
    assert adapters.known is before


@pytest.mark.parametrize(
    ("said", "status", "shown"),
    [
        ("Call to add_lora method failed: Loading lora b failed: No adapter found for /b", 404,
         "Loading lora b failed: No adapter found for /b"),
        ("rank 64 is too large", 500, "rank 64 is too large"),
    ],
)  # fmt: skip
def test_what_an_engine_says_is_told(said: str, status: int, shown: str) -> None:
    def add(_: LoraRequest) -> None:
        raise EngineError(said)

    adapters = loaded("a")
    with pytest.raises(ApiError) as caught:
        adapters.load("b", "/b", add)
    assert (caught.value.status, caught.value.message) == (status, shown)
    assert list(adapters.known) == ["a"]


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
REQUESTS = [
    (prepare_chat, CHAT),
    (prepare_chat, {**CHAT, "logit_bias": {"3": 1.0}}),  # the long way
    (prepare_completion, {"prompt": "Hi"}),
    (prepare_completion, {"prompt": ["Hi", "Ho"]}),
    (prepare_response, {"input": "Hi"}),
    (prepare_message, {**CHAT, "max_tokens": 5}),
]


def asked(prepare: Any, fields: dict[str, Any], serving: Serving) -> PreparedCall:
    call: PreparedCall = prepare(json.dumps(fields).encode(), JSON.get, serving)
    return call


@pytest.mark.parametrize(("prepare", "fields"), REQUESTS)
def test_requests_name_adapters_the_model_or_nothing_that_is_there(
    prepare: Any, fields: dict[str, Any], with_adapters: Serving
) -> None:
    call = asked(prepare, {**fields, "model": "poems"}, with_adapters)
    assert call.model == "poems"
    assert call.lora_request is not None
    assert unpackb(call.lora_request) == ["poems", 2, "/adapters/poems", None, False, False]
    for name in ("tiny",) if prepare is prepare_message else ("tiny", ""):
        call = asked(prepare, {**fields, "model": name}, with_adapters)
        assert (call.model, call.lora_request) == ("tiny", None)
    with pytest.raises(ApiError, match=r"`prose` does not exist\. Valid aliases: tiny") as caught:
        asked(prepare, {**fields, "model": "prose"}, with_adapters)
    assert caught.value.status == 404


@pytest.mark.parametrize(("prepare", "fields"), REQUESTS)
def test_adapters_come_before_any_name(prepare: Any, fields: dict[str, Any], with_adapters: Serving) -> None:
    serving = dataclasses.replace(with_adapters, any_model_name=True)
    assert asked(prepare, {**fields, "model": "sql"}, serving).model == "sql"
    call = asked(prepare, {**fields, "model": "prose"}, serving)
    assert (call.model, call.lora_request) == ("tiny", None)


def test_usual_requests_for_adapters_need_no_long_way(with_adapters: Serving) -> None:
    assert with_adapters.quick_chats is not None
    chat = with_adapters.quick_chats.prepare({**CHAT, "model": "sql"}, lambda _: None)
    text = with_adapters.quick_completions.prepare({"prompt": "Hi", "model": "sql"}, lambda _: None)
    for call in (chat, text):
        assert call is not None
        assert (call.model, call.lora_request) == ("sql", with_adapters.adapters.known["sql"].wire)  # type: ignore[union-attr]
    assert with_adapters.quick_chats.prepare({**CHAT, "model": "prose"}, lambda _: None) is None


def test_every_step_of_a_beam_search_is_the_adapters(with_adapters: Serving) -> None:
    call = asked(prepare_chat, {**CHAT, "model": "sql", "use_beam_search": True, "n": 2, "max_tokens": 2}, with_adapters)
    assert call.steps is not None
    step = call.steps.next_call(lambda: None, lambda *_: None)
    assert step is not None
    assert (step.model, step.lora_request) == ("sql", with_adapters.adapters.known["sql"].wire)  # type: ignore[union-attr]


def test_requests_while_adapters_come_and_go(serving: Serving) -> None:
    adapters = loaded("fixed")
    served = dataclasses.replace(serving, adapters=adapters)
    stop, failures = threading.Event(), list[BaseException]()

    def ask() -> None:
        try:
            while not stop.is_set():
                assert asked(prepare_completion, {"prompt": "Hi", "model": "fixed"}, served).model == "fixed"
                with contextlib.suppress(ApiError):
                    assert asked(prepare_completion, {"prompt": "Hi", "model": "moving"}, served).model == "moving"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        adapters.load("moving", "/m", lambda _: None)
        adapters.unload("moving")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_cards(with_adapters: Serving) -> None:
    adapters = with_adapters.adapters
    assert adapters is not None
    adapters.load("named", "/n", lambda _: None, parent="tiny")
    cards = json.loads(models_body(with_adapters))["data"]
    assert [(card["id"], card["root"], card["parent"]) for card in cards[1:]] == [
        ("sql", "/adapters/sql", "tiny"), ("poems", "/adapters/poems", "tiny"), ("named", "/n", "tiny"),
    ]  # fmt: skip
    assert cards[0]["max_model_len"]
    assert {card["max_model_len"] for card in cards[1:]} == {None}


# --- flags -----------------------------------------------------------------------------------------------------------


def test_flags(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    said = config_from(
        str(tiny_folder), "--enable-lora", "--max-loras", "2", "--max-cpu-loras", "3", "--max-lora-rank", "64", "--lora-modules",
        "sql=/a=b", '{"name": "poems", "path": "/p", "base_model_name": "tiny", "is_3d_lora_weight": true}',
    )  # fmt: skip
    modules = (LoraModule("sql", "/a=b"), LoraModule("poems", "/p", "tiny", True))
    assert said.lora == LoraOptions(True, modules, 2, 64, 3, True)
    assert config_from(str(tiny_folder)).lora == LoraOptions(runtime_updates=True)


def test_modules_in_a_file(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "flags.yaml"
    file.write_text("enable-lora: true\nlora-modules:\n  - sql=/a\n  - {name: poems, path: /p}\n")
    found = config_from(str(tiny_folder), "--config", str(file)).lora.modules
    assert found == (LoraModule("sql", "/a"), LoraModule("poems", "/p"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lora-modules", "a=/a"], "--lora-modules requires --enable-lora"),
        (["--max-loras", "2"], "--max-loras requires --enable-lora"),
        (["--enable-lora", "--max-loras", "0"], "--max-loras: 0 is not at least 1"),
        (["--enable-lora", "--max-lora-rank", "10"], "--max-lora-rank: invalid choice"),
        (["--enable-lora", "--max-loras", "4", "--max-cpu-loras", "3"], "--max-cpu-loras 3 is less than --max-loras 4"),
        (["--enable-lora", "--lora-modules", "a"], "--lora-modules: 'a' is neither NAME=FOLDER nor a JSON object"),
        (["--enable-lora", "--lora-modules", "=/a"], "--lora-modules: '=/a' has no name"),
        (["--enable-lora", "--lora-modules", "a="], "--lora-modules: 'a=' has no path"),
        (["--enable-lora", "--lora-modules", '{"name": "a"}'], "has no path"),
        (["--enable-lora", "--lora-modules", '{"name": "a", "path": 3}'], "path cannot be 3"),
        (["--enable-lora", "--lora-modules", '{"name": "a", "path": "/a", "rank": 3}'], "'rank' is none of name, path"),
        (["--enable-lora", "--lora-modules", "a=/a", "a=/b"], "--lora-modules: a is a name of the model, or there twice"),
        (["--enable-lora", "--served-model-name", "a", "--lora-modules", "a=/a"], "--lora-modules: a is a name of the model"),
    ],
)
def test_flags_that_are_wrong(tiny_folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        config_from(str(tiny_folder), *words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["native", "vllm", "mock"])
def test_engines_are_told(tiny_folder: Path, engine: Any) -> None:
    config: ServeConfig = dataclasses.replace(
        config_of(tiny_folder), engine=engine, lora=LoraOptions(True, (), 2, None, 3), engine_args=("--last",)
    )
    words = engine_command(config, "python", 0, "tcp://127.0.0.1:1", 100)
    assert words[-6:] == ["--enable-lora", "--max-loras", "2", "--max-cpu-loras", "3", "--last"]
    config = dataclasses.replace(config, lora=LoraOptions())
    assert "--enable-lora" not in engine_command(config, "python", 0, "tcp://127.0.0.1:1", 100)


def test_an_invocation_names_an_adapter_in_a_header(with_adapters: Serving) -> None:
    fields = {"prompt": "x", "model": "tiny"}
    name = {"x_amzn_sagemaker_adapter_identifier": "sql"}
    assert prepare(prepare_invocation, with_adapters, fields, **name).model == "sql"
    assert prepare(prepare_invocation, with_adapters, fields | {"model": "sql"}).model == "tiny"
    name["x_amzn_sagemaker_adapter_identifier"] = "nothing"
    assert refusal(prepare, prepare_invocation, with_adapters, fields, **name).status == 404
