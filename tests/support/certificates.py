"""Certificates for tests, made by the openssl program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files."""

    cert: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--ssl-certfile", str(self.cert), "--ssl-keyfile", str(self.key))


def make(folder: Path, name: str, signer: Certificate | None = None) -> Certificate:
    """A certificate of `name` for localhost, with a key on a curve; signed by `signer`, or by itself."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}-key.pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", str(made.key), "-out", str(made.cert),
    ]  # fmt: skip
    if signer is not None:
        command += ["-CA", str(signer.cert), "-CAkey", str(signer.key), "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    return made
