"""Reading certificates, and reading them again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from fastfront._speedups.tls import TlsContext
from fastfront.config import TlsOptions
from fastfront.errors import SetupError
from fastfront.server.tls import CertificateWatch, read_certificates
from tests.support.certificates import Certificate, make


@pytest.fixture
def own(tmp_path: Path) -> Certificate:
    return make(tmp_path, "own")


@pytest.mark.parametrize(("fault", "named"), [
    ({"ca_certs": "/no/file"}, "--ssl-ca-certs /no/file: No such file"), ({"ca_certs": "key"}, "--ssl-ca-certs"),
    ({"certfile": "/"}, "--ssl-certfile /: Is a directory"), ({"certfile": "key"}, "--ssl-certfile"),
    ({"keyfile": "cert"}, "--ssl-keyfile"), ({"ciphers": "NONE-SUCH"}, "--ssl-ciphers NONE-SUCH: no cipher match"),
])  # fmt: skip
def test_errors_name_flag_and_file(own: Certificate, fault: dict[str, str], named: str) -> None:
    files = {"cert": str(own.cert), "key": str(own.key)}
    given = {"certfile": files["cert"], "keyfile": files["key"]}
    given |= {name: files.get(value, value) for name, value in fault.items()}
    with pytest.raises(SetupError) as raised:
        read_certificates(TlsOptions(**given))  # type: ignore[arg-type]
    assert str(raised.value).startswith(named)
    assert next(iter(given[name] for name in fault)) in str(raised.value)


def test_files_are_read_again_when_they_fit(own: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastfront.http")
    used: list[TlsContext] = []
    watch = CertificateWatch(TlsOptions(str(own.cert), str(own.key)), used.append)
    watch.look()
    assert not used
    new = make(tmp_path, "new")
    os.replace(new.key, own.key)
    watch.look()
    watch.look()
    assert not used
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once for each change"
    os.replace(new.cert, own.cert)
    watch.look()
    watch.look()
    assert len(used) == 1
    own.cert.unlink()
    watch.look()
    assert len(used) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
