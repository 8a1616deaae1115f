"""Life of an engine core process: handshake, load, serve, leave."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import sys
import traceback
from collections.abc import Callable

import msgspec
import zmq

from engine.core.adapters import AdapterCache
from engine.core.core import EngineCore
from engine.core.identity import model_facts
from engine.core.input_thread import InputThread
from engine.core.messages import Dead, Input, Leave, Output
from engine.core.options import CoreOptions, parse
from engine.core.output_thread import OutputThread
from engine.core.validate import Bounds
from engine.executor.make import make_executor
from engine.executor.mp import WorkerDiedError
from engine.executor.processes import core_title
from engine.kv_cache.manager import KvCacheManager
from engine.kv_cache.residency import Residency
from engine.lifecycle import die_with_parent, set_title
from engine.model.errors import ModelError
from engine.progress import teller
from engine.protocol import ReadyPayload
from engine.scheduler.lookup import Drafting
from engine.scheduler.scheduler import Limits, Scheduler
from engine.structured.compiler import GrammarCompiler
from engine.structured.grammars import Grammars
from engine.transport import FrontendLink, HandshakeError

OMP_SPINS = "0"


def main(argv: list[str] | None = None) -> int:
    """Run an engine core; returns its exit status."""
    options = parse(sys.argv[1:] if argv is None else argv)
    index = options.engine.index
    set_title(core_title(index))
    if not options.headless:
        die_with_parent()
        # Ctrl-C in a terminal reaches the whole group; the frontend decides when we leave.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    say = teller(f"engine {index}")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = FrontendLink(
            context,
            options.handshake,
            index,
            local=not options.headless,
            headless=options.headless,
            timeout_s=options.handshake_timeout_s,
        )
    except HandshakeError as error:
        say(f"error: {error}")
        return 1
    try:
        status = _serve(options, link, say)
    except Exception:
        say(f"error: {traceback.format_exc()}")
        link.close_inputs()
        status = 1
    # Waits until the last messages are on their way, for each socket's linger time at most.
    link.close_outputs()
    context.term()
    return status


def _serve(options: CoreOptions, link: FrontendLink, say: Callable[[str], None]) -> int:
    # Threads that wait for work must not burn the core that a frontend, or the other engine, needs.
    os.environ.setdefault("GOMP_SPINCOUNT", OMP_SPINS)
    config = options.engine
    commands: queue.SimpleQueue[Input] = queue.SimpleQueue()
    # Not before the frontend has heard HELLO: this takes seconds.
    try:
        executor = make_executor(config, say, lambda why: commands.put(Leave(why, error=True)))
    except ModelError as error:
        say(f"error: {error}")
        return 1
    try:
        info = executor.load()
        limits = Limits(
            config.max_num_seqs, info.max_num_batched_tokens, info.max_model_len, config.scheduling_policy,
            config.max_loras if config.enable_lora else 0,
        )
    except (ModelError, WorkerDiedError) as error:
        say(f"error: {error}")
        executor.close()
        return 1
    residency = None if config.kv_sample is None else Residency(config.kv_sample)
    adapters = AdapterCache(executor, (config.max_cpu_loras or config.max_loras) if config.enable_lora else 0)
    cache = KvCacheManager(info.num_blocks, info.block_size, residency)
    drafting = Drafting(config.draft_tokens, config.lookup_least, config.lookup_most) if config.draft_tokens else None
    scheduler = Scheduler(limits, cache, adapters.ready, drafting, config.drafts_told)
    messages: queue.SimpleQueue[Output | Dead] = queue.SimpleQueue()
    signals = _signal_pipe((signal.SIGTERM, signal.SIGINT) if options.headless else (signal.SIGTERM,))
    watch = link.connect()
    compiler = GrammarCompiler(
        config.model, info.vocab_size, config.reasoning_start, config.reasoning_end, config.reasoning_cut
    )
    core = EngineCore(
        scheduler,
        executor,
        commands,
        messages,
        grammars=Grammars(compiler, commands.put),
        adapters=adapters,
        index=config.index,
        clients=len(link.outputs),
        log_stats=config.log_stats,
        coordinated=link.coordinator_out is not None,
        async_scheduling=config.async_scheduling and drafting is None,
    )
    seed = config.seed if config.seed is not None else secrets.randbits(63)
    receiver = InputThread(
        link,
        commands,
        Bounds(
            info.max_model_len,
            info.vocab_size,
            info.block_size if config.enable_prefix_caching else None,
            adapters=config.enable_lora,
        ),
        base_seed=seed,
        watch=watch,
        signals=signals,
        disconnect_timeout_s=options.disconnect_timeout_s,
        drain_s=options.shutdown_timeout_s,
    )
    sender = OutputThread(link, messages, commands.put)
    sender.start()
    ready = msgspec.structs.asdict(
        ReadyPayload(
            max_model_len=info.max_model_len,
            num_gpu_blocks=info.num_blocks,
            block_size=info.block_size,
            dtype=info.dtype,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=info.max_num_batched_tokens,
            instance_id=f"fastfront-{os.getpid()}-{secrets.token_hex(4)}",
            dp_stats_address=link.addresses.frontend_stats_publish_address,
            data_parallel_rank=config.index,
            kv_cache_size_tokens=info.num_blocks * info.block_size,
            kv_cache_max_concurrency=info.num_blocks * info.block_size / info.max_model_len,
            effective_attention_block_size=info.block_size,
            supports_lora=config.enable_lora,
            max_loras=config.max_loras if config.enable_lora else 0,
            enable_sleep_mode=True,
        )
    )
    link.announce({**ready, "model_facts": model_facts(config.model)})
    receiver.start()
    say(f"ready: max-model-len {info.max_model_len}, {info.num_blocks} KV blocks, {info.dtype} on {info.device}")
    try:
        leave = core.run()
    except WorkerDiedError as error:
        leave = Leave(str(error), error=True)
    except Exception:
        leave = Leave(f"the busy loop failed:\n{traceback.format_exc()}", error=True)
    say(f"{'error: ' if leave.error else 'leaving: '}{leave.why}")
    messages.put(Dead.FAILED if leave.error else Dead.QUIETLY)
    executor.close()
    sender.join()
    return 1 if leave.error else 0


def _signal_pipe(signals: tuple[signal.Signals, ...]) -> int:
    """Read end of a pipe that gets the number of each of these signals.

    A Python handler alone is not enough: it runs on the main thread, which may sleep on a queue or be deep in a
    forward pass when the signal hits another thread.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for signum in signals:
        signal.signal(signum, lambda _signum, _frame: None)
    return read
