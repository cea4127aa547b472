"""Copies of checkpoints in an object store, whose retention keeps the service's operator from changing them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.log.chain import Log
from platform_sdk.tracking.log.checkpoint import Checkpoint, checkpoint_of
from platform_sdk.tracking.log.keys import SigningKey

RETRY_SECONDS = 30.0

logger = logging.getLogger(__name__)


class Bucket:
    """Folder of checkpoints in an S3 bucket. Credentials, region and ``AWS_ENDPOINT_URL`` are boto3's variables.

    Args:
        address: ``s3://BUCKET`` or ``s3://BUCKET/PREFIX``.

    Raises:
        UserError: boto3 is missing, the address is no S3 URL, or the bucket cannot be reached.
    """

    def __init__(self, address: str) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise UserError("--bucket needs boto3; run: pip install hopforge[cluster]") from error
        scheme, _, rest = address.partition("://")
        self._name, _, prefix = rest.partition("/")
        if scheme != "s3" or not self._name:
            raise UserError(f"--bucket {address}: is no bucket; write s3://BUCKET or s3://BUCKET/PREFIX")
        self.address, self._prefix = address, f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        settings = Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 2})
        with _bucket_errors(address):
            self._client: Any = boto3.client("s3", config=settings)
            self._client.head_bucket(Bucket=self._name)
            self._check_retention()

    def put(self, checkpoint: Checkpoint) -> str:
        """Store a checkpoint under its size and head; return the object's name.

        Raises:
            UserError: the store refuses it or cannot be reached.
        """
        name = f"{self._prefix}{checkpoint.size:09d}-{checkpoint.head[:16]}.json"
        content = checkpoint.model_dump_json(indent=1).encode() + b"\n"
        with _bucket_errors(self.address):
            # Stores refuse an upload without a checksum into a bucket with retention.
            self._client.put_object(Bucket=self._name, Key=name, Body=content, ChecksumAlgorithm="SHA256")
        return name

    def _check_retention(self) -> None:
        """Warn if objects of the bucket can be replaced, or if the store does not show this."""
        from botocore.exceptions import ClientError

        try:
            found = self._client.get_object_lock_configuration(Bucket=self._name)["ObjectLockConfiguration"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ObjectLockConfigurationNotFoundError":
                logger.warning(
                    "%s: its retention cannot be read (%s); without one, whoever can write it can replace checkpoints",
                    self.address, error,
                )  # fmt: skip
                return
            found = {}
        if not found.get("Rule", {}).get("DefaultRetention"):
            logger.warning(
                "%s: has no default retention, so whoever can write it can replace checkpoints", self.address
            )


class CheckpointCopies:
    """Context with a thread that puts a checkpoint into a bucket after new entries.

    Entries that arrive during an upload share the next checkpoint. A store that fails delays no entry: the thread tries
    again after ``RETRY_SECONDS``, or at once after the next entry.
    """

    def __init__(self, log: Log, key: SigningKey, bucket: Bucket) -> None:
        self._log, self._key, self._bucket = log, key, bucket
        self._grown, self._stopped = threading.Event(), False
        self._grown.set()  # a restart covers entries of the time before
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def notify(self) -> None:
        """Report a new entry."""
        self._grown.set()

    def __enter__(self) -> CheckpointCopies:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Put the last checkpoint and end the thread."""
        self._stopped = True
        self._grown.set()
        self._thread.join()

    def _run(self) -> None:
        failed, stored = False, -1
        while True:
            self._grown.wait(RETRY_SECONDS if failed else None)
            self._grown.clear()
            stopping = self._stopped
            checkpoint = checkpoint_of(self._log.chain.entries, self._key)
            try:
                if checkpoint.size != stored:
                    self._bucket.put(checkpoint)
                failed, stored = False, checkpoint.size
            except UserError as error:
                failed = True
                logger.error("a checkpoint was not stored: %s", error)
            if stopping:
                return


@contextmanager
def _bucket_errors(address: str) -> Iterator[None]:
    """Raise a ``UserError`` for an error of the object store."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, ValueError) as error:  # ValueError: AWS_ENDPOINT_URL is no URL
        raise UserError(f"{address}: {error}; check the bucket's name and the AWS variables") from error
