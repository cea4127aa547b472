"""Checkpoints in an object store with retention: moto's S3 server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from platform_sdk.config.errors import UserError
from platform_sdk.log_service.bucket import Bucket
from platform_sdk.tracking.log.chain import Log
from platform_sdk.tracking.log.checkpoint import fault_of, read_checkpoint
from tests.authority import openssl
from tests.log_service.service import Service, statement
from tests.process_watch import wait_for

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


class Store:
    """Server with one bucket that retains its objects for a day."""

    def __init__(self) -> None:
        self._port = 0
        self.start()
        self.environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}"}

    def start(self) -> None:
        self._server = make_server(
            "127.0.0.1", self._port, DomainDispatcherApplication(create_backend_app), threaded=True
        )
        self._port = self._server.port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End the server; moto keeps the objects in this process."""
        self._server.shutdown()
        self._server.server_close()

    def client(self) -> Any:
        return boto3.client(
            "s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"], region_name="us-east-1",
            aws_access_key_id="test", aws_secret_access_key="test",
        )  # fmt: skip

    def make(self, name: str, *, retention: bool = True) -> None:
        client = self.client()
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=retention)
        if retention:
            rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
            client.put_object_lock_configuration(
                Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
            )

    def names(self, bucket: str) -> list[str]:
        return [found["Key"] for found in self.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    running = Store()
    yield running
    running.stop()


def test_checkpoints_of_new_entries_are_retained_in_the_bucket_and_prove_the_log(store: Store, tmp_path: Path) -> None:
    store.make("checkpoints")
    service = Service(tmp_path, "--bucket", "s3://checkpoints/project", **store.environment)
    try:
        service.post(statement(1))
        wait_for(lambda: any(name.startswith("project/000000001-") for name in store.names("checkpoints")))
        service.post(statement(2))
    finally:
        service.end()
    client, entries = store.client(), Log(service.log).read().entries
    [name] = [name for name in store.names("checkpoints") if name.startswith("project/000000002-")]
    copy = tmp_path / "checkpoint.json"
    client.download_file("checkpoints", name, str(copy))
    checkpoint = read_checkpoint(copy)
    assert fault_of(checkpoint, entries) == ""
    assert fault_of(checkpoint, entries[:1]) != ""
    openssl("ec", "-in", service.key, "-pubout", "-out", tmp_path / "public.pem")
    assert checkpoint.key == (tmp_path / "public.pem").read_text()
    [version] = client.list_object_versions(Bucket="checkpoints", Prefix=name)["Versions"]
    with pytest.raises(ClientError, match="AccessDenied"):
        client.delete_object(Bucket="checkpoints", Key=name, VersionId=version["VersionId"])


def test_unreachable_store_refuses_no_entry_and_gets_the_next_checkpoint(store: Store, tmp_path: Path) -> None:
    store.make("late")
    service = Service(tmp_path, "--bucket", "s3://late", **store.environment)
    try:
        wait_for(lambda: store.names("late"))  # the checkpoint of the empty log
        store.stop()
        assert service.post(statement(1)).status_code == 200
        wait_for(lambda: "a checkpoint was not stored: s3://late" in (tmp_path / "output").read_text())
        store.start()
        assert service.post(statement(2)).status_code == 200
        wait_for(lambda: any(name.startswith("000000002-") for name in store.names("late")))
    finally:
        service.kill()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://checkpoints", "is no bucket; write s3://BUCKET"),
        ("s3://", "is no bucket; write s3://BUCKET"),
        ("s3://unknown", "s3://unknown: .*404.*; check the bucket's name"),
    ],
)
def test_bucket_that_cannot_be_used_is_refused_at_the_start(
    store: Store, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        Bucket(address)


def test_bucket_without_retention_is_used_with_a_warning(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.make("plain", retention=False)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    Bucket("s3://plain/a/")
    assert "s3://plain/a/: has no default retention" in caplog.text


def test_bucket_whose_retention_cannot_be_read_is_not_reported_as_without_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.make("hidden")
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    make = BaseClient._make_api_call

    def denied(self: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        if operation == "GetObjectLockConfiguration":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, operation)
        return make(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", denied)
    Bucket("s3://hidden")
    assert "s3://hidden: its retention cannot be read (" in caplog.text
    assert "has no default retention" not in caplog.text
