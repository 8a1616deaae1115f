"""`fastfront serve`: from flags to a ServeConfig, then the server."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastfront.cli.environment import environment_number, environment_switch
from fastfront.cli.flags import add_serve_flags
from fastfront.cli.known import UnsupportedFlagError, sift
from fastfront.cli.layout import conflict, placement, rpc_port
from fastfront.cli.logging import log_options
from fastfront.cli.model import Hub, resolve_model
from fastfront.cli.observing import metric_options, remarks
from fastfront.cli.options import answer_options, limits, lora_options, parser_options, structured_options, tls_options
from fastfront.cli.speculative import SpeculationError, beyond_lookup, speculative_config
from fastfront.cli.words import config_words, given_flags, joined_dots, unreadable, with_dashes
from fastfront.config import EngineKind, ServeConfig, default_lanes, default_request_threads
from fastfront.engine_client.layout import describe
from fastfront.errors import SetupError
from fastfront.render.lookup import read_chat_template
from fastfront.render.model_info import load_model_info


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    add_serve_flags(parser)


def parse(words: Sequence[str], parser: ArgumentParser) -> Namespace:
    """What the words say, and the flags of the file that --config names. Exits with status 2. Raises SetupError."""
    declared = parser._option_string_actions
    many = {name for name, action in declared.items() if action.nargs == "+"}
    _check_text(words, parser)
    words, engine_words = _divided(words)
    written = joined_dots([with_dashes(word) for word in words], declared)
    more: list[str] = []
    try:
        own = sift(written, declared, vllm=True)         # whatever the engine: the file may say it
        args = parser.parse_args(own.kept)
        if args.config is not None:
            more = config_words(args.config, given_flags(own.kept), many, bool(args.model or args.model_flag))
            _check_text(more, parser)
            args = parser.parse_args([*own.kept, *sift(more, declared, vllm=True).kept])
        own, of_file = (sift(each, declared, args.engine == "vllm") for each in (written, more))
    except UnsupportedFlagError as error:
        parser.error(str(error))
    args.remarks = [*own.remarks, *of_file.remarks, *remarks(args)]
    args.engine_words = [*of_file.for_vllm, *own.for_vllm, *engine_words]
    groups = {
        str(group.title): [name for action in group._group_actions for name in action.option_strings]
        for group in parser._action_groups
    }
    problem = conflict(args, groups, given_flags([*own.kept, *of_file.kept]))
    if problem is not None:
        parser.error(problem)
    return args


def _check_text(words: Sequence[str], parser: ArgumentParser) -> None:
    word = unreadable(words)
    if word is not None:
        parser.error(f"{word!r} is not text in UTF-8")


def _divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before a word `--`, and what behind it."""
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Serve until told to stop, then end the process. Raises SetupError before anything runs."""
    config = serve_config(args, parser)
    if args.dry_run:
        print(describe(config, args.headless))
        return 0
    if args.headless:
        from fastfront.server.headless import run as keep  # noqa: PLC0415 - as below

        return keep(config)
    from fastfront.server.run import leave  # noqa: PLC0415 - so that --help and bad flags answer at once
    from fastfront.server.run import run as serve  # noqa: PLC0415 - the same

    leave(serve(config))


def serve_config(args: Namespace, parser: ArgumentParser) -> ServeConfig:
    """The configuration the flags mean. Exits with status 2 for flags that do not go together. Raises SetupError."""
    model = args.model or args.model_flag
    if not model:
        parser.error("MODEL is missing: an alias (smollm2), a folder, a GGUF file, or a hub id (OWNER/NAME)")
    if args.model and args.model_flag and args.model != args.model_flag:
        parser.error(f"--model {args.model_flag}: MODEL is already given as {args.model}")
    _require(args)
    balancing, first, local = placement(args)
    engine: EngineKind = "external" if local == 0 else args.engine
    hub = Hub(args.hf_token, weights=engine in ("native", "vllm") and not args.dry_run)
    path = resolve_model(model, args.revision, None if engine == "vllm" else args.engine_python, hub)
    together = _steps_together(args, engine, path, parser)
    return ServeConfig(
        model=model,
        model_path=path,
        served_model_name=tuple(args.served_model_name or [model]),
        host=args.host,
        port=args.port,
        uds=args.uds,
        root_path=_root_path(args.root_path),
        api_keys=tuple(args.api_key or _environment_keys()),
        api_key_scope=args.api_key_scope,
        allowed_origins=tuple(args.allowed_origins),
        allowed_methods=tuple(args.allowed_methods),
        allowed_headers=tuple(args.allowed_headers),
        allow_credentials=args.allow_credentials,
        tls=tls_options(args, parser),
        middleware=tuple(args.middleware),
        api_documents=not args.disable_fastapi_docs,
        enable_request_id_headers=args.enable_request_id_headers,
        max_body_bytes=args.max_body_bytes,
        max_connections=args.max_connections,
        max_num_queued_reqs=args.max_num_queued_reqs,
        max_num_queued_tokens=args.max_num_queued_tokens,
        keep_alive_s=_keep_alive() if args.keep_alive is None else args.keep_alive,
        stream_interval=args.stream_interval,
        sse_keep_alive_interval_s=args.sse_keep_alive_interval,
        shutdown_timeout_s=args.shutdown_timeout,
        request_threads=args.request_threads or default_request_threads(),
        lanes=args.lanes or default_lanes(),
        streams_per_lane=args.streams_per_lane,
        engine=engine,
        engine_python=args.engine_python,
        step_ms=args.step_ms,
        engine_ready_timeout_s=args.engine_ready_timeout or environment_number("VLLM_ENGINE_READY_TIMEOUT_S", 600),
        data_parallel_size=args.data_parallel_size,
        local_ranks=range(first, first + local),
        data_parallel_address=args.data_parallel_address,
        data_parallel_rpc_port=rpc_port(args),
        data_parallel_lb=balancing,
        steps_together=together,
        prefix_affinity=args.prefix_affinity,
        engine_restarts=args.engine_restarts,
        dtype={"half": "float16", "float": "float32"}.get(args.dtype, args.dtype),
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=args.block_size,
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        tensor_parallel_size=args.tensor_parallel_size,
        kv_cache_memory=args.kv_cache_memory_bytes,
        gpu_memory_utilization=args.gpu_memory_utilization,
        enable_prefix_caching=args.enable_prefix_caching,
        async_scheduling=args.async_scheduling,
        scheduling_policy=args.scheduling_policy,
        sleep_mode=args.enable_sleep_mode,
        seed=args.seed,
        speculative=_speculative(args, engine, parser),
        draft_metrics=args.per_request_spec_decode_metrics,
        engine_args=(*_split(args.engine_args, parser), *args.engine_words),
        hf_token=args.hf_token,
        hf_overrides=args.hf_overrides,
        max_model_len=args.max_model_len,
        tokenizer=_tokenizer(args, path),
        tokenizer_mode=args.tokenizer_mode,
        chat_template=None if args.chat_template is None else read_chat_template(args.chat_template),
        chat_template_content_format=args.chat_template_content_format,
        default_chat_template_kwargs=args.default_chat_template_kwargs,
        trust_request_chat_template=args.trust_request_chat_template,
        render_timeout_s=environment_number("VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT", 30, least=0) or None,
        response_role=args.response_role,
        generation_config=args.generation_config,
        override_generation_config=args.override_generation_config,
        max_logprobs=args.max_logprobs,
        logprobs_mode=args.logprobs_mode,
        enable_force_include_usage=args.enable_force_include_usage,
        answers=answer_options(args, parser),
        limits=limits(),
        any_model_name=environment_switch("VLLM_SKIP_MODEL_NAME_VALIDATION", False),
        structured=structured_options(args.structured_outputs_config, parser),
        parsers=parser_options(args, parser),
        lora=lora_options(args, parser),
        otlp_traces_endpoint=args.otlp_traces_endpoint,
        metrics=metric_options(args, engine, parser),
        histogram_buckets=args.custom_histogram_buckets,
        log=log_options(args),
    )


def _speculative(args: Namespace, engine: EngineKind, parser: ArgumentParser) -> Mapping[str, object] | None:
    try:
        config = speculative_config(args)
    except SpeculationError as error:
        parser.error(str(error))
    if config is None and args.per_request_spec_decode_metrics != "none":
        parser.error("--per-request-spec-decode-metrics requires --speculative-config")
    if config is not None and engine == "mock":
        parser.error("--speculative-config: the mock engine makes one token a step")
    if config is not None and engine == "native" and (key := beyond_lookup(config)) is not None:
        parser.error(f"--speculative-config: {key} needs --engine vllm; this project's engine has the method ngram")
    return config


def _require(args: Namespace) -> None:
    """What vLLM too leaves with status 1 for, and not as for flags that it cannot read. Raises SetupError."""
    if args.enable_auto_tool_choice and args.tool_call_parser is None:
        raise SetupError("--enable-auto-tool-choice requires --tool-call-parser (auto: by model)")
    if args.enable_log_outputs and not args.enable_log_requests:
        raise SetupError("--enable-log-outputs requires --enable-log-requests")
    if args.enable_per_request_metrics and args.disable_log_stats:
        raise SetupError("--enable-per-request-metrics needs statistics of the engine: remove --disable-log-stats")
    if args.collect_detailed_traces and not args.otlp_traces_endpoint:
        raise SetupError("--collect-detailed-traces requires --otlp-traces-endpoint")
    if args.sse_keep_alive_interval < 0:
        raise SetupError("--sse-keep-alive-interval must not be negative (0: no comment lines)")


def _steps_together(args: Namespace, engine: EngineKind, path: Path, parser: ArgumentParser) -> bool:
    """Whether engines that join may have to: those from elsewhere are vLLM's, or do not mind."""
    if args.headless or args.data_parallel_size == 1 or engine not in ("vllm", "external"):
        return False
    if not load_model_info(path, args.hf_overrides).is_mixture:
        return False
    if args.engine_restarts:
        parser.error("--engine-restarts: ranks of a mixture of experts start together, with their frontend")
    return True


def _keep_alive() -> float:
    return float(environment_number("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 120))


def _tokenizer(args: Namespace, path: Path) -> Path | None:
    revision = args.tokenizer_revision or args.revision
    if args.tokenizer is None and revision == args.revision:
        return None
    folder = resolve_model(args.tokenizer or args.model or args.model_flag, revision, hub=Hub(args.hf_token))
    return None if folder == path else folder


def _split(text: str, parser: ArgumentParser) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        parser.error(f"argument --engine-args: {error}")


def _root_path(text: str) -> str:
    path = text.strip("/")
    return "/" + path if path else ""


def _environment_keys() -> list[str]:
    key = os.environ.get("VLLM_API_KEY")
    if key and unreadable([key]) is not None:
        raise SetupError("the environment variable VLLM_API_KEY is not text in UTF-8")
    return [key] if key else []
