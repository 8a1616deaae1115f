"""Certificate and key, looked at before anything starts: the HTTP server would end the process over a bad one."""

from __future__ import annotations

import ssl

from fastfront.errors import SetupError


def check_authorities(file: str) -> None:
    """Raises SetupError for a file that holds no certificates."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except OSError as error:                       # SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise SetupError(f"--ssl-ca-certs {file}: {reason}") from error


def check_certificate(certfile: str, keyfile: str) -> None:
    """Raises SetupError naming the file at fault, or both where they do not belong together."""
    for flag, path in (("--ssl-certfile", certfile), ("--ssl-keyfile", keyfile)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise SetupError(f"{flag} {path}: {error.strerror}") from error
    try:
        # An encrypted key would ask at the terminal; the HTTP server reads none.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise SetupError(
            f"--ssl-certfile {certfile} and --ssl-keyfile {keyfile} are no certificate and its key: {reason}"
        ) from error
