"""Groups of flags that are one option of the server, checked together. Each exits with status 2 for what does not go together."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from fastfront.cli.environment import environment_number, environment_switch
from fastfront.config import AnswerOptions, Limits, LoraOptions, ParserOptions, StructuredOptions, TlsOptions


def tls_options(args: Namespace, parser: ArgumentParser) -> TlsOptions | None:
    if (args.ssl_keyfile is None) != (args.ssl_certfile is None):
        parser.error("--ssl-keyfile and --ssl-certfile go together")
    if args.ssl_certfile is None:
        if args.ssl_ca_certs or args.ssl_cert_reqs or args.ssl_ciphers or args.enable_ssl_refresh:
            parser.error("--ssl-ca-certs, --ssl-cert-reqs, --ssl-ciphers and --enable-ssl-refresh need --ssl-certfile")
        return None
    if args.ssl_cert_reqs and args.ssl_ca_certs is None:
        parser.error(f"--ssl-cert-reqs {args.ssl_cert_reqs} needs --ssl-ca-certs: no client's certificate could be checked")
    return TlsOptions(
        certfile=args.ssl_certfile, keyfile=args.ssl_keyfile, ca_certs=args.ssl_ca_certs, cert_reqs=args.ssl_cert_reqs,
        ciphers=args.ssl_ciphers, refresh=args.enable_ssl_refresh,
    )  # fmt: skip


def structured_options(given: Mapping[str, object], parser: ArgumentParser) -> StructuredOptions:
    backends = ("auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer")
    switches = ("disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning")
    for name, value in given.items():
        good = isinstance(value, bool) if name in switches else name == "backend" and value in backends
        if not good:
            parser.error(f"argument --structured-outputs-config: {name}={value!r} is not known or not supported")
    return StructuredOptions(
        backend=str(given.get("backend", "auto")), **{name: bool(given.get(name, False)) for name in switches}
    )


def answer_options(args: Namespace, parser: ArgumentParser) -> AnswerOptions:
    mode, value = args.fingerprint_mode, args.fingerprint_value
    if (mode == "custom") != bool(value):
        parser.error("--fingerprint-mode custom and --fingerprint-value go together")
    return AnswerOptions(
        prompt_details=args.enable_prompt_tokens_details,
        metrics=args.enable_per_request_metrics,
        tokens_as_ids=args.return_tokens_as_token_ids,
        fingerprint_mode=mode,
        fingerprint_value=value or "",
    )


def parser_options(args: Namespace, parser: ArgumentParser) -> ParserOptions:
    given = args.reasoning_config
    if given and not args.reasoning_parser:
        parser.error("--reasoning-config requires --reasoning-parser (auto: by model)")
    for name, value in given.items():
        if name not in ("reasoning_start_str", "reasoning_end_str") or not isinstance(value, str):
            parser.error(f"argument --reasoning-config: {name}={value!r} is not known or no text")
    plugins = [file for file in (args.tool_parser_plugin, args.reasoning_parser_plugin) if file]
    return ParserOptions(
        tools=args.tool_call_parser if args.enable_auto_tool_choice else None,
        reasoning=args.reasoning_parser or None,
        reasoning_start=given.get("reasoning_start_str") or None,
        reasoning_cut=given.get("reasoning_end_str") or None,
        plugins=tuple(Path(file) for file in dict.fromkeys(plugins)),
        strict_level=args.tool_strict_level,
        hides_unused_tools=args.exclude_tools_when_tool_choice_none,
    )


def lora_options(args: Namespace, parser: ArgumentParser) -> LoraOptions:
    for flag in ("lora_modules", "max_loras", "max_lora_rank", "max_cpu_loras"):
        if getattr(args, flag) and not args.enable_lora:
            parser.error(f"--{flag.replace('_', '-')} requires --enable-lora")
    least, most = args.max_loras or 1, args.max_cpu_loras
    if most is not None and most < least:
        parser.error(f"--max-cpu-loras {most} is less than --max-loras {least}")
    names = args.served_model_name or [args.model or args.model_flag]
    for module in args.lora_modules:
        if module.name in names:
            parser.error(f"argument --lora-modules: {module.name} is a name of the model, or there twice")
        names = [*names, module.name]
    return LoraOptions(
        enabled=args.enable_lora,
        modules=tuple(args.lora_modules),
        max_loras=args.max_loras,
        max_lora_rank=args.max_lora_rank,
        max_cpu_loras=most,
        runtime_updates=environment_switch("VLLM_ALLOW_RUNTIME_LORA_UPDATING", False),
    )


def limits() -> Limits:
    usual = Limits()
    return Limits(
        max_n=environment_number("VLLM_MAX_N_SEQUENCES", usual.max_n),
        max_stop_strings=environment_number("VLLM_MAX_STOP_STRINGS", usual.max_stop_strings),
        max_completion_prompts=environment_number("VLLM_MAX_COMPLETION_PROMPTS", usual.max_completion_prompts),
        max_bad_words=environment_number("VLLM_MAX_NUM_BAD_WORDS", usual.max_bad_words),
    )
