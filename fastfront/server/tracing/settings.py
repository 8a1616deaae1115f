"""Where spans go and how: --otlp-traces-endpoint and the OpenTelemetry exporters' environment."""

from __future__ import annotations

import os
import re
import urllib.parse
from typing import Literal, NamedTuple

from fastfront.errors import SetupError

Protocol = Literal["grpc", "http/protobuf"]
FLAG = "--otlp-traces-endpoint"
PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
HEADERS = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"
TIMEOUT = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"
COMPRESSION = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"
CERTIFICATE = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"
CLIENT_CERTIFICATE = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
CLIENT_KEY = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"
DEFAULT_TIMEOUT_S = 10.0
_PORTS = {"grpc": {"http": 4317, "https": 443}, "http/protobuf": {"http": 80, "https": 443}}
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


class Settings(NamedTuple):
    protocol: Protocol
    tls: bool
    host: str
    port: int
    path: str                                   # of HTTP
    headers: dict[str, str]                     # names in lower case
    timeout_s: float                            # for a batch, with all its tries
    gzip: bool
    ca_file: str | None                         # of certificates to trust, in place of the system's
    client_files: tuple[str, str | None] | None  # certificate, and key where that is another file


def settings_of(endpoint: str) -> Settings:
    """Raises SetupError for an endpoint or a variable that cannot be meant."""
    protocol = os.environ.get(PROTOCOL) or "grpc"
    if protocol not in ("grpc", "http/protobuf"):
        raise SetupError(f"the environment variable {PROTOCOL} must be grpc or http/protobuf, not {protocol!r}")
    chosen: Protocol = "grpc" if protocol == "grpc" else "http/protobuf"
    bare = chosen == "grpc" and "://" not in endpoint
    try:
        url = urllib.parse.urlsplit(f"http://{endpoint}" if bare else endpoint)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise SetupError(f"{FLAG} {endpoint}: {error}") from error
    if url.scheme not in _PORTS[chosen] or not host:
        example = "http://localhost:4317" if chosen == "grpc" else "http://localhost:4318/v1/traces"
        raise SetupError(f"{FLAG} {endpoint}: for {chosen} ({PROTOCOL}), give the collector's address, such as {example}")
    if url.username is not None:
        raise SetupError(f"{FLAG}: names and passwords do not belong there; give headers with {HEADERS[1]}")
    certificate = _variable(CLIENT_CERTIFICATE)
    return Settings(
        protocol=chosen,
        tls=url.scheme == "https",
        host=host,
        port=port or _PORTS[chosen][url.scheme],
        path=(url.path if url.path not in ("", "/") else "/v1/traces") + (f"?{url.query}" if url.query else ""),
        headers=_headers(),
        timeout_s=_timeout_s(),
        gzip=_gzip(),
        ca_file=_variable(CERTIFICATE),
        client_files=(certificate, _variable(CLIENT_KEY)) if certificate else None,
    )


def pairs_of(text: str) -> dict[str, str]:
    """`name=value` pairs with commas between, percent-encoded, as the standard's variables have them."""
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    return {urllib.parse.unquote(name).strip(): urllib.parse.unquote(value).strip() for name, _, value in pairs}


def _variable(names: tuple[str, str]) -> str | None:
    """The traces' own, else the one for all that is exported; empty counts as not set."""
    return next((value for name in names if (value := os.environ.get(name))), None)


def _headers() -> dict[str, str]:
    headers = {name.lower(): value for name, value in pairs_of(_variable(HEADERS) or "").items()}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise SetupError(f"the environment variable {HEADERS[1]} has a header {name!r} that cannot be sent")
    return headers


def _timeout_s() -> float:
    text = _variable(TIMEOUT)
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise SetupError(f"the environment variable {TIMEOUT[1]} must be seconds, up to 3600, not {text!r}")
    return seconds


def _gzip() -> bool:
    text = (_variable(COMPRESSION) or "none").strip().lower()
    if text not in ("none", "gzip"):
        raise SetupError(f"the environment variable {COMPRESSION[1]} must be none or gzip, not {text!r}")
    return text == "gzip"
