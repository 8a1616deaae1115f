"""Where log lines go and what they look like."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
import time
from typing import TextIO

from fastfront.config import LogOptions
from fastfront.errors import SetupError

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what the record brings besides, and exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextHandler(logging.StreamHandler[TextIO]):
    """Writes records as TEXT, each behind `prefix`; and lines of one logger, several at once."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        super().__init__(stream)
        self._prefix = prefix
        self.setFormatter(logging.Formatter(prefix.replace("%", "%%") + TEXT))

    def write_lines(self, name: str, messages: list[str]) -> None:
        """The messages as the logger `name` would write them at INFO now, in one go."""
        now = time.time()
        stamp = time.strftime(logging.Formatter.default_time_format, time.localtime(now))
        head = f"{self._prefix}{stamp},{int(now % 1 * 1000):03d} INFO {name}: "
        try:
            self.acquire()
            try:
                self.stream.write("".join(f"{head}{message}{self.terminator}" for message in messages))
                self.flush()
            finally:
                self.release()
        except Exception:  # as logging does it
            self.handleError(logging.makeLogRecord({"name": name, "msg": "%d lines", "args": (len(messages),)}))


def sole_text_handler(logger: logging.Logger) -> TextHandler | None:
    """The handler that alone gets what the logger logs at INFO, if it writes it as it is; None otherwise."""
    if logger.filters:
        return None
    found: list[logging.Handler] = []
    above: logging.Logger | None = logger
    while above is not None:
        found += above.handlers
        above = above.parent if above.propagate else None
    if len(found) != 1 or not isinstance(found[0], TextHandler):
        return None
    return None if found[0].filters or found[0].level > logging.INFO else found[0]


def configure_logging(options: LogOptions) -> None:
    """Sets up the root logger. Raises SetupError for a configuration that logging.config does not take."""
    if options.config is not None:
        try:
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **options.config})
        except (ValueError, TypeError, AttributeError, ImportError) as error:
            raise SetupError(f"--log-config-file: {error}") from error
        return
    if not options.configure:
        return
    stream = sys.stdout if options.stream == "stdout" else sys.stderr
    handler: logging.StreamHandler[TextIO] = TextHandler(stream, options.prefix)
    if options.form == "json":
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(options.level.upper())
