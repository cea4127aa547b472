"""The service over HTTPS, with certificates that openssl makes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app as cli
from platform_sdk.config.errors import UserError
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.remote import AUTHORITY, RemoteRetriever
from platform_sdk.retrieval.service.tls import Certificate
from platform_sdk.sampling.rollout import SearchRequest
from tests.authority import Authority, openssl
from tests.process_watch import wait_for
from tests.refusals import refused
from tests.retrieval.processes import Embeddings, served

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.create()
    return made


@pytest.fixture(scope="module")
def spec(world: Path) -> Iterator[ServiceSpec]:
    with Embeddings() as encoder:
        world_text = CollectionSpec(name="world", run_dir=world, environment="world-text", retrieval=encoder.spec())
        yield ServiceSpec(collections=(world_text,))


def test_searches_go_over_https_to_a_service_whose_authority_is_known(
    authority: Authority, spec: ServiceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(spec, certificate=authority.issue("here")) as url:
        assert url.startswith("https://")
        with pytest.raises(UserError, match=rf"its certificate is not trusted .*{AUTHORITY}"):
            RemoteRetriever(url)  # at once: waiting would not change it
        monkeypatch.setenv(AUTHORITY, str(authority.certificate))
        with RemoteRetriever(url) as remote:
            assert len(remote.search([SearchRequest("who")], 2)[0]) == 2
        with refused("retrieval.certificate"):
            RemoteRetriever(url.replace("127.0.0.1", "localhost"))  # not the name in the certificate
    monkeypatch.setenv(AUTHORITY, str(authority.folder / "absent"))
    with pytest.raises(UserError, match=rf"{AUTHORITY}: .*absent: No such file"):
        RemoteRetriever(url)


def test_renewed_certificate_is_used_without_a_restart(
    authority: Authority, spec: ServiceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_sdk.retrieval.service.server.RENEWAL_TICKS", 1)
    used = authority.issue("used", "DNS:elsewhere")
    tls = httpx.create_ssl_context()
    tls.load_verify_locations(authority.certificate)

    def reachable(url: str) -> bool:
        try:
            return httpx.get(f"{url}/healthz", verify=tls).status_code == 200
        except httpx.ConnectError:
            return False

    with served(spec, certificate=used) as url:
        assert not reachable(url)
        renewed = authority.issue("renewed")
        shutil.copy(renewed.key, used.key)  # for a moment the two files do not fit each other
        shutil.copy(renewed.certificate, used.certificate)
        wait_for(lambda: reachable(url))


def test_mismatched_certificate_files_are_refused_with_the_reason(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    locked = tmp_path / "locked.key"
    openssl("pkey", "-in", one.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    text = tmp_path / "text.crt"
    text.write_text("no certificate")
    cases = [
        (tmp_path / "absent", one.key, "--tls-cert .*absent: No such file"),
        (one.certificate, tmp_path / "absent", "--tls-key .*absent: No such file"),
        (one.certificate, other.key, "other.key is not the private key of .*one.crt"),
        (text, one.key, "cannot be loaded .*both must be PEM"),
        (one.certificate, locked, "its key without a passphrase"),
    ]
    for certificate, key, message in cases:
        with pytest.raises(UserError, match=message):
            Certificate(certificate, key).check()
    arguments = ["serve", "retriever", "--config", "x.yaml", "--tls-cert", str(one.certificate)]
    result = CliRunner().invoke(cli, arguments)
    assert "--tls-cert and --tls-key belong together" in str(result.exception)
