"""The log service over HTTPS, with a certificate of an authority that runs are told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.authorities import client_tls
from platform_sdk.errors import UserError
from platform_sdk.tracking.log.client import AUTHORITY, open_log
from tests.authority import Authority
from tests.log_service.service import Service, statement


def test_log_is_written_and_read_over_https_by_runs_that_know_the_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    authority.create()
    service = Service(tmp_path, authority=authority)
    try:
        assert service.url.startswith("https://")
        monkeypatch.setenv("HOPFORGE_LOG", service.url)
        monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "token-blue")
        assert service.post(statement(1)).status_code == 200
        with pytest.raises(UserError, match=rf"its certificate is not trusted .*{AUTHORITY}"):
            open_log(tmp_path).read()
        monkeypatch.setenv(AUTHORITY, str(authority.certificate))
        assert [entry.run for entry in open_log(tmp_path).read().entries] == ["/runs/1"]
        monkeypatch.setenv(AUTHORITY, str(tmp_path / "absent"))
        with pytest.raises(UserError, match=rf"{AUTHORITY}: .*absent: No such file"):
            open_log(tmp_path).read()
    finally:
        service.kill()


def test_absent_file_of_certificates_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/absent.pem")
    with pytest.raises(UserError, match=r"^SSL_CERT_FILE: /absent\.pem: No such file.*; name a PEM file"):
        client_tls("HOPFORGE_UNUSED_CA")
