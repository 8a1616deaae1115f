"""Logging as flags and vLLM's environment variables ask for it."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal

from fastfront.cli.environment import environment_number, environment_switch
from fastfront.config import LogOptions
from fastfront.errors import SetupError

LEVELS = ("debug", "info", "warning", "error", "critical")


def log_options(args: Namespace) -> LogOptions:
    """What `args` and the environment say, flags first. Raises SetupError."""
    return LogOptions(
        level=_level(args.log_level),
        form=args.log_format,
        prefix=os.environ.get("VLLM_LOGGING_PREFIX", ""),
        stream=_stream(),
        configure=environment_switch("VLLM_CONFIGURE_LOGGING", True),
        config=_config(args.log_config_file or os.environ.get("VLLM_LOGGING_CONFIG_PATH")),
        access=not args.disable_uvicorn_access_log,
        access_skips=frozenset(args.disable_access_log_for_endpoints),
        requests=args.enable_log_requests,
        outputs=args.enable_log_outputs,
        deltas=args.enable_log_deltas,
        max_prompt_chars=args.max_log_len,
        stats_interval_s=0.0 if args.disable_log_stats else float(environment_number("VLLM_LOG_STATS_INTERVAL", 10)),
        remarks=tuple(args.remarks),
    )


def _level(flag: str | None) -> str:
    level = flag or os.environ.get("VLLM_LOGGING_LEVEL", "").lower() or "info"
    level = {"trace": "debug", "warn": "warning"}.get(level, level)
    if level not in LEVELS:
        raise SetupError(f"VLLM_LOGGING_LEVEL must be one of {', '.join(LEVELS)}, not {level!r}")
    return level


def _stream() -> Literal["stdout", "stderr"]:
    name = os.environ.get("VLLM_LOGGING_STREAM", "").removeprefix("ext://sys.")
    if name not in ("", "stdout", "stderr"):
        raise SetupError(f"VLLM_LOGGING_STREAM must be ext://sys.stdout or ext://sys.stderr, not {name!r}")
    return "stdout" if name == "stdout" else "stderr"


def _config(path: str | None) -> dict[str, Any] | None:
    if not path:
        return None
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"logging configuration {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SetupError(f"logging configuration {path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise SetupError(f"logging configuration {path}: not a JSON object")
    return content
