"""The way to the server: addresses, secrets, certificates, and what answers that is no such server."""

from __future__ import annotations

import itertools
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.access import access
from platform_sdk.kubeflow.remote.connection import Server
from tests.kubeflow.remote.kfp_server import LOGIN_PAGE, TO_LOGIN, KfpServer
from tests.kubeflow.remote.test_submit import started


def reached(host: str) -> Server:
    """The server, of which nothing may be asked twice."""

    def sleep(seconds: float) -> None:
        raise AssertionError("it was asked again")

    return Server(host, sleep=sleep)


@pytest.mark.parametrize("page", [LOGIN_PAGE, TO_LOGIN])
def test_expired_session_is_reported_at_any_call(kfp: KfpServer, recipe: Path, page: str) -> None:
    for good in itertools.count():
        calls = itertools.count()
        kfp.fault = lambda method, path, calls=calls, good=good: page if next(calls) >= good else None  # type: ignore[misc]
        try:
            started(kfp, recipe)
        except UserError as error:
            assert "perhaps a login page, because a session has expired" in str(error)  # noqa: PT017
            assert "hidden" not in str(error)  # noqa: PT017
        else:
            break
    assert good > 5
    assert (len(kfp.pipelines), len(kfp.versions), len(kfp.experiments), len(kfp.runs)) == (1, 1, 1, 1)


def test_answers_unlike_kubeflow_pipelines_are_refused(kfp: KfpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(kfp.url)
    monkeypatch.setattr(kfp, "answer", lambda *_: {"kind": "Status"})
    with pytest.raises(UserError, match="responded without the field run_id of Kubeflow Pipelines"):
        server.ask(server.api.runs.run_service_get_run, "x")
    monkeypatch.setattr(kfp, "answer", lambda *_: ["runs"])
    with pytest.raises(UserError, match="responded, but is not Kubeflow Pipelines"):
        server.ask(server.api.runs.run_service_list_runs)


SECRETS = ("KF_PIPELINES_TOKEN", "KF_PIPELINES_COOKIES", "KF_PIPELINES_SA_TOKEN_PATH")


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_stripped_and_invalid_ones_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def give(value: str) -> None:
        (tmp_path / "token").write_bytes(value.encode())
        monkeypatch.setenv(name, str(tmp_path / "token") if name.endswith("PATH") else value)

    with KfpServer(token=None if "COOKIES" in name else "s3cret") as kfp:
        give("s3cret\r\n")
        reached(kfp.url)
        for bad in ("s3c\r\nret", "s3c\x00ret" if name.endswith("PATH") else "s3c\x7fret", "s3crët…"):
            give(bad)
            with pytest.raises(
                UserError, match=f"^{name}.* holds characters that are not allowed in an HTTP header"
            ) as caught:
                reached(kfp.url)
            assert "s3c" not in str(caught.value)


def test_changed_token_file_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(file))
    with KfpServer(token="first") as kfp:
        server = reached(kfp.url)
        kfp.token = "second"
        file.write_text("second\n")
        server.ask(server.api.runs.run_service_list_runs)
        file.unlink()
        with pytest.raises(UserError, match="cannot be read: No such file"):
            server.ask(server.api.runs.run_service_list_runs)


def test_missing_or_empty_token_file_is_an_error(
    kfp: KfpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match="SA_TOKEN_PATH: .*none holds the token and cannot be read: No such"):
        reached(kfp.url)
    (tmp_path / "none").write_text("\n")
    with pytest.raises(UserError, match="is empty, and should hold a token"):
        reached(kfp.url)
    assert kfp.requests == []


def test_host_addresses_are_completed_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert access("kubeflow.example/pipeline/").host == "https://kubeflow.example/pipeline"
    assert access("http://localhost:8888").pages == "http://localhost:8888"
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "ui.example")
    assert access("kubeflow.example").pages == "https://ui.example"
    for bad in ("ftp://x", "https://", "/pipeline", "a b", "x:port", "https://x:99999999", "https://x/pipeline/#/runs"):
        with pytest.raises(UserError, match="--host .* is not an address; give it as https://"):
            access(bad)
    with pytest.raises(UserError, match="--host holds user:password@") as raised:
        access("https://ann:secret@kubeflow.example")
    assert "secret" not in str(raised.value)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own authority for 127.0.0.1, with its key in the same file."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=ours", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path / "ca.pem"


def test_server_certificates_are_verified(
    certificate: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with KfpServer(tls=context) as kfp:
        bare = kfp.url.removeprefix("https://")
        with pytest.raises(UserError, match=r"certificate of https://127.* is not trusted: .*KF_PIPELINES_SSL_CA_CERT"):
            reached(bare)
        monkeypatch.setenv("KF_PIPELINES_SSL_CA_CERT", str(certificate))
        assert reached(bare).link("runs").startswith(f"{kfp.url}/#/runs")
        with pytest.raises(UserError, match="is not trusted: .*(Hostname mismatch|localhost)"):
            reached(bare.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("KF_PIPELINES_SSL_CA_CERT", str(recipe))
        with pytest.raises(UserError, match=r"KF_PIPELINES_SSL_CA_CERT: .*small.yaml holds no certificates"):
            reached(bare)
        monkeypatch.setenv("KF_PIPELINES_SSL_CA_CERT", str(recipe.with_name("none")))
        with pytest.raises(UserError, match=r"KF_PIPELINES_SSL_CA_CERT: .*none cannot be read: No such file"):
            reached(bare)
    assert caplog.records == []


def test_server_without_tls_is_reported_with_a_remedy(kfp: KfpServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match=re.escape("for plain HTTP use --host http://…")):
        reached(kfp.url.removeprefix("http://"))
    assert caplog.records == []
