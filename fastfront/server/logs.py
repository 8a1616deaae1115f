"""Where log lines go and what they look like."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
import time

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
    handler = logging.StreamHandler(sys.stdout if options.stream == "stdout" else sys.stderr)
    prefix = options.prefix.replace("%", "%%")
    handler.setFormatter(JsonFormatter() if options.form == "json" else logging.Formatter(prefix + TEXT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(options.level.upper())
