"""A server's engines on their way: those started here, and all that join."""

from __future__ import annotations

import logging
from collections.abc import Callable

import zmq

from fastfront.config import ServeConfig
from fastfront.engine_client.addresses import tcp_host
from fastfront.engine_client.agreement import Model, doubts, facts_of, require_same_model
from fastfront.engine_client.commands import engine_command, engine_environment, find_engine_python
from fastfront.engine_client.coordinator import Coordinator
from fastfront.engine_client.handshake import EngineInfo, Handshake, LaneSockets
from fastfront.engine_client.head import Head
from fastfront.engine_client.supervisor import Supervisor
from fastfront.openai.reasoning.engine_flags import engine_flags
from fastfront.openai.serving import Serving
from fastfront.openai.tools.registry import REASONING_PARSERS
from fastfront.render.model_info import read_config

log = logging.getLogger("fastfront")


def supervisor_of(config: ServeConfig, serving: Serving, handshake: str, on_exit: Callable[[int, int], None]) -> Supervisor:
    """Of the local engines, which will join at `handshake`. Raises SetupError."""
    python = find_engine_python(config)
    reasoning = engine_flags(config, serving.parsers.reasoning, REASONING_PARSERS)
    commands = {
        rank: [*engine_command(config, python, rank, handshake, serving.vocab_size), *reasoning] for rank in config.local_ranks
    }
    return Supervisor(commands, {rank: engine_environment(config, rank) for rank in config.local_ranks}, on_exit)


def join_engines(
    config: ServeConfig,
    context: zmq.Context[zmq.Socket[bytes]],
    handshake_socket: zmq.Socket[bytes],
    sockets: list[LaneSockets],
    check: Callable[[], None],
    model: Model,
) -> list[EngineInfo]:
    """Waits for all of them, those that step together also for the ranks of other frontends. `check()` ends that by raising.

    So does an engine that says that it has another model.
    """
    together = head = None
    if config.steps_together and config.ranks.start > 0:
        at = f"tcp://{tcp_host(config.data_parallel_address)}:{config.data_parallel_rpc_port}"
        head = Head(context, at, config.ranks)
        together = head.together(config.engine_ready_timeout_s, check)
    elif config.steps_together:
        coordinator = Coordinator(context, config.data_parallel_address, config.data_parallel_size)
        together = coordinator.together()
        coordinator.start()
    joined = range(config.data_parallel_size) if config.is_head else config.ranks
    handshake = Handshake(handshake_socket, sockets, config.ranks, config.say_local, together, joined)
    engines = handshake.run(config.engine_ready_timeout_s, check, lambda text: log.info("%s", text))
    if head is not None:
        head.ready(handshake.config_hashes)
    for engine in engines:
        require_same_model(model, engine)
    for doubt in doubts(model, engines):
        log.warning("%s", doubt)
    return engines


def model_of(config: ServeConfig, serving: Serving) -> Model:
    """What engines are compared with. Lengths are not where the flags may have changed what the model can have."""
    changed = config.hf_overrides or config.max_model_len is not None
    return Model(str(config.model_path), facts_of(read_config(config.model_path, {})), 0 if changed else serving.max_model_len)
