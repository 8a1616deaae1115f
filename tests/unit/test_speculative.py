"""Speculative decoding: its flags, what engines are told, and what requests may not ask for with it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fastfront.cli.main import main
from fastfront.cli.speculative import lookup_lengths
from fastfront.engine_client.commands import engine_command
from fastfront.errors import SetupError
from fastfront.openai.serving import Serving, build_serving
from tests.unit.support import chat, completion, config_from, config_of, refusal

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
REFUSED = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
VLLM = ("--engine", "vllm")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["-sc", json.dumps(NGRAM)], NGRAM),
        ([f"--speculative-config={json.dumps(NGRAM)}"], NGRAM),
        (["--speculative_config.method", "ngram", "--speculative-config.num-speculative-tokens=3",
          "--speculative-config.prompt_lookup_max", "4"], NGRAM),
        (["-sc.method", "ngram", "-sc.num_speculative_tokens=3", "-sc.prompt_lookup_max", "4"], NGRAM),
        (["--spec-method", "ngram", "--spec-tokens", "3", "--speculative-config", '{"prompt-lookup-max": 4}'], NGRAM),
        (["--spec-model", "some/draft", "--spec_tokens=2"], {"model": "some/draft", "num_speculative_tokens": 2}),
        (["-sc", '{"method": "deepseek_mtp"}'], {"method": "deepseek_mtp"}),
        (["-sc", '{"method": "eagle3", "model": "x", "draft_load_config": {"a": 1}}'],
         {"method": "eagle3", "model": "x", "draft_load_config": {"a": 1}}),
    ],
)  # fmt: skip
def test_all_spellings_mean_one_configuration(tiny_folder: Path, words: list[str], expected: Any) -> None:
    assert config_from(str(tiny_folder), *VLLM, *words).speculative == expected


@pytest.mark.parametrize("engine", ["vllm", "native"])
def test_engines_are_told(tiny_folder: Path, engine: str) -> None:
    told = ("--per-request-spec-decode-metrics", "detailed")
    found = config_from(str(tiny_folder), "--engine", engine, "-sc", json.dumps(NGRAM), *told)
    command = engine_command(found, "PY", 0, "tcp://[::1]:41", 100)
    assert json.loads(command[command.index("--speculative-config") + 1]) == NGRAM
    assert command[command.index("--per-request-spec-decode-metrics") + 1] == "detailed"
    plain = engine_command(config_from(str(tiny_folder), "--engine", engine), "PY", 0, "tcp://[::1]:41", 100)
    assert not any("spec" in word for word in plain)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-sc", "{"], "--speculative-config/-sc: not JSON"),
        (["-sc", "[1]"], "--speculative-config/-sc: not a JSON object"),
        (["-sc", '{"method": "guess"}'], "method='guess': none of ngram, "),
        (["-sc", '{"method": 5}'], "method=5: none of ngram, "),
        (["-sc", '{"model": 5}'], "model=5: no text"),
        (["-sc", '{"num_speculative_tokens": 3}'], "names neither a method nor a model"),
        (["-sc", '{"method": "ngram"}'], "--speculative-config needs num_speculative_tokens"),
        (["-sc", '{"model": "[ngram]"}'], "--speculative-config needs num_speculative_tokens"),
        (["-sc", '{"method": "ngram", "num_speculative_tokens": 0}'], "num_speculative_tokens=0: no whole number above zero"),
        (["-sc", '{"method": "mtp", "num_speculative_tokens": true}'], "num_speculative_tokens=True"),
        (["-sc", '{"method": "mtp", "num_speculative_tokens": 1.5}'], "num_speculative_tokens=1.5"),
        (["-sc", json.dumps(NGRAM | {"prompt_lookup_min": 5})], "prompt_lookup_min=5: more than prompt_lookup_max=4"),
        (["-sc", json.dumps(NGRAM | {"prompt_lookup_min": 0})], "prompt_lookup_min=0"),
        (["-sc", '{"model": "x", "tensor_parallel_size": 2}'], "draft_tensor_parallel_size is meant"),
        (["-sc", json.dumps(NGRAM), "--spec-tokens", "2"],
         "--spec-tokens and --speculative-config['num_speculative_tokens'] are mutually exclusive"),
        (["--spec-tokens", "0"], "--spec-tokens: 0 is not at least 1"),
        (["--per-request-spec-decode-metrics", "summary"], "--per-request-spec-decode-metrics requires --speculative-config"),
        (["-sc", json.dumps(NGRAM), "--engine", "mock"], "--speculative-config: the mock engine"),
        (["-sc", '{"model": "x"}', "--engine", "native"], "--speculative-config: model='x' needs --engine vllm"),
        (["-sc", '{"method": "mtp", "num_speculative_tokens": 1}', "--engine", "native"], "method='mtp' needs --engine vllm"),
        (["-sc", json.dumps(NGRAM | {"quantization": "fp8"}), "--engine", "native"], "quantization needs --engine vllm"),
    ],
)  # fmt: skip
def test_what_no_engine_could_do_is_refused(
    tiny_folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(tiny_folder), *VLLM, *words])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "lengths"), [({}, (5, 5)), ({"prompt_lookup_min": 2}, (2, 2)), ({"prompt_lookup_max": 3}, (3, 3)),
                           ({"prompt_lookup_min": 1, "prompt_lookup_max": 3}, (1, 3))],
)  # fmt: skip
def test_lengths_that_are_looked_up(given: dict[str, int], lengths: tuple[int, int]) -> None:
    assert lookup_lengths(given) == lengths


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drafting(serving: Serving) -> Serving:
    return dataclasses.replace(serving, drafts=True)


@pytest.mark.parametrize("fields", [{"min_p": 0.1}, {"logit_bias": {"5": 1}}, {"logit_bias": {"5": 1}, "temperature": 0}])
def test_what_engines_refuse_with_drafts(serving: Serving, drafting: Serving, fields: dict[str, Any]) -> None:
    for way in (chat, completion):
        error = refusal(way, drafting, fields)
        assert (error.status, error.message, error.param) == (400, REFUSED, None)
        assert way(serving, fields)


@pytest.mark.parametrize("fields", [{"min_p": 1e-6}, {"min_p": 0.1, "temperature": 0}, {"logit_bias": {}}, {"min_tokens": 1}])
def test_what_they_do_not(drafting: Serving, fields: dict[str, Any]) -> None:
    assert chat(drafting, fields)


def test_a_default_that_no_plain_request_could_have(tiny_folder: Path) -> None:
    config = config_of(tiny_folder, override_generation_config={"min_p": 0.1}, speculative=NGRAM, engine="vllm")
    with pytest.raises(SetupError, match=r"--speculative-config: engines refuse the model's default min_p=0\.1"):
        build_serving(config)
    assert build_serving(dataclasses.replace(config, engine="native")).drafts is False
    assert build_serving(dataclasses.replace(config, override_generation_config={})).drafts
