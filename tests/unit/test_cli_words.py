"""Command lines written for vLLM: what is dropped, refused, spelled otherwise, or comes from a file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from fastfront.cli.known import UnsupportedFlagError, sift
from fastfront.cli.main import main
from fastfront.cli.serve import add_arguments
from fastfront.cli.words import config_words, given_flags, joined_dots, with_dashes
from fastfront.errors import SetupError
from tests.unit.support import config_from
from tests.unit.vllm_flags import SHORT, SWITCHES, VALUES


@pytest.mark.parametrize(
    ("word", "spelled"),
    [
        ("--max_model_len", "--max-model-len"),
        ("--max_model_len=a_b", "--max-model-len=a_b"),
        ("--structured_outputs_config.disable_any_whitespace", "--structured-outputs-config.disable_any_whitespace"),
        ("a_b", "a_b"),
        ("-a_b", "-a_b"),
        ("--x y_z", "--x y_z"),
    ],
)
def test_spelling(word: str, spelled: str) -> None:
    assert with_dashes(word) == spelled


def test_dotted_flags_come_together_as_json() -> None:
    words = ["--a.b", "1", "M", "--a.c=x", "--a.d.e", "true", "--other.b", "1", "--a.f"]
    assert joined_dots(words, {"--a"}) == [
        "M", "--other.b", "1", "--a", '{"b": 1, "c": "x", "d": {"e": true}, "f": true}',
    ]  # fmt: skip
    assert joined_dots(["--a.b+", "x,y", "--a.b+=z", "--a.c", "8k", "--a.d", "1.5K", "--a.e=k"], {"--a"}) == [
        "--a", '{"b": ["x", "y", "z"], "c": 8000, "d": 1536, "e": "k"}',
    ]  # fmt: skip
    assert joined_dots(["--a.b", "1", "--a.b.c", "2"], {"--a"}) == ["--a", '{"b": {"c": 2}}']


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["M", "--trust-remote-code", "--port", "1"], ["M", "--port", "1"]),
        (["--api-server-count", "4", "M"], ["M"]),
        (["--api-server-count=4", "M"], ["M"]),
        (["--h11-max-header-count", "10", "--port", "1"], ["--port", "1"]),
        (["-O3", "M"], ["M"]),
        (["-O=3", "M"], ["M"]),
    ],
)
def test_flags_without_effect_are_dropped_with_a_remark(words: list[str], kept: list[str]) -> None:
    found, passed, remarks = sift(words, {"--port"})
    assert not passed
    assert found == kept
    assert len(remarks) == (found != words)
    assert all("has no effect: " in remark for remark in remarks)


def test_flags_of_metrics_that_do_not_exist_are_told_at_start(tiny_folder: Path) -> None:
    words = ("--show-hidden-metrics-for-version", "0.31", "--otlp-traces-endpoint", "a:1", "--collect-detailed-traces")
    said = config_from(*words, "model", "worker", "--port", "0", "--model", str(tiny_folder)).log.remarks
    assert [remark.partition(":")[0] for remark in said] == [
        "--collect-detailed-traces has no effect", "--show-hidden-metrics-for-version has no effect",
    ]  # fmt: skip
    assert config_from(str(tiny_folder)).log.remarks == ()


@pytest.mark.parametrize(
    "words",
    [
        ["--no-enable-prompt-embeds"], ["--pipeline-parallel-size", "1"], ["-pp", "1"],
        ["--load-format", "auto", "--kv-cache-dtype", "auto"], ["--no-grpc"],
    ],
)  # fmt: skip
def test_flags_that_ask_for_nothing_are_accepted(words: list[str]) -> None:
    assert sift(["M", *words], ()) == (["M"], [], [])


@pytest.mark.parametrize(
    ("words", "name", "why"),
    [
        (["--default-mm-loras", "{}"], "--default-mm-loras", "text"),
        (["--lora-dtype", "float16"], "--lora-dtype", "no such setting"),
        (["--pipeline-parallel-size", "2"], "--pipeline-parallel-size", "--data-parallel-size"),
        (["-pp=2"], "--pipeline-parallel-size", "--data-parallel-size"),
        (["--kv-transfer-config.kv_role", "x"], "--kv-transfer-config", "to itself"),
        (["--mm-processor-cache-gb", "4"], "--mm-processor-cache-gb", "text"),
        (["-q", "awq"], "--quantization", "as they are"),
    ],
)
def test_flags_that_cannot_be_had_say_why(words: list[str], name: str, why: str) -> None:
    with pytest.raises(UnsupportedFlagError) as caught:
        sift(["M", *words], ())
    assert str(caught.value).startswith(f"{name} is not supported: ")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("words", "passed", "remarks"),
    [
        (["-q", "awq", "M"], ["-q", "awq"], 0),
        (["M", "--load-format=dummy", "--enforce-eager", "--port", "1"], ["--load-format=dummy", "--enforce-eager"], 0),
        (["-O3", "M"], ["-O3"], 0),
        (["-O.level", "3", "M"], ["-O.level", "3"], 0),
        (["M", "--no-enable-chunked-prefill"], ["--no-enable-chunked-prefill"], 0),
        (["M", "--kv-transfer-config.kv-role", "both"], ["--kv-transfer-config.kv-role", "both"], 0),
        (["--cudagraph-capture-sizes", "1", "2", "M"], ["--cudagraph-capture-sizes", "1", "2"], 0),
        (["--moe-backend", "triton", "M"], ["--moe-backend", "triton"], 0),
        (["--pipeline-parallel-size", "1", "M"], ["--pipeline-parallel-size", "1"], 0),
        (["--api-server-count", "4", "M"], [], 1),
        (["--no-grpc", "M"], [], 0),
    ],
)
def test_settings_of_vllms_engine_go_to_it(words: list[str], passed: list[str], remarks: int) -> None:
    found = sift(words, {"--port"}, vllm=True)
    assert [word for word in found.kept if word not in ("--port", "1")] == ["M"]
    assert (found.for_vllm, len(found.remarks)) == (passed, remarks)


def test_what_vllms_engine_has_but_this_frontend_cannot_serve_stays_refused() -> None:
    for words in (["--enable-prompt-embeds"], ["--nnodes", "2"], ["--runner", "pooling"], ["--grpc"]):
        with pytest.raises(UnsupportedFlagError):
            sift(["M", *words], (), vllm=True)


def test_the_file_may_say_whose_engine_it_is(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("engine: vllm\nload-format: dummy\nenforce-eager: true\n")
    words = (str(tiny_folder), "--config", str(file), "-q", "awq", "--", "--x")
    config = config_from(*words)
    assert config.engine_args == ("--load-format=dummy", "--enforce-eager", "-q", "awq", "--x")
    file.write_text("enforce-eager: true\n")
    config = config_from(str(tiny_folder), "--config", str(file))
    assert config.engine_args == ()
    assert [remark.partition(":")[0] for remark in config.log.remarks] == ["--enforce-eager has no effect"]


LONG = [f"--{name}" for name in (SWITCHES + VALUES).split()]


@pytest.mark.parametrize("flag", [*LONG, *(f"-{name}" for name in SHORT.split())])
def test_every_flag_of_vllm_is_served_dropped_or_refused_with_a_reason(flag: str) -> None:
    parser = ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    declared = parser._option_string_actions
    if flag in declared:
        if flag.startswith("--"):
            assert (declared[flag].nargs == 0) == (flag[2:] in SWITCHES.split())
        return
    words = ["M", flag] if flag[2:] in SWITCHES.split() else ["M", flag, "value"]
    try:
        kept, _, said = sift(words, declared)
    except UnsupportedFlagError as error:
        kept, said = ["M"], [str(error)]
    assert kept == ["M"]                           # neither its value nor what follows it is taken for something else
    (remark,) = said
    name = flag if flag.startswith("--") else remark.split()[0]
    assert remark.startswith((f"{name} is not supported: ", f"{name} has no effect: "))


def test_values_of_engine_args_are_left_alone() -> None:
    words = ["--engine-args", "--enable-prompt-embeds", "M"]
    assert sift(words, {"--engine-args"}).kept == words


def test_flags_that_exist_are_not_looked_up() -> None:
    assert sift(["--enable-prompt-embeds"], {"--enable-prompt-embeds"}).kept == ["--enable-prompt-embeds"]


def test_refusals_exit_2(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(tiny_folder), "--enable_prompt_embeds"])
    assert caught.value.code == 2
    assert "--enable-prompt-embeds is not supported: prompts" in capsys.readouterr().err


def test_remarks_are_kept_for_the_log(tiny_folder: Path) -> None:
    assert len(config_from(str(tiny_folder), "--trust-remote-code", "--api-server-count", "2").log.remarks) == 2


# --- --config --------------------------------------------------------------------------------------------------------

YAML = """
model: {model}
served_model_name: [a, b]
port: 9000
allowed-origins: ["x", "y"]
api-key: [k1]
enable-request-id-headers: true
allow-credentials: false
enable-prompt-embeds: false
trust-remote-code: true
override-generation-config: {{temperature: 0.5}}
tokenizer: null
sse-keep-alive-interval: 1.5
"""


@pytest.fixture
def yaml_file(tmp_path: Path, tiny_folder: Path) -> str:
    path = tmp_path / "serve.yaml"
    path.write_text(YAML.format(model=tiny_folder))
    return str(path)


def test_a_file_gives_flags(yaml_file: str, tiny_folder: Path) -> None:
    got = config_from("--config", yaml_file)
    assert (got.model_path, got.served_model_name, got.port) == (tiny_folder.resolve(), ("a", "b"), 9000)
    assert (got.allowed_origins, got.api_keys) == (("x", "y"), ("k1",))
    assert (got.enable_request_id_headers, got.allow_credentials) == (True, False)
    assert got.override_generation_config == {"temperature": 0.5}
    assert got.sse_keep_alive_interval_s == 1.5
    assert [remark.split()[0] for remark in got.log.remarks] == ["--trust-remote-code"]


def test_the_command_line_comes_before_the_file(yaml_file: str, tiny_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.symlink_to(tiny_folder)
    words = ["--port", "1", "--served_model_name=c", "--no-enable-request-id-headers", "--api-key", "k2"]
    got = config_from(str(other), f"--config={yaml_file}", *words)
    assert (got.model, got.port, got.served_model_name) == (str(other), 1, ("c",))
    assert (got.enable_request_id_headers, got.api_keys) == (False, ("k2",))


@pytest.mark.parametrize(
    ("content", "words"), [("[1, 2]", "not a map"), ("a: [", "not YAML"), ("a: !!python/object:os.system x", "not YAML"),
     ("a: " + "9" * 5000, "not YAML"), ("a: " + "[" * 1200, "not YAML")],
)
def test_what_is_no_configuration(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(SetupError, match=words):
        config_words(str(path), (), (), False)
    with pytest.raises(SetupError, match="No such file"):
        config_words(str(tmp_path / "missing.yaml"), (), (), False)


@pytest.mark.parametrize("value", ['"a\\0b"', '"\\ud800"'])
def test_values_that_are_no_text(tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"host: {value}")
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(tiny_folder), "--config", str(path)])
    assert caught.value.code == 2
    assert "--host=" in capsys.readouterr().err


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing\n")
    assert config_words(str(path), (), (), False) == []


@pytest.mark.parametrize(("line", "named"), [("no-such-thing: 1", "--no-such-thing"), ("tool-server: x", "by clients")])
def test_unknown_and_unsupported_keys_exit_2(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str], line: str, named: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(line)
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(tiny_folder), "--config", str(path)])
    assert caught.value.code == 2
    assert named in capsys.readouterr().err


def test_given_flags() -> None:
    assert given_flags(["M", "--a", "x", "--b=1", "--no-c", "-d"]) == {"--a", "--b", "--no-c", "--no-a", "--no-b", "--c"}
