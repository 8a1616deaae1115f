"""Engine processes of this frontend: started, watched, stopped."""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fastfront.config import ServeConfig
from fastfront.errors import EngineError, SetupError

PROJECT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 10.0
STOP_POLL_S = 0.01
log = logging.getLogger("fastfront.engines")


def find_engine_python(config: ServeConfig) -> str:
    """The interpreter engines run on: --engine-python, else the engine environment beside this checkout.

    Raises SetupError saying what to do.
    """
    if config.engine_python is not None:
        found = shutil.which(config.engine_python)
        if found is None:
            raise SetupError(f"--engine-python {config.engine_python}: no such program")
        return found
    beside = PROJECT / ".venv-engine" / "bin" / "python"
    if beside.exists():
        return str(beside)
    raise SetupError(
        f"no engine environment at {beside.parent.parent}: run `make setup`, or name an interpreter with --engine-python"
    )


def engine_command(config: ServeConfig, python: str, index: int, handshake: str, vocabulary_size: int) -> list[str]:
    """The command line of one local engine."""
    if config.engine == "mock":
        command = [python, "-m", "engine.mock", "--handshake", handshake, "--local", "--index", str(index)]
        command += ["--step-ms", f"{config.step_ms:g}", "--vocab", str(vocabulary_size)]
        if config.max_model_len is not None:
            command += ["--max-model-len", str(config.max_model_len)]
        return [*command, *config.engine_args]
    command = [python, "-m", "engine", str(config.model_path), "--handshake", handshake, "--data-parallel-rank", str(index)]
    options: dict[str, object | None] = {
        "--max-model-len": config.max_model_len,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
        "--block-size": config.block_size,
        "--num-gpu-blocks-override": config.num_gpu_blocks_override,
        "--dtype": config.dtype if config.dtype != "auto" else None,
        "--kv-cache-memory": config.kv_cache_memory,
        "--scheduling-policy": config.scheduling_policy,
        "--seed": config.seed,
    }
    for name, value in options.items():
        if value is not None:
            command += [name, str(value)]
    for name, wanted in (("enable-prefix-caching", config.enable_prefix_caching), ("async-scheduling", config.async_scheduling)):
        if wanted is not None:
            command.append(f"--{name}" if wanted else f"--no-{name}")
    return [*command, *config.engine_args]


def engine_environment() -> dict[str, str]:
    """This process's environment, with the checkout on the import path when that is where `engine` lies."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHON_GIL", "PYTHONHOME")}
    if PROJECT.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(p for p in (str(PROJECT), env.get("PYTHONPATH", "")) if p)
    return env


class Supervisor:
    """The local engine processes. `on_exit(index, status)` is called on its own thread when one ends unasked."""

    def __init__(self, commands: list[list[str]], on_exit: Callable[[int, int], None]) -> None:
        self._commands = commands
        self._on_exit = on_exit
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        env = engine_environment()
        for command in self._commands:
            log.info("starting engine: %s", " ".join(command))
            self._processes.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, process_group=0))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """Raises EngineError when a process has ended already."""
        for index, process in enumerate(self._processes):
            status = process.poll()
            if status is not None:
                raise EngineError(
                    f"engine {index} (pid {process.pid}) ended during start-up with {describe(status)}; its output above says why"
                )

    def watch(self) -> None:
        """From here on ends are reported through `on_exit`."""
        if self._processes:
            self._watcher = threading.Thread(target=self._watch, name="engine-watcher", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        waiting = dict(enumerate(self._processes))
        while waiting and not self._stopping.is_set():
            fds = {}
            try:
                for index, process in waiting.items():
                    fds[os.pidfd_open(process.pid)] = index
            except (OSError, AttributeError):
                self._stopping.wait(0.2)
            else:
                wait_readable(list(fds), 1.0)
            for fd in fds:
                os.close(fd)
            for index in list(waiting):
                status = waiting[index].poll()
                if status is not None:
                    del waiting[index]
                    if not self._stopping.is_set():
                        self._on_exit(index, status)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ends every process: SIGTERM, and SIGKILL after `timeout_s` or when `hurry` says so. Returns when all are gone."""
        self._stopping.set()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > deadline or hurry():
                for process in self._processes:
                    process.kill()
                    process.wait()
                return
            time.sleep(STOP_POLL_S)


def wait_readable(fds: list[int], timeout_s: float) -> None:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(timeout_s * 1000)


def describe(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"
