"""Flags about traces and metrics."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from typing import Any

from fastfront.cli.values import decimal, histogram_buckets
from fastfront.config import EngineKind, MetricOptions

_VERSION = re.compile(  # as Python packages number theirs
    r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?"
    r"([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?", re.IGNORECASE,
)  # fmt: skip
SAMPLE = 0.01                                   # of KV blocks, where nothing else is said


def add_observing_flags(parser: ArgumentParser) -> None:
    """Declare them."""
    group = parser.add_argument_group("traces and metrics")
    group.add_argument("--otlp-traces-endpoint", metavar="URL", help="send a span of every generation to this OpenTelemetry "
                       "collector: OTLP over gRPC, over HTTP with $OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf")  # fmt: skip
    group.add_argument("--custom-histogram-buckets", type=histogram_buckets, default={}, metavar="JSON",
                       help='buckets of /metrics by family, such as {"time_to_first_token": [0.1, 1]}')  # fmt: skip
    switch: dict[str, Any] = {"action": BooleanOptionalAction, "default": False}
    group.add_argument("--disable-log-stats", help="no vllm:* in /metrics, and no regular line of statistics (every "
                       "$VLLM_LOG_STATS_INTERVAL or 10 seconds)", **switch)  # fmt: skip
    group.add_argument("--kv-cache-metrics", help="engines tell how long KV blocks live, lie idle, and come into use again; "
                       "/metrics shows it", **switch)  # fmt: skip
    group.add_argument("--kv-cache-metrics-sample", type=decimal(0.0, 1.0), default=SAMPLE, metavar="X",
                       help=f"share of the blocks that are watched for that, above 0 ({SAMPLE})")  # fmt: skip
    group.add_argument("--enable-mfu-metrics", help="vLLM's engines estimate their arithmetic and memory traffic; /metrics and "
                       "the statistics in the log show it", **switch)  # fmt: skip
    group.add_argument("--cudagraph-metrics", help="vLLM's engines tell which recorded graphs their steps use; a table follows "
                       "the line of statistics", **switch)  # fmt: skip
    group.add_argument("--collect-detailed-traces", nargs="+", choices=("model", "worker", "all"),
                       help="checked, and without effect, as in vLLM 0.32")  # fmt: skip
    group.add_argument("--show-hidden-metrics-for-version", type=_version, metavar="X.Y",
                       help="metrics that this version still had: there are none, as in vLLM 0.32")  # fmt: skip


def metric_options(args: Namespace, engine: EngineKind, parser: ArgumentParser) -> MetricOptions:
    """What is asked of the engines, too. Exits with status 2 for flags that do not go together."""
    asked = {"--kv-cache-metrics": args.kv_cache_metrics, "--enable-mfu-metrics": args.enable_mfu_metrics,
             "--cudagraph-metrics": args.cudagraph_metrics}  # fmt: skip
    for flag, on in asked.items():
        if on and args.disable_log_stats:
            parser.error(f"{flag} needs statistics of the engine: remove --disable-log-stats")
        if on and engine == "native" and flag != "--kv-cache-metrics":
            parser.error(f"{flag} needs --engine vllm: the native engine does not tell of that")
    if not args.kv_cache_metrics_sample:
        parser.error("argument --kv-cache-metrics-sample: 0 is not above 0")
    return MetricOptions(
        kv_sample=args.kv_cache_metrics_sample if args.kv_cache_metrics else None,
        work=args.enable_mfu_metrics,
        graphs=args.cudagraph_metrics,
    )


def remarks(args: Namespace) -> list[str]:
    """What is said at start about flags that change nothing."""
    said = []
    if args.collect_detailed_traces:
        said.append("--collect-detailed-traces has no effect: engines tell no such times")
    if args.show_hidden_metrics_for_version:
        said.append("--show-hidden-metrics-for-version has no effect: no metric is hidden")
    return said


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text.strip()):
        raise ArgumentTypeError(f"{text!r} is no version, such as 0.31")
    return text
