"""`fastfront serve --headless`: engines without a frontend. They join one elsewhere."""

from __future__ import annotations

import logging
import signal
import time

import setproctitle

from fastfront.config import ServeConfig
from fastfront.engine_client.commands import engine_environment, find_engine_python, headless_command
from fastfront.engine_client.layout import headless_title
from fastfront.engine_client.supervisor import Supervisor, describe
from fastfront.errors import SetupError
from fastfront.server.bell import Bell
from fastfront.server.logs import configure_logging

EXIT_OK, EXIT_FAILED = 0, 1
RESTART_AFTER_S = 1.0
log = logging.getLogger("fastfront")


class Headless:
    """Engines of one machine for a frontend on another. The main thread owns it; `run` returns the exit status."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._bell = Bell()
        self._signals = 0
        self._ended: list[tuple[int, int]] = []
        self._left = dict.fromkeys(config.local_ranks, config.engine_restarts)

    def run(self) -> int:
        """Keeps the engines until a signal comes (0), or the last one has ended (1)."""
        config = self._config
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._bell.rung_by_signals()
        setproctitle.setproctitle(headless_title(config))
        python = find_engine_python(config)
        commands = {rank: headless_command(config, python, rank) for rank in config.local_ranks}
        environments = {rank: engine_environment(config, rank) for rank in config.local_ranks}
        supervisor = Supervisor(commands, environments, self._on_exit)
        try:
            supervisor.start()
            supervisor.watch()
            return self._keep(supervisor)
        finally:
            supervisor.stop(hurry=lambda: self._signals > 1)

    def _keep(self, supervisor: Supervisor) -> int:
        running = len(self._config.local_ranks)
        while not self._signals:
            self._bell.wait()
            while self._ended and not self._signals:
                index, status = self._ended.pop(0)
                log.error("engine %d ended with %s", index, describe(status))
                if self._left[index]:
                    self._left[index] -= 1
                    time.sleep(RESTART_AFTER_S)
                    supervisor.restart(index)
                    continue
                running -= 1
                if not running:
                    log.error("no engine is left: leaving")
                    return EXIT_FAILED
        return EXIT_OK

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1
        self._bell.ring()

    def _on_exit(self, index: int, status: int) -> None:
        self._ended.append((index, status))
        self._bell.ring()


def run(config: ServeConfig) -> int:
    """Keeps engines until told to stop. Raises SetupError."""
    configure_logging(config.log)
    for remark in config.log.remarks:
        log.warning("%s", remark)
    try:
        return Headless(config).run()
    except OSError as error:
        raise SetupError(f"engines cannot be started: {error}") from error
