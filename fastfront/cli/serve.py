"""`fastfront serve`: from flags to a ServeConfig, then the server."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from fastfront.cli.flags import add_serve_flags
from fastfront.cli.model import resolve_model
from fastfront.config import EngineKind, Limits, ServeConfig, default_request_threads, default_workers
from fastfront.errors import SetupError
from fastfront.render.lookup import read_chat_template


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    add_serve_flags(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Serve until told to stop, then end the process. Raises SetupError before anything runs."""
    config = serve_config(args, parser)
    from fastfront.server.run import leave  # noqa: PLC0415 - so that --help and bad flags answer at once
    from fastfront.server.run import run as serve  # noqa: PLC0415 - the same

    leave(serve(config))


def serve_config(args: Namespace, parser: ArgumentParser) -> ServeConfig:
    """The configuration the flags mean. Exits with status 2 for flags that do not go together. Raises SetupError."""
    model = args.model or args.model_flag
    if not model:
        parser.error("MODEL is missing: an alias (smollm2), a folder, or a hub id (OWNER/NAME)")
    if args.model and args.model_flag and args.model != args.model_flag:
        parser.error(f"--model {args.model_flag}: MODEL is already given as {args.model}")
    if (args.ssl_keyfile is None) != (args.ssl_certfile is None):
        parser.error("--ssl-keyfile and --ssl-certfile go together")
    local = args.data_parallel_size if args.data_parallel_size_local is None else args.data_parallel_size_local
    if local > args.data_parallel_size:
        parser.error(f"--data-parallel-size-local {local} is more than --data-parallel-size {args.data_parallel_size}")
    engine: EngineKind = "external" if local == 0 else args.engine
    path = resolve_model(model, args.revision)
    return ServeConfig(
        model=model,
        model_path=path,
        served_model_name=tuple(args.served_model_name or [model]),
        host=args.host,
        port=args.port,
        uds=args.uds,
        root_path=args.root_path.rstrip("/"),
        api_keys=tuple(args.api_key or _environment_keys()),
        allowed_origins=tuple(args.allowed_origins),
        allowed_methods=tuple(args.allowed_methods),
        allowed_headers=tuple(args.allowed_headers),
        allow_credentials=args.allow_credentials,
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        enable_request_id_headers=args.enable_request_id_headers,
        max_body_bytes=args.max_body_bytes,
        max_connections=args.max_connections,
        keep_alive_s=args.keep_alive,
        sse_keep_alive_interval_s=args.sse_keep_alive_interval,
        shutdown_timeout_s=args.shutdown_timeout,
        workers=args.workers or default_workers(),
        request_threads=args.request_threads or default_request_threads(),
        lanes=args.lanes or default_workers(),
        engine=engine,
        engine_python=args.engine_python,
        step_ms=args.step_ms,
        engine_ready_timeout_s=args.engine_ready_timeout or _environment_number("VLLM_ENGINE_READY_TIMEOUT_S", 600),
        data_parallel_size=args.data_parallel_size,
        data_parallel_size_local=local,
        data_parallel_address=args.data_parallel_address,
        data_parallel_rpc_port=args.data_parallel_rpc_port,
        dtype=args.dtype,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        block_size=args.block_size,
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        tensor_parallel_size=args.tensor_parallel_size,
        gpu_memory_utilization=args.gpu_memory_utilization,
        engine_args=tuple(_split(args.engine_args, parser)),
        max_model_len=args.max_model_len,
        tokenizer=_tokenizer(args, path),
        revision=args.revision,
        chat_template=None if args.chat_template is None else read_chat_template(args.chat_template),
        chat_template_content_format=args.chat_template_content_format,
        default_chat_template_kwargs=args.default_chat_template_kwargs,
        trust_request_chat_template=args.trust_request_chat_template,
        response_role=args.response_role,
        generation_config=args.generation_config,
        override_generation_config=args.override_generation_config,
        max_logprobs=args.max_logprobs,
        enable_force_include_usage=args.enable_force_include_usage,
        limits=_limits(),
        log_level="debug" if args.log_level == "trace" else args.log_level,
        enable_log_requests=args.enable_log_requests,
        disable_log_stats=args.disable_log_stats,
    )


def _tokenizer(args: Namespace, path: Path) -> Path | None:
    if args.tokenizer is None:
        return None
    folder = resolve_model(args.tokenizer, args.revision)
    return None if folder == path else folder


def _split(text: str, parser: ArgumentParser) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        parser.error(f"argument --engine-args: {error}")


def _environment_keys() -> list[str]:
    key = os.environ.get("VLLM_API_KEY")
    return [key] if key else []


def _environment_number(name: str, default: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise SetupError(f"the environment variable {name} must be a whole number of at least 1, not {text!r}")
    return value


def _limits() -> Limits:
    usual = Limits()
    return Limits(
        max_n=_environment_number("VLLM_MAX_N_SEQUENCES", usual.max_n),
        max_stop_strings=_environment_number("VLLM_MAX_STOP_STRINGS", usual.max_stop_strings),
        max_completion_prompts=_environment_number("VLLM_MAX_COMPLETION_PROMPTS", usual.max_completion_prompts),
        max_bad_words=_environment_number("VLLM_MAX_NUM_BAD_WORDS", usual.max_bad_words),
    )
