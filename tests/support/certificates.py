"""Certificates for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path) -> tuple[Path, Path]:
    """(certificate, private key) of localhost, signed by itself, in files there."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    names = ["subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return certificate, key


def signed_by(authority: tuple[Path, Path], folder: Path, name: str) -> tuple[Path, Path]:
    """(certificate, private key) of a client, signed by the owner of these."""
    certificate, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    ask = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    ask += ["-keyout", str(key), "-out", str(request)]
    sign = ["openssl", "x509", "-req", "-days", "2", "-in", str(request), "-CA", str(authority[0]), "-CAkey", str(authority[1])]
    extensions = folder / f"{name}.ext"
    extensions.write_text("extendedKeyUsage=clientAuth\n")  # without any it would be of version 1, which rustls does not take
    for command in (ask, [*sign, "-CAcreateserial", "-extfile", str(extensions), "-out", str(certificate)]):
        subprocess.run(command, check=True, capture_output=True)
    return certificate, key
