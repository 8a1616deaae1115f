"""Certificates for the HTTP server: read before anything starts, and again when their files change."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

import setproctitle

from fastfront._speedups.tls import TlsContext, TlsError
from fastfront.config import TlsOptions
from fastfront.errors import SetupError

LOOK_S = 1.0
log = logging.getLogger("fastfront.http")


def read_certificates(options: TlsOptions) -> TlsContext:
    """Raises SetupError naming the flag and the file at fault."""
    for flag, path in (("certfile", options.certfile), ("keyfile", options.keyfile), ("ca-certs", options.ca_certs)):
        if path is None:
            continue
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise SetupError(f"--ssl-{flag} {path}: {error.strerror}") from error
    try:
        return TlsContext(options.certfile, options.keyfile, options.ca_certs, options.cert_reqs, options.ciphers)
    except TlsError as error:
        part, reason = error.args
        faults = {
            "library": f"--ssl-certfile needs OpenSSL 3: {reason} is not there (on Debian: apt install libssl3)",
            "certfile": f"--ssl-certfile {options.certfile} is no certificate in PEM: {reason}",
            "keyfile": f"--ssl-keyfile {options.keyfile} is no key in PEM of {options.certfile}: {reason}",
            "ca_certs": f"--ssl-ca-certs {options.ca_certs} has no certificates in PEM: {reason}",
            "ciphers": f"--ssl-ciphers {options.ciphers}: {reason}",
        }
        raise SetupError(faults[part]) from error


class CertificateWatch:
    """Reads the files of `options` again when they have changed, on a thread of its own, and gives them to `use`.

    Files that will not do, as between the change of one and of another, leave what was in use; they are looked at again when
    they change.
    """

    def __init__(self, options: TlsOptions, use: Callable[[TlsContext], None]) -> None:
        self._options = options
        self._use = use
        self._seen = self._stamps()

    def start(self) -> None:
        threading.Thread(target=self._run, name="certificates", daemon=True).start()

    def look(self) -> None:
        """What the thread does every LOOK_S."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._use(read_certificates(self._options))
        except SetupError as error:
            log.error("the certificate is not changed: %s", error)
        else:
            log.info("the certificate has been read again")

    def _run(self) -> None:
        setproctitle.setthreadtitle("certificates")
        while True:
            time.sleep(LOOK_S)
            self.look()

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """What changes with the files."""
        return [None if path is None else _stamp(path) for path in
                (self._options.certfile, self._options.keyfile, self._options.ca_certs)]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
