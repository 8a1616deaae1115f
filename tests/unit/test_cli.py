from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from fastfront.cli import model as cli_model
from fastfront.cli.main import COMMANDS, main
from fastfront.cli.model import resolve_model
from fastfront.config import (
    AnswerOptions,
    Limits,
    LogOptions,
    MetricOptions,
    ServeConfig,
    StructuredOptions,
    TlsOptions,
    cache_folder,
)
from fastfront.engine_client.commands import engine_command, engine_environment
from fastfront.errors import SetupError
from tests.unit.support import config_from

ROOT = Path(__file__).resolve().parents[2]


def test_an_interrupt_before_the_server_takes_signals_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastfront.cli.main.COMMANDS", [command._replace(run=interrupted) for command in COMMANDS])
    assert main(["serve", "m"]) == 130


def test_flags_take_underscores_and_values_keep_theirs(tiny_folder: Path) -> None:
    got = config_from(str(tiny_folder), "--max_model_len=64", "--engine_args", "--report /tmp/a_b --max_seqs 5")
    assert got.max_model_len == 64
    assert got.engine_args == ("--report", "/tmp/a_b", "--max_seqs", "5")


def test_defaults(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_API_KEY", "VLLM_ENGINE_READY_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    got = config_from(str(tiny_folder))
    assert got.model_path == tiny_folder.resolve()
    assert got.served_model_name == (str(tiny_folder),)
    assert (got.host, got.port, got.engine, got.step_ms) == ("0.0.0.0", 8000, "native", 0.0)
    assert (got.api_keys, got.allowed_origins, got.max_model_len) == ((), (), None)
    assert (got.data_parallel_size, got.local_ranks, got.engine_ready_timeout_s) == (1, range(1), 600)
    assert got.keep_alive_s >= 120
    assert min(got.lanes, got.request_threads) >= 1


FLAGS: list[tuple[list[str], str, Any]] = [
    (["--port", "9000"], "port", 9000),
    (["--port=0"], "port", 0),
    (["--custom-histogram-buckets", '{"request_tokens": [1, 2.5]}'], "histogram_buckets", {"request_tokens": [1.0, 2.5]}),
    (["--kv-cache-metrics"], "metrics", MetricOptions(kv_sample=0.01)),
    (["--kv-cache-metrics", "--kv-cache-metrics-sample", "1"], "metrics", MetricOptions(kv_sample=1.0)),
    (["--kv-cache-metrics-sample", "0.5"], "metrics", MetricOptions()),
    (["--engine", "vllm", "--enable-mfu-metrics", "--cudagraph-metrics"], "metrics", MetricOptions(work=True, graphs=True)),
    (["--data-parallel-size-local", "0", "--enable-mfu-metrics"], "metrics", MetricOptions(work=True)),
    (["--max-num-queued-reqs", "5"], "max_num_queued_reqs", 5),
    (["--served-model-name", "a", "b"], "served_model_name", ("a", "b")),
    (["--served_model_name=a"], "served_model_name", ("a",)),
    (["--max-model-len", "4096"], "max_model_len", 4096),
    (["--max-model-len", "8k"], "max_model_len", 8000),
    (["--max_model_len", "8K"], "max_model_len", 8192),
    (["--max-model-len", "1.5k"], "max_model_len", 1500),
    (["--max-model-len", "auto"], "max_model_len", None),
    (["--max-model-len", "-1"], "max_model_len", None),
    (["--api-key", "k1", "k2", "--api-key", "k3"], "api_keys", ("k1", "k2", "k3")),
    (["--allowed-origins", '["*"]'], "allowed_origins", ("*",)),
    (["--allowed-origins", "https://a,https://b"], "allowed_origins", ("https://a", "https://b")),
    (["--engine", "mock", "--step-ms", "2.5"], "step_ms", 2.5),
    (["--data-parallel-size", "2"], "local_ranks", range(2)),
    (["-dp", "4", "-dpl", "2"], "local_ranks", range(2)),
    (["--data-parallel-size-local", "0"], "engine", "external"),
    (["-dpp", "5555"], "data_parallel_rpc_port", 5555),
    (["--default-chat-template-kwargs", '{"a": 1}'], "default_chat_template_kwargs", {"a": 1}),
    (["--chat-template", "{{ a }}"], "chat_template", "{{ a }}"),
    (["--override-generation-config", '{"temperature": 0}'], "override_generation_config", {"temperature": 0}),
    (["--trust-request-chat-template"], "trust_request_chat_template", True),
    (["--no-trust-request-chat-template"], "trust_request_chat_template", False),
    (["--enable-request-id-headers"], "enable_request_id_headers", True),
    (["--shutdown-timeout", "30"], "shutdown_timeout_s", 30.0),
    (["--sse-keep-alive-interval", "1.5s"], "sse_keep_alive_interval_s", 1.5),
    (["--root-path", "/api/"], "root_path", "/api"),
    (["--request-threads", "5"], "request_threads", 5),
    (["--ssl-certfile", "c", "--ssl-keyfile", "k"], "tls", TlsOptions("c", "k")),
    (["--ssl-certfile", "c", "--ssl-keyfile", "k", "--ssl-ca-certs", "a", "--ssl-cert-reqs", "2", "--ssl-ciphers", "x:y",
      "--enable-ssl-refresh"], "tls", TlsOptions("c", "k", "a", 2, "x:y", True)),
    (["--ssl-cert-reqs", "0"], "tls", None),
    (["--middleware", "a.b", "--middleware", "c.d"], "middleware", ("a.b", "c.d")),
    (["--lanes", "2"], "lanes", 2),
    (["--uds", "/tmp/x.sock"], "uds", "/tmp/x.sock"),
    (["--engine-args", "--a 1 --b '2 3'"], "engine_args", ("--a", "1", "--b", "2 3")),
    (["--kv-cache-memory-bytes", "2G"], "kv_cache_memory", "2G"),
    (["--gpu-memory-utilization", "0.85"], "gpu_memory_utilization", 0.85),
    (["--seed", "5"], "seed", 5),
    (["--enable-prompt-tokens-details", "--enable-per-request-metrics", "--return-tokens-as-token-ids"], "answers",
     AnswerOptions(prompt_details=True, metrics=True, tokens_as_ids=True)),
    (["--fingerprint-mode", "custom", "--fingerprint-value", "x"], "answers",
     AnswerOptions(fingerprint_mode="custom", fingerprint_value="x")),
    (["--dtype", "half"], "dtype", "float16"),
    (["--max-num-batched-tokens", "2k"], "max_num_batched_tokens", 2000),
    (["--tokenizer-mode", "HF"], "tokenizer_mode", "hf"),
    (["--hf-overrides", '{"a": {"b": 1}}'], "hf_overrides", {"a": {"b": 1}}),
    (["--hf-overrides.max_position_embeddings", "64k", "--hf_overrides.text_config.x=null"], "hf_overrides",
     {"max_position_embeddings": 64000, "text_config": {"x": None}}),
    (["--logprobs-mode", "processed_logits"], "logprobs_mode", "processed_logits"),
    (["--keep-alive", "0.5"], "keep_alive_s", 0.5),
    (["--structured-outputs-config", '{"backend": "guidance"}'], "structured", StructuredOptions("guidance")),
    (["--structured-outputs-config.backend", "guidance", "--structured_outputs_config.disable_any_whitespace=true"],
     "structured", StructuredOptions("guidance", disable_any_whitespace=True)),
    (["--structured-outputs-config.enable_in_reasoning", "true"], "structured", StructuredOptions(enable_in_reasoning=True)),
    (["-dpl", "0", "-tp", "4"], "tensor_parallel_size", 4),
]


@pytest.mark.parametrize(("words", "field", "value"), FLAGS)
def test_flags(tiny_folder: Path, words: list[str], field: str, value: Any) -> None:
    got = getattr(config_from(str(tiny_folder), *words), field)
    assert value is None or got == value
    assert value is not None or got is None


def test_the_model_may_be_a_flag(tiny_folder: Path) -> None:
    assert config_from("--model", str(tiny_folder)).model_path == tiny_folder.resolve()


def test_the_environment_gives_what_flags_do_not(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("VLLM_ENGINE_READY_TIMEOUT_S", "5")
    monkeypatch.setenv("VLLM_MAX_STOP_STRINGS", "7")
    got = config_from(str(tiny_folder))
    assert (got.api_keys, got.engine_ready_timeout_s, got.limits.max_stop_strings) == (("secret",), 5, 7)
    assert config_from(str(tiny_folder), "--api-key", "k").api_keys == ("k",)
    monkeypatch.setenv("VLLM_MAX_STOP_STRINGS", "many")
    with pytest.raises(SetupError, match="VLLM_MAX_STOP_STRINGS"):
        config_from(str(tiny_folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_LOG_STATS_INTERVAL", "99999999999"),  # more than a thread can wait
        ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "-1"),
        ("VLLM_MAX_N_SEQUENCES", "9" * 5000),
        ("VLLM_API_KEY", "a\udcff"),
    ],
)
def test_variables_that_cannot_be_used(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=name):
        config_from(str(tiny_folder))


@pytest.mark.parametrize(("given", "path"), [("", ""), ("/", ""), ("/a/b/", "/a/b"), ("a", "/a")])
def test_the_path_prefix_begins_with_a_slash(tiny_folder: Path, given: str, path: str) -> None:
    assert config_from(str(tiny_folder), "--root-path", given).root_path == path


BAD: list[tuple[list[str], str]] = [
    ([], "MODEL"),
    (["MODEL", "--model", "other"], "--model"),
    (["MODEL", "--port", "x"], "--port"),
    (["MODEL", "--port", "70000"], "--port"),
    (["MODEL", "--lanes", "0"], "--lanes"),
    (["MODEL", "--max-model-len", "big"], "--max-model-len"),
    (["MODEL", "--max-model-len", "0"], "--max-model-len"),
    (["MODEL", "--engine", "other"], "--engine"),
    (["MODEL", "--load-format", "dummy"], "--load-format is not supported: safetensors are read"),
    (["MODEL", "--lora-dtype", "auto"], "vllm's has (--engine vllm)"),
    (["MODEL", "--ssl-cert-reqs", "3"], "--ssl-cert-reqs"),
    (["MODEL", "--ssl-cert-reqs", "2", "--ssl-certfile", "a", "--ssl-keyfile", "b"], "--ssl-ca-certs"),
    (["MODEL", "--hf-token="], "--hf-token"),
    (["MODEL", "--tokenizer-mode", "mistral"], "--tokenizer-mode: mistral: mistral_common is not used"),
    (["MODEL", "--tokenizer-mode", "slow"], "--tokenizer-mode: slow: "),
    (["MODEL", "--tokenizer-mode", "kimi_k3"], "--tokenizer-mode: kimi_k3: "),
    (["MODEL", "--tokenizer-mode", "x"], "--tokenizer-mode: 'x' is neither auto nor hf"),
    (["MODEL", "--hf-overrides", "{"], "--hf-overrides"),
    (["MODEL", "--hf-overrides", "[1]"], "--hf-overrides"),
    (["MODEL", "--logprobs-mode", "logits"], "--logprobs-mode"),
    (["MODEL", "--step-ms", "-1"], "--step-ms"),
    (["MODEL", "--step-ms", "inf"], "--step-ms"),
    (["MODEL", "--default-chat-template-kwargs", "[1]"], "--default-chat-template-kwargs"),
    (["MODEL", "--override-generation-config", "{"], "--override-generation-config"),
    (["MODEL", "--allowed-origins", "[1]"], "--allowed-origins"),
    (["MODEL", "--custom-histogram-buckets", '{"x": [1]}'], "--custom-histogram-buckets"),
    (["MODEL", "--custom-histogram-buckets", '{"request_tokens": [2, 1]}'], "--custom-histogram-buckets"),
    (["MODEL", "--custom-histogram-buckets", '{"request_tokens": [true, NaN]}'], "--custom-histogram-buckets"),
    (["MODEL", "--custom-histogram-buckets", '{"request_tokens": 5}'], "--custom-histogram-buckets"),
    (["MODEL", "--custom-histogram-buckets", '{"request_tokens": [0, 1]}'], "--custom-histogram-buckets"),
    (["MODEL", "--kv-cache-metrics-sample", "0"], "--kv-cache-metrics-sample"),
    (["MODEL", "--kv-cache-metrics-sample", "1.5"], "--kv-cache-metrics-sample"),
    (["MODEL", "--kv-cache-metrics", "--disable-log-stats"], "--kv-cache-metrics needs statistics"),
    (["MODEL", "--enable-mfu-metrics", "--engine", "vllm", "--disable-log-stats"], "--enable-mfu-metrics needs statistics"),
    (["MODEL", "--enable-mfu-metrics"], "--enable-mfu-metrics needs --engine vllm"),
    (["MODEL", "--cudagraph-metrics"], "--cudagraph-metrics needs --engine vllm"),
    (["MODEL", "--otlp-traces-endpoint", "a:1", "--collect-detailed-traces", "some"], "--collect-detailed-traces"),
    (["MODEL", "--show-hidden-metrics-for-version", "last"], "--show-hidden-metrics-for-version"),
    (["MODEL", "--max-num-queued-tokens", "0"], "--max-num-queued-tokens"),
    (["MODEL", "--ssl-keyfile", "k"], "--ssl-certfile"),
    (["MODEL", "--ssl-ca-certs", "k"], "--ssl-certfile"),
    (["MODEL", "--enable-ssl-refresh"], "--ssl-certfile"),
    (["MODEL", "--ssl-keyfile", "k", "--ssl-certfile", "c", "--ssl-cert-reqs", "3"], "--ssl-cert-reqs"),
    (["MODEL", "--ssl-keyfile", "k", "--ssl-certfile", "c", "--ssl-cert-reqs", "1"], "--ssl-ca-certs"),
    (["MODEL", "--ssl-keyfile", "k", "--ssl-certfile", "c", "--ssl-ciphers", ""], "--ssl-ciphers"),
    (["MODEL", "--middleware", "name"], "--middleware"),
    (["MODEL", "--middleware", "a..b"], "--middleware"),
    (["MODEL", "--data-parallel-size-local", "2"], "--data-parallel-size-local"),
    (["MODEL", "--engine-args", "'"], "--engine-args"),
    (["MODEL", "--api-key", ""], "--api-key"),
    (["MODEL", "--api-key", "good", " "], "--api-key"),
    (["MODEL", "--max-model-len", "1e400k"], "--max-model-len"),
    (["MODEL", "--default-chat-template-kwargs", "[" * 100_000], "--default-chat-template-kwargs"),
    (["MODEL", "--allowed-origins", "[" * 100_000], "--allowed-origins"),
    (["MODEL", "--served-model-name", "a\udcff"], "'a\\udcff' is not text"),
    (["a\udcff"], "'a\\udcff' is not text"),
    (["MODEL", "--", "a\udcff"], "'a\\udcff' is not text"),
    (["MODEL", "--no-such-flag"], "--no-such-flag"),
    (["MODEL", "--fingerprint-mode", "custom"], "--fingerprint-value"),
    (["MODEL", "--fingerprint-value", "x"], "--fingerprint-mode"),
    (["MODEL", "--reasoning-config", "{}", "--reasoning-config.reasoning_end_str", "x"], "--reasoning-parser"),
    (["MODEL", "--reasoning-parser", "qwen3", "--reasoning-config", '{"what": "x"}'], "what='x'"),
    (["MODEL", "-tp", "0"], "--tensor-parallel-size"),
    (["MODEL", "-tp", "2", "--engine", "mock"], "--tensor-parallel-size"),
    (["MODEL", "--structured-outputs-config", '{"backend": "other"}'], "backend='other'"),
    (["MODEL", "--structured-outputs-config", '{"what": true}'], "what=True"),
    (["MODEL", "--log-format", "xml"], "--log-format"),
    (["MODEL", "--por", "1"], "--por"),
    (["MODEL", "extra"], "extra"),
]


@pytest.mark.parametrize(("words", "named"), BAD)
def test_bad_flags_exit_2_and_are_named(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *(str(tiny_folder) if word == "MODEL" else word for word in words)])
    assert caught.value.code == 2
    assert named in capsys.readouterr().err


def test_help_lists_every_flag_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: fastfront serve MODEL [flags]\n")
    assert max(map(len, text.splitlines())) <= 120
    for word in ("HTTP server:", "engines:", "chat:", "model:", "logging:", "--data-parallel-rpc-port", "--max-model-len"):
        assert word in text
    assert "--uvicorn-log-level" not in text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"fastfront \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_every_field_of_the_configuration_is_read_somewhere() -> None:
    """Besides where it is made: a flag without effect must not exist."""
    sources = [
        path.read_text() for path in (ROOT / "fastfront").rglob("*.py") if path.name != "config.py" and path.parent.name != "cli"
    ]
    for record in (ServeConfig, AnswerOptions, Limits, StructuredOptions, LogOptions):
        for field in dataclasses.fields(record):
            found = re.compile(rf"\.{field.name}\b")
            assert any(found.search(text) for text in sources), f"{record.__name__}.{field.name}"


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--enable-auto-tool-choice"], "--enable-auto-tool-choice requires --tool-call-parser"),
        (["--enable-log-outputs"], "--enable-log-outputs requires --enable-log-requests"),
        (["--enable-per-request-metrics", "--disable-log-stats"], "remove --disable-log-stats"),
        (["--collect-detailed-traces", "all"], "--collect-detailed-traces requires --otlp-traces-endpoint"),
        (["--sse-keep-alive-interval", "-1"], "--sse-keep-alive-interval must not be negative"),
    ],
)
def test_what_vllm_does_not_start_with_either_exits_1(capsys: pytest.CaptureFixture[str], words: list[str], named: str) -> None:
    assert main(["serve", "no-such-model", *words]) == 1
    assert named in capsys.readouterr().err


def test_what_cannot_start_exits_1_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "no-such-model"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("fastfront: error: model no-such-model: ")
    assert error.count("\n") == 1


# --- MODEL -----------------------------------------------------------------------------------------------------------


def test_folders_and_aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFRONT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    assert resolve_model(str(tmp_path)) == tmp_path.resolve()
    with pytest.raises(SetupError, match="make setup"):
        resolve_model("smollm2")
    (tmp_path / "models" / "smollm2").mkdir(parents=True)
    assert resolve_model("smollm2") == (tmp_path / "models" / "smollm2").resolve()


@pytest.mark.parametrize("name", ["nothing", "./a/b", "/no/such", "a/b/c", "~/x"])
def test_what_is_no_model(name: str) -> None:
    with pytest.raises(SetupError, match="no such folder"):
        resolve_model(name)


def test_the_hub_is_asked_for_small_files_unless_an_engine_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        asked.update(name=name, **options)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve_model("owner/name", "v1") == tmp_path
    assert (asked["name"], asked["revision"]) == ("owner/name", "v1")
    assert not any("safetensors" in pattern for pattern in asked["allow_patterns"])
    for more, wanted in (
        ([], True), (["--engine", "vllm"], True), (["--engine", "mock"], False), (["-dpl", "0"], False), (["--dry-run"], False),
    ):  # fmt: skip
        assert config_from("owner/name", *more).model_path == tmp_path
        assert ("*.safetensors" in asked["allow_patterns"]) == wanted

    def fail(*_: Any, **__: Any) -> str:
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(SetupError, match=r"owner/name.*no route to host\)\. Give a local folder"):
        resolve_model("owner/name")
    assert cli_model.ALIASES


@pytest.mark.parametrize(
    ("flags", "tokenizer"),
    [
        ([], None),
        (["--revision", "v1"], None),
        (["--revision", "v1", "--tokenizer-revision", "v1"], None),
        (["--tokenizer-revision", "v2"], "name-v2"),
        (["--tokenizer", "owner/other", "--revision", "v1"], "other-v1"),
        (["--tokenizer", "owner/other", "--revision", "v1", "--tokenizer-revision", "v2"], "other-v2"),
    ],
)
def test_the_tokenizer_may_have_a_revision_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], tokenizer: str | None
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def download(name: str, revision: str | None, **_: Any) -> str:
        return str(tmp_path / f"{name.removeprefix('owner/')}-{revision}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert config_from("owner/name", *flags).tokenizer == (None if tokenizer is None else tmp_path / tokenizer)


@pytest.mark.parametrize(
    ("words", "token"),
    [
        ([], None),
        (["--hf-token", "hf_secret"], "hf_secret"),
        (["--hf-token"], True),
        (["--hf-token=true"], True),
        (["--hf-token", "--port", "1"], True),
    ],
)
def test_the_token_goes_to_the_hub_and_in_the_environment_to_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], token: object
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked: list[object] = []

    def download(_name: str, **options: Any) -> str:
        asked.append(options["token"])
        return str(tmp_path / str(options["revision"]))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    config = config_from("owner/name", "--tokenizer-revision", "v2", *words)
    assert asked == [token, token]
    assert engine_environment(config, 0).get("HF_TOKEN") == ("hf_secret" if token == "hf_secret" else None)
    for kind in ("native", "vllm"):
        assert "hf_secret" not in str(engine_command(dataclasses.replace(config, engine=kind), "PY", 0, "tcp://a:1", 5))
    assert main(["serve", "owner/name", "--dry-run", *words]) == 0
    assert "hf_secret" not in capsys.readouterr().out + repr(config)


@pytest.mark.parametrize(
    ("words", "visible", "given"),
    [
        (["-dp", "2"], None, ["0", "1"]),
        (["-dp", "2", "-tp", "2"], None, ["0,1", "2,3"]),
        (["-dp", "2", "--pipeline-parallel-size", "2"], None, ["0,1", "2,3"]),
        (["-dp", "2", "-tp", "2"], "7,5,GPU-a,GPU-b,1", ["7,5", "GPU-a,GPU-b"]),
        (["-dp", "4", "-dpl", "2", "-dpr", "2"], None, ["0", "1"]),
        (["-dp", "2"], "", ["", ""]),
        (["-dp", "2", "-dpn", "1"], "3,4", ["3,4"]),
    ],
)
def test_each_rank_of_vllm_has_gpus_of_its_own(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], visible: str | None, given: list[str]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    config = config_from(str(tiny_folder), "--engine", "vllm", *words)
    assert [engine_environment(config, rank).get("CUDA_VISIBLE_DEVICES") for rank in config.local_ranks] == given
    ours = dataclasses.replace(config, engine="native")
    assert engine_environment(ours, config.local_ranks[0]).get("CUDA_VISIBLE_DEVICES") == visible


def test_too_few_gpus_for_ranks_of_vllm_are_told(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    config = config_from(str(tiny_folder), "--engine", "vllm", "-dp", "2", "-tp", "2")
    with pytest.raises(SetupError, match=r"CUDA_VISIBLE_DEVICES=0,1,2 are 3 GPUs, but 2 engines take 2 each"):
        engine_environment(config, 1)


def test_a_gguf_file_is_converted_by_the_engines_python(tmp_path: Path) -> None:
    file, folder = tmp_path / "some model.gguf", tmp_path / "converted"
    with pytest.raises(SetupError, match=r"some model\.gguf: no such file"):
        resolve_model(str(file))
    file.write_bytes(b"GGUF")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\necho progress\necho "{folder}"\n', encoding="utf-8")
    python.chmod(0o755)
    assert resolve_model(str(file), engine_python=str(python)) == folder
    assert (tmp_path / "asked").read_text() == f"-m engine.convert.gguf --cached {file}\n"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(SetupError, match=r"some model\.gguf: cannot be converted"):
        resolve_model(str(file), engine_python=str(python))
    with pytest.raises(SetupError, match="--engine-python nowhere: no such program"):
        resolve_model(str(file), engine_python="nowhere")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(SetupError, match=r"weights\.bin: a file, but no \.gguf"):
        resolve_model(str(tmp_path / "weights.bin"))
