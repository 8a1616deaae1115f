"""The flags of `fastfront serve`: vLLM's names where vLLM has one, grouped as its help groups them."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from typing import Any

from fastfront.cli.observing import add_observing_flags
from fastfront.cli.values import (
    decimal,
    filled,
    hub_token,
    import_path,
    json_object,
    lora_module,
    model_length,
    names,
    seconds,
    signed_seconds,
    tokenizer_mode,
    tokens,
    whole,
)

_PORT = whole(0, 65535)


def add_serve_flags(parser: ArgumentParser) -> None:
    """Declare everything; defaults that need a computation are None."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="alias (smollm2), folder, GGUF file, or hub id (OWNER/NAME)")
    parser.add_argument("--model", dest="model_flag", help=SUPPRESS)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with flags; those on the command line come first")
    _server(parser)
    _engines(parser)
    _chat(parser)
    _parsers(parser)
    _adapters(parser)
    _model(parser)
    _logging(parser)
    add_observing_flags(parser)


def _flag(group: Any, name: str, help_text: str, **options: Any) -> None:
    group.add_argument(f"--{name}", help=help_text, **options)


def _switch(group: Any, name: str, help_text: str) -> None:
    group.add_argument(f"--{name}", help=help_text, action=BooleanOptionalAction, default=False)


def _server(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("HTTP server")
    _flag(group, "host", "address to listen on (all)", default="0.0.0.0", metavar="ADDRESS")
    _flag(group, "port", "port to listen on (8000)", type=_PORT, default=8000, metavar="N")
    _flag(group, "uds", "listen on this Unix socket instead, without TLS", metavar="PATH")
    _flag(group, "served-model-name", "names of the model in requests; the first is the one in answers (MODEL)",
          nargs="+", metavar="NAME")  # fmt: skip
    _flag(group, "root-path", "path prefix a proxy puts before the routes", default="", metavar="PATH")
    _flag(group, "api-key", "keys of which one must be sent as a bearer token; may be given again ($VLLM_API_KEY)",
          type=filled, nargs="+", action="extend", metavar="KEY")  # fmt: skip
    _flag(group, "api-key-scope", "routes that need a key: all but /health, /ping, /version and /metrics; or only what vLLM "
          "guards, /v1 and /v2 (all)", choices=("all", "vllm"), default="all")  # fmt: skip
    _flag(group, "allowed-origins", "origins of browsers that may call (none)", type=names, default=[], metavar="JSON")
    _flag(group, "allowed-methods", "methods they may use (all)", type=names, default=["*"], metavar="JSON")
    _flag(group, "allowed-headers", "headers they may send (all)", type=names, default=["*"], metavar="JSON")
    _switch(group, "allow-credentials", "let them send credentials")
    _flag(group, "ssl-keyfile", "private key for TLS", metavar="FILE")
    _flag(group, "ssl-certfile", "certificate for TLS, with those that it depends on behind it", metavar="FILE")
    _flag(group, "ssl-ca-certs", "certificates of those who may sign clients' certificates", metavar="FILE")
    _flag(group, "ssl-cert-reqs", "clients' certificates: 0 are not asked for, 1 are checked if given, 2 are required (0)",
          type=whole(0, 2), default=0, metavar="N")  # fmt: skip
    _flag(group, "ssl-ciphers", "ciphers for TLS 1.2, by OpenSSL's names, separated by colons (the library's)",
          type=filled, metavar="NAMES")  # fmt: skip
    _switch(group, "enable-ssl-refresh", "read these files again when they change")
    _flag(group, "middleware", "import paths of ASGI middleware: classes, or coroutine functions (request, call_next); the last "
          "one sees requests first; may be given again", type=import_path, nargs="+", action="extend", default=[],
          metavar="PATH")  # fmt: skip
    _switch(group, "disable-fastapi-docs", "no /docs and no /openapi.json")
    _switch(group, "enable-request-id-headers", "answer with the X-Request-Id header")
    _flag(group, "sse-keep-alive-interval", "seconds between comment lines on silent streams (0: none)",
          type=signed_seconds, default=0.0, metavar="S")  # fmt: skip
    _flag(group, "stream-interval", "tokens of a choice that are sent in one event, but for the first and the last (1)",
          type=whole(1), default=1, metavar="N")  # fmt: skip
    _flag(group, "shutdown-timeout", "seconds that running requests get to finish after SIGTERM (0)",
          type=seconds, default=0.0, metavar="S")  # fmt: skip
    _flag(group, "keep-alive", "seconds an idle connection is kept open ($VLLM_HTTP_TIMEOUT_KEEP_ALIVE or 120)",
          type=seconds, metavar="S")  # fmt: skip
    _flag(group, "max-body-bytes", "largest request body (64 MiB)", type=whole(1), default=64 << 20, metavar="N")
    _flag(group, "max-num-queued-reqs", "most choices that run or wait in the engines; requests beyond get 429 (no bound)",
          type=whole(1), metavar="N")
    _flag(group, "max-num-queued-tokens", "most prompt tokens that wait for a first token; requests beyond get 429 (no bound)",
          type=whole(1), metavar="N")
    _flag(group, "max-connections", "most connections at once (16384)", type=whole(1), default=16384, metavar="N")
    _flag(group, "request-threads", "threads that read requests, validate, render and tokenize (one for each core)",
          type=whole(1, 1024), metavar="N")  # fmt: skip
    _flag(group, "streams-per-lane", "streams that one lane takes before the next one is used (384)", type=whole(1), default=384,
          metavar="N")  # fmt: skip
    _flag(group, "lanes", "threads that carry tokens to clients (one for each two cores, at least two)",
          type=whole(1, 256), metavar="N")  # fmt: skip


def _engines(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("engines")
    _flag(group, "engine", "native: the engine of this project; vllm: vLLM's; mock: answers without a model (native)",
          choices=("native", "vllm", "mock"), default="native")  # fmt: skip
    _flag(group, "engine-python", "interpreter that runs engines (the one set-up made)", metavar="PATH")
    _switch(group, "headless", "start engines only, for a frontend at --data-parallel-address")
    _switch(group, "dry-run", "print the processes that would be started, and leave")
    _flag(group, "step-ms", "mock engine: milliseconds of a step (0: as fast as it can)",
          type=decimal(0.0), default=0.0, metavar="MS")  # fmt: skip
    _flag(group, "engine-ready-timeout", "seconds to wait for engines ($VLLM_ENGINE_READY_TIMEOUT_S or 600)",
          type=seconds, metavar="S")  # fmt: skip
    group.add_argument("--data-parallel-size", "-dp", type=whole(1, 65535), default=1, metavar="N", help="engines (1)")
    group.add_argument("--data-parallel-size-local", "-dpl", type=whole(0, 65535), metavar="N",
                       help="engines started here (all); 0: all are started elsewhere and connect")  # fmt: skip
    group.add_argument("--data-parallel-start-rank", "-dpr", type=whole(0, 65534), metavar="N",
                       help="rank of the first engine started here (0); for --headless, --data-parallel-hybrid-lb")  # fmt: skip
    group.add_argument("--data-parallel-hybrid-lb", "-dph", action=BooleanOptionalAction, default=False,
                       help="a frontend on each node, for the --data-parallel-size-local engines that it starts")  # fmt: skip
    group.add_argument("--data-parallel-rank", "-dpn", type=whole(0, 65534), metavar="N",
                       help="a frontend for each rank, this one for rank N")  # fmt: skip
    group.add_argument("--data-parallel-external-lb", "-dpe", action=BooleanOptionalAction, default=False,
                       help="the same, said beside --data-parallel-rank")  # fmt: skip
    group.add_argument("--data-parallel-address", "-dpa", default="127.0.0.1", metavar="ADDRESS",
                       help="address that engines elsewhere connect to (127.0.0.1)")  # fmt: skip
    group.add_argument("--data-parallel-rpc-port", "-dpp", type=_PORT, metavar="N",
                       help="port that engines elsewhere connect to (29550)")  # fmt: skip
    _switch(group, "prefix-affinity", "send prompts that begin alike to the same engine, unless it is much busier than others")
    _flag(group, "engine-restarts", "how often an engine started here is started again when it ends (0)",
          type=whole(0), default=0, metavar="N")  # fmt: skip
    _flag(group, "dtype", "number type of the weights (auto)", default="auto",
          choices=("auto", "half", "float16", "bfloat16", "float", "float32"))  # fmt: skip
    _flag(group, "max-num-seqs", "most requests in one step", type=whole(1), metavar="N")
    _flag(group, "max-num-batched-tokens", "most tokens in one step: 8192, 8k, 8K", type=tokens, metavar="N")
    _flag(group, "block-size", "tokens of a KV cache block", type=whole(1), metavar="N")
    _flag(group, "num-gpu-blocks-override", "number of KV cache blocks", type=whole(1), metavar="N")
    group.add_argument("--tensor-parallel-size", "-tp", type=whole(1), default=1, metavar="N",
                       help="workers of an engine (1)")  # fmt: skip
    _flag(group, "kv-cache-memory-bytes", "size of an engine's KV cache: 1000000000, 512M, 2G", metavar="N")
    _flag(group, "gpu-memory-utilization", "share of a GPU's memory for weights, a step and the KV cache (0.9)",
          type=decimal(0.01, 1.0), metavar="X")  # fmt: skip
    group.add_argument("--enable-prefix-caching", action=BooleanOptionalAction,
                       help="engines share the KV of equal beginnings of prompts (on)")  # fmt: skip
    _switch(group, "enable-sleep-mode", "for vLLM's engine, so that /sleep works; this project's always can")
    group.add_argument("--async-scheduling", action=BooleanOptionalAction,
                       help="engines plan a step while another is computed (on)")  # fmt: skip
    _flag(group, "scheduling-policy", "fcfs: first come, first served; priority: lower values go first",
          choices=("fcfs", "priority"))  # fmt: skip
    group.add_argument("--speculative-config", "-sc", type=json_object, default={}, metavar="JSON",
                       help="engines verify several drafted tokens in one step: method, num_speculative_tokens, "
                       "prompt_lookup_min, prompt_lookup_max, model, ...; this project's engine has ngram (none)")  # fmt: skip
    _flag(group, "spec-method", "the same as its method: ngram, eagle3, mtp, ...", metavar="NAME")
    _flag(group, "spec-model", "the same as its model: what drafts, a folder or hub id", metavar="MODEL")
    _flag(group, "spec-tokens", "the same as its num_speculative_tokens: most tokens of a draft", type=whole(1), metavar="N")
    _flag(group, "per-request-spec-decode-metrics", "answers end with how many drafted tokens were accepted: none, summary, or "
          "detailed with each step (none)", choices=("none", "summary", "detailed"), default="none")  # fmt: skip
    _flag(group, "seed", "makes requests without a seed reproducible", type=whole(0), metavar="N")
    _flag(group, "engine-args", "further flags for the engine's command line, as one string; or give them behind a word `--`",
          default="", metavar="FLAGS")  # fmt: skip


def _chat(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("chat")
    _flag(group, "chat-template", "a Jinja file, or the template itself, instead of the model's", metavar="FILE")
    _flag(group, "chat-template-content-format", "how templates get message content (auto: as they read it)",
          choices=("auto", "string", "openai"), default="auto")  # fmt: skip
    _flag(group, "default-chat-template-kwargs", "variables for the template that requests can override",
          type=json_object, default={}, metavar="JSON")  # fmt: skip
    _switch(group, "trust-request-chat-template", "let requests bring a template of their own")
    _flag(group, "response-role", "role of answers (assistant)", default="assistant", metavar="ROLE")
    _switch(group, "enable-force-include-usage", "send usage in every chunk of every stream")
    _switch(group, "enable-prompt-tokens-details", "usage says how many of the prompt's tokens were cached")
    _switch(group, "enable-per-request-metrics", "answers end with the request's times by its engine's clock")
    _switch(group, "return-tokens-as-token-ids", "logprobs show tokens as token_id:N unless requests say otherwise")
    _flag(group, "fingerprint-mode", "system_fingerprint: of version, model and layout (full), without layout (hash), "
          "--fingerprint-value (custom), or none (full)", choices=("full", "hash", "custom", "none"), default="full")  # fmt: skip
    _flag(group, "fingerprint-value", "the system_fingerprint of --fingerprint-mode custom", metavar="TEXT")
    _flag(group, "structured-outputs-config", "backend (auto), disable_any_whitespace, disable_additional_properties, "
          "enable_in_reasoning",
          type=json_object, default={}, metavar="JSON")  # fmt: skip


def _parsers(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("tools and reasoning")
    _switch(group, "enable-auto-tool-choice", "let models call tools; needs --tool-call-parser")
    _flag(group, "tool-call-parser", "how the model writes calls: hermes, llama3_json, ..., or auto (by model)",
          metavar="NAME")  # fmt: skip
    _flag(group, "reasoning-parser", "how the model marks its reasoning: qwen3, deepseek_r1, ..., or auto (by model)",
          metavar="NAME")  # fmt: skip
    _flag(group, "reasoning-config", "reasoning_end_str: what is written where thinking_token_budget ends reasoning, such as "
          "a last sentence and the model's marker; reasoning_start_str: what begins it",
          type=json_object, default={}, metavar="JSON")  # fmt: skip
    _flag(group, "tool-parser-plugin", "a Python file whose register(registry) adds parsers of tool calls", metavar="FILE")
    _flag(group, "reasoning-parser-plugin", "the same for parsers of reasoning", metavar="FILE")
    _switch(group, "exclude-tools-when-tool-choice-none", "hide tools from the template when none may be called")
    _flag(group, "tool-strict-level", "hold calls that the model chooses to the tools' names (function) or to their "
          "schemas too (parameter); auto: as requests ask (auto)",
          choices=("auto", "function", "parameter"), default="auto")  # fmt: skip


def _adapters(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("LoRA adapters")
    _switch(group, "enable-lora", "let requests name adapters of the model")
    _flag(group, "lora-modules", "adapters that are there from the start: NAME=FOLDER, or "
          '{"name": NAME, "path": FOLDER, "base_model_name": NAME}', type=lora_module, nargs="+", action="extend", default=[],
          metavar="ADAPTER")  # fmt: skip
    _flag(group, "max-loras", "most adapters in one step (1)", type=whole(1), metavar="N")
    _flag(group, "max-lora-rank", "largest rank of an adapter: 1, 8, 16, 32, 64, 128, 256, 320 or 512 (16)", type=int,
          choices=(1, 8, 16, 32, 64, 128, 256, 320, 512), metavar="N")  # fmt: skip
    _flag(group, "max-cpu-loras", "most adapters that an engine keeps in memory, at least --max-loras (--max-loras)",
          type=whole(1), metavar="N")  # fmt: skip


def _model(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    _flag(group, "tokenizer", "folder or hub id of the tokenizer (MODEL)", metavar="TOKENIZER")
    _flag(group, "tokenizer-mode", "auto and hf: tokenizer.json (auto)", type=tokenizer_mode, default="auto", metavar="MODE")
    _flag(group, "revision", "branch, tag or commit on the hub", metavar="NAME")
    _flag(group, "tokenizer-revision", "the same of the tokenizer (--revision)", metavar="NAME")
    _flag(group, "hf-token", "token for the hub; without a value, or with true: the stored one ($HF_TOKEN or the stored one)",
          type=hub_token, nargs="?", const=True, metavar="TOKEN")  # fmt: skip
    _flag(group, "hf-overrides", "values in place of those of the model's config.json; or --hf-overrides.KEY VALUE",
          type=json_object, default={}, metavar="JSON")  # fmt: skip
    _flag(group, "max-model-len", "most tokens of prompt and answer together: 4096, 8k, 8K, auto (the model's)",
          type=model_length, metavar="N")  # fmt: skip
    _flag(group, "generation-config", "auto: sampling defaults from the model's folder; vllm: none; or a folder (auto)",
          default="auto", metavar="WHAT")  # fmt: skip
    _flag(group, "override-generation-config", "sampling defaults that come before those", type=json_object, default={},
          metavar="JSON")  # fmt: skip
    _flag(group, "max-logprobs", "most logprobs of a token that a request can ask for (20)", type=whole(-1), default=20,
          metavar="N")  # fmt: skip
    _flag(group, "logprobs-mode", "what logprobs show: the model's (raw), or those that the token was drawn from (processed), or "
          "the logits of either (raw_logprobs)", default="raw_logprobs",
          choices=("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"))  # fmt: skip


def _logging(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("logging")
    levels = ("debug", "info", "warning", "error", "critical")
    _flag(group, "log-level", "least severe messages to show ($VLLM_LOGGING_LEVEL or info)", type=str.lower, choices=levels)
    _flag(group, "uvicorn-log-level", SUPPRESS, dest="log_level", type=str.lower, choices=(*levels, "trace"))
    _flag(group, "log-format", "text, or one JSON object a line (text)", choices=("text", "json"), default="text")
    _flag(group, "log-config-file", "a JSON file for logging.config.dictConfig, in place of the flags above "
          "($VLLM_LOGGING_CONFIG_PATH)", metavar="FILE")  # fmt: skip
    _flag(group, "logging-config", SUPPRESS, dest="log_config_file")
    _switch(group, "disable-uvicorn-access-log", "no line for every answered request")
    _flag(group, "disable-access-log-for-endpoints", "paths without such a line, separated by commas", type=names,
          default=[], metavar="PATHS")  # fmt: skip
    _switch(group, "enable-log-requests", "log every request's parameters; at level debug its prompts too")
    _switch(group, "enable-log-outputs", "log every answer's text and finish reason; needs --enable-log-requests")
    _flag(group, "enable-log-deltas", "and each piece of streams as it is sent (on)", action=BooleanOptionalAction, default=True)
    _flag(group, "max-log-len", "most characters of a prompt or an answer in the log (all)", type=whole(0), metavar="N")
