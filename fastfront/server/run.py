"""`fastfront serve`: brings everything up in order, waits, brings it down in order."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import setproctitle
import zmq

from fastfront._speedups.http_request import HttpRequest
from fastfront._speedups.memory import trim
from fastfront._speedups.pump import Pump
from fastfront._speedups.tls import TlsContext
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.config import ServeConfig
from fastfront.engine_client.addresses import engine_addresses
from fastfront.engine_client.agreement import Inspector
from fastfront.engine_client.balancer import Balancer
from fastfront.engine_client.handshake import EngineInfo, LaneSockets, bind, bind_lanes
from fastfront.engine_client.lane import Lane
from fastfront.engine_client.rejoin import Rejoin
from fastfront.engine_client.supervisor import Supervisor
from fastfront.engine_client.utility import Utilities
from fastfront.errors import EngineError, FastfrontError, SetupError
from fastfront.metrics.http import HttpMetrics
from fastfront.metrics.rejections import Rejections
from fastfront.metrics.sleep import SleepOperations
from fastfront.openai.failures import failure_event
from fastfront.openai.serving import Serving, build_serving
from fastfront.server.access import AccessLog
from fastfront.server.adapters import AdapterLoader, require_adapters
from fastfront.server.app import App
from fastfront.server.bell import Bell
from fastfront.server.cors import cors_of
from fastfront.server.development import Development, development_mode
from fastfront.server.engines import join_engines, model_of, supervisor_of
from fastfront.server.exchange import JSON_HEADERS, SSE_HEADERS
from fastfront.server.figures import Figures
from fastfront.server.gil import require_gil_off
from fastfront.server.health import Health
from fastfront.server.http import HttpServer, remove_socket_file
from fastfront.server.idle_gc import IdleCollector
from fastfront.server.listen import describe_socket, make_server, open_socket, raise_open_files
from fastfront.server.logs import configure_logging
from fastfront.server.losses import Losses
from fastfront.server.output_log import OutputLog
from fastfront.server.request_log import RequestLog
from fastfront.server.routes import Routes, failure_answer
from fastfront.server.scrapes import Scrapes
from fastfront.server.tls import CertificateWatch, read_certificates
from fastfront.server.tracing.tracer import Tracer
from fastfront.server.watch import Watch
from fastfront.streams.admission import Admission
from fastfront.streams.dispatcher import Dispatcher

if TYPE_CHECKING:
    from fastfront.server.middleware.bridge import Bridge
    from fastfront.server.tracing.exporter import Exporter

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
DRAIN_POLL_S = 0.02
SEND_TIMEOUT_S = 1.0
log = logging.getLogger("fastfront")


class Interrupted(Exception):
    """A signal came while the server was starting."""


class Server:
    """One running frontend. The main thread owns it; `run` returns the exit status."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._started = time.monotonic()
        self._signals = 0
        self._bell = Bell()
        self._health = Health(self._bell.ring)
        self._balancer = Balancer(config.ranks, config.prefix_affinity)
        self._utilities = Utilities(self._balancer)
        self._lanes: list[Lane] = []
        self._figures = Figures(config, self._balancer, self._lanes)
        self._losses = Losses(self._balancer, self._health, self._lanes, config.steps_together)
        self._supervisor: Supervisor | None = None
        self._access_log: AccessLog | None = None
        self._exporter = None if config.otlp_traces_endpoint is None else _exporter(config.otlp_traces_endpoint)
        self._bridge: Bridge | None = None
        self._inspector: Inspector | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._bell.rung_by_signals()
        try:
            return self._serve()
        except Interrupted:
            return EXIT_INTERRUPTED
        finally:
            if self._supervisor is not None:
                self._supervisor.stop(self._engine_stop_timeout(), lambda: self._signals > 1)

    # ---- start ---------------------------------------------------------------------------------------------------------

    def _serve(self) -> int:
        config = self._config
        raise_open_files(config.lanes, len(config.ranks))
        tls = None if config.tls is None else read_certificates(config.tls)
        if config.middleware:
            self._bridge = self._build_bridge()
        sock = open_socket(config)
        try:
            server = self._start(sock, tls)
        except BaseException:
            remove_socket_file(sock)  # a server that has started does it when it stops
            raise
        self._wait()
        return self._stop(server)

    def _build_bridge(self) -> Bridge:
        from fastfront.server.middleware.bridge import Bridge  # noqa: PLC0415 - asyncio costs those who have no middleware nothing
        from fastfront.server.middleware.loading import load  # noqa: PLC0415 - the same

        config = self._config

        def check() -> None:
            if self._signals:
                raise Interrupted

        return Bridge(
            load(config.middleware), threads=config.request_threads, max_body_bytes=config.max_body_bytes,
            root_path=config.root_path, https=config.tls is not None, check=check,
        )  # fmt: skip

    def _start(self, sock: socket.socket, tls: TlsContext | None) -> HttpServer:
        """Everything between the bound socket and a server that is ready."""
        config = self._config
        where = describe_socket(sock)
        setproctitle.setproctitle(f"fastfront serve {config.served_model_name[0]} {where}")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        addresses = engine_addresses(config)
        handshake_socket, handshake_address = bind(context, addresses.handshake)
        sockets = bind_lanes(addresses, config.ranks.stop)
        serving = build_serving(config)
        if len(config.local_ranks) > 0:
            self._supervisor = supervisor_of(config, serving, handshake_address, self._losses.exited)
            self._supervisor.start()
        else:
            log.info("waiting for %d engine(s) at %s", config.data_parallel_size, handshake_address)
        vocabulary = serving.tokenizer.vocabulary()
        model = model_of(config, serving)
        engines = join_engines(config, context, handshake_socket, sockets, self._check_start, model)
        rejoin = self._losses.rejoin = Rejoin(
            sockets, config.ranks, supervised=config.local_ranks, local=config.say_local, restarts=config.engine_restarts,
            ready_timeout_s=config.engine_ready_timeout_s, on_back=self._back, on_given_up=self._losses.given_up,
            together=config.steps_together, model=model,
        )  # fmt: skip
        serving = serving.with_engine_limits(min(engine.max_model_len for engine in engines))
        self._start_lanes(sockets, vocabulary, rejoin)
        self._inspector = Inspector(model, self._utilities, self._lanes[0])
        for engine in engines:
            if "model_facts" not in engine.limits:
                self._inspect(engine.index)
        loader = self._load_adapters(serving, engines)
        server = self._start_http(sock, serving, vocabulary, engines, loader, tls)
        rejoin.start(handshake_socket, self._supervisor)
        if self._supervisor is not None:
            self._supervisor.watch()
        require_gil_off()
        IdleCollector(self._live, lambda: sum(lane.pump.sends for lane in self._lanes)).start()
        self._figures.gc_watch.start()
        trim()
        url = f"{'http' if tls is None else 'https'}://{where}"
        log.info("ready in %.2f s: %s, model %s", time.monotonic() - self._started, url, config.served_model_name[0])
        return server

    def _inspect(self, engine: int) -> None:
        if engine not in self._config.local_ranks and self._inspector is not None:
            self._inspector.inspect(engine)

    def _check_start(self) -> None:
        if self._signals:
            raise Interrupted
        if self._supervisor is not None:
            self._supervisor.check()

    def _load_adapters(self, serving: Serving, engines: list[EngineInfo]) -> AdapterLoader | None:
        """Those that are there from the start; None without adapters."""
        if serving.adapters is None:
            return None
        require_adapters(engines)
        loader = AdapterLoader(serving.adapters, self._utilities, self._lanes[0])
        loader.load_modules(self._config.lora.modules, self._check_start)
        return loader

    def _start_lanes(self, sockets: list[LaneSockets], vocabulary: Vocabulary, rejoin: Rejoin) -> None:
        for index, pair in enumerate(sockets):
            pump = Pump(
                vocabulary, failure_answer, failure_event, SSE_HEADERS, JSON_HEADERS,
                self._config.ranks.stop, self._config.local_ranks.stop, self._config.histogram_buckets,
            )  # fmt: skip
            ping_s = self._config.sse_keep_alive_interval_s
            lane = Lane(
                index, pair.sockets, pump, self._balancer, self._losses.dead, self._figures.put, ping_s, self._utilities.replied,
                rejoin.payload,
            )  # fmt: skip
            self._lanes.append(lane)
        for lane in self._lanes:
            lane.start()

    def _start_http(
        self,
        sock: socket.socket,
        serving: Serving,
        vocabulary: Vocabulary,
        engines: list[EngineInfo],
        adapters: AdapterLoader | None,
        tls: TlsContext | None,
    ) -> HttpServer:
        config, queues = self._config, self._figures.queues
        request_log = RequestLog(serving.tokenizer.decode, config.log.max_prompt_chars) if config.log.requests else None
        rejections = Rejections(config.served_model_name[0])
        admission = self._admission(rejections)
        dispatcher = Dispatcher(
            self._lanes, self._balancer, vocabulary, serving.fingerprint, request_log, admission,
            streams_per_lane=config.streams_per_lane,
        )
        if config.log.access:
            self._access_log = AccessLog(config.log.access_skips)
            self._access_log.start()
            queues["access_log"] = self._access_log.pending
        if self._exporter is not None:
            self._exporter.start()
            queues["traces"] = self._exporter.pending
        self._figures.start_log()
        metrics = self._figures.metrics(serving, engines)
        if config.log.stats_interval_s:
            metrics.add(rejections)
        scrapes = Scrapes(metrics)
        scrapes.start()
        routes = Routes(
            serving, dispatcher, self._health, scrapes,
            docs=config.api_documents, key_scope=config.api_key_scope if config.api_keys else None,
            trace=None if self._exporter is None else Tracer(self._exporter.add), load=self._figures.load,
            outputs=OutputLog(config.log.max_prompt_chars, config.log.deltas) if config.log.outputs else None,
        )  # fmt: skip
        table = routes.table()
        if development_mode():
            operations = SleepOperations(time.time())
            metrics.add(operations)
            table |= Development(config, self._utilities, self._lanes[0], self._figures.sleep, operations).table()
        if adapters is not None and config.lora.runtime_updates:
            table |= adapters.table()
        http_metrics = HttpMetrics(table, config.root_path, time.time())
        metrics.add(http_metrics)
        app = App(
            table,
            api_keys=config.api_keys,
            key_scope=config.api_key_scope,
            root_path=config.root_path,
            max_body_bytes=config.max_body_bytes,
            request_threads=config.request_threads,
            cors=cors_of(config),
            request_id_headers=config.enable_request_id_headers,
            watch=Watch(None if self._bridge is not None else self._access_log, http_metrics),
        )
        queues["requests"] = app.waiting
        intake: Callable[[HttpRequest], None] = app.intake
        if self._bridge is not None:
            name = sock.getsockname()
            address = (name, None) if isinstance(name, str) else name[:2]
            self._bridge.use(app.intake, app.wants_body, address, self._access_log)
            intake = self._bridge.intake
        server = make_server(config, sock, intake, tls)
        server.start()
        if config.tls is not None and config.tls.refresh:
            CertificateWatch(config.tls, server.use_tls).start()
        return server

    def _admission(self, rejections: Rejections) -> Admission | None:
        """What refuses requests when there is too much to do; None without such a bound."""
        config = self._config
        if config.max_num_queued_reqs is None and config.max_num_queued_tokens is None:
            return None
        admission = Admission(
            config.max_num_queued_reqs, config.max_num_queued_tokens, lambda: sum(self._balancer.in_flight),
            lambda: sum(lane.pump.prefill_tokens for lane in self._lanes), rejections.add,
        )  # fmt: skip
        self._health.guard(admission.check)
        return admission

    # ---- while serving (other threads) -----------------------------------------------------------------------------------

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1  # only the main thread runs signal handlers
        self._bell.ring()

    def _back(self, engine: int) -> None:
        """An engine that was lost takes requests again. On the joiner's thread."""
        self._losses.back(engine)
        self._inspect(engine)

    # ---- end -------------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Until a signal comes, or no engine is left and that is the end."""
        stay = os.environ.get("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "0") not in ("", "0")
        said = False
        while not self._signals:
            dead = self._health.dead_reason is not None
            if dead and not said:
                log.error("no engine is left: %s", "staying up, requests get 503" if stay else "leaving")
            if dead and not stay:
                return
            said = dead
            self._bell.wait()

    def _engine_stop_timeout(self) -> float:
        return max(1.0, min(10.0, self._config.shutdown_timeout_s or 10.0))

    def _live(self) -> int:
        return sum(lane.pump.live for lane in self._lanes)

    def _stop(self, server: HttpServer) -> int:
        dead = self._health.dead_reason
        signals = self._signals
        self._health.drain()
        http_stop = threading.Thread(target=server.stop, name="http-stop", daemon=True)
        http_stop.start()
        if dead is None:
            log.info("stopping: %d requests are running", self._live())
            self._settle(self._config.shutdown_timeout_s, signals)
            for lane in self._lanes:
                lane.post(lambda lane=lane: lane.pump.fail_engine(-1, "the server is shutting down"))  # type: ignore[misc]
        self._settle(SEND_TIMEOUT_S, signals + 1)
        http_stop.join(SEND_TIMEOUT_S)  # until the last answers are written
        for lane in self._lanes:
            lane.stop()
        if self._bridge is not None:
            self._bridge.stop()
        if self._access_log is not None:
            self._access_log.stop(SEND_TIMEOUT_S)
        if self._exporter is not None:
            self._exporter.stop(SEND_TIMEOUT_S)
        return EXIT_FAILED if dead is not None else EXIT_OK

    def _settle(self, timeout_s: float, signals: int) -> None:
        """Waits until nothing is running, the time is up, or more than `signals` signals have come."""
        deadline = time.monotonic() + timeout_s
        while self._live() and time.monotonic() < deadline and self._signals <= signals:
            time.sleep(DRAIN_POLL_S)


def _exporter(endpoint: str) -> Exporter:
    """Raises SetupError for an endpoint, or variables, that cannot be meant."""
    from fastfront.server.tracing.exporter import exporter_of  # noqa: PLC0415 - servers without traces do without ssl and more

    return exporter_of(endpoint)


def run(config: ServeConfig) -> int:
    """Serves until told to stop. Returns the exit status; the caller leaves with `leave(status)`."""
    try:
        configure_logging(config.log)
        for remark in config.log.remarks:
            log.warning("%s", remark)
        return Server(config).run()
    except (EngineError, SetupError) as error:
        print(f"fastfront: {error}", file=sys.stderr)
        return EXIT_FAILED
    except FastfrontError:
        log.exception("serving failed")
        return EXIT_FAILED


def leave(status: int) -> NoReturn:
    """Ends the process without finalizing the interpreter: threads may still be in native code."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
