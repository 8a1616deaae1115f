"""A gRPC server that takes traces and prints what it gets, until its standard input ends: see collector.GrpcCollector.

grpc_collector.py STATUS,STATUS... [CERTIFICATE KEY]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def taker(statuses: list[str]) -> Callable[[bytes, Any], bytes]:
    """The service's Export, messages as bytes."""

    def export(body: bytes, context: Any) -> bytes:
        metadata = {name: str(value) for name, value in context.invocation_metadata()}
        metadata["time_left"] = str(context.time_remaining())
        print(json.dumps({"metadata": metadata, "body": body.hex()}), flush=True)
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        if status != "OK":
            context.abort(grpc.StatusCode[status], "not now, bitte schön")
        return b""

    return export


def main() -> None:
    statuses, *tls = sys.argv[1:]
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(taker(statuses.split(",")))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),))
    if tls:
        certificate, key = (Path(name).read_bytes() for name in tls)
        port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0).wait()


if __name__ == "__main__":
    main()
