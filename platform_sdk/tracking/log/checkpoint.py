"""Checkpoints: size and head of the log at a time, signed by the log service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.tracking.log.chain import LogEntry
from platform_sdk.tracking.log.keys import SigningKey, is_signed, public_key
from platform_sdk.tracking.manifest import GENESIS

FETCH = "fetch one with hopforge log checkpoint -o FILE"


class Checkpoint(Struct):
    """State of a log. ``head`` is the hash of entry ``size - 1``; 64 zeros for an empty log.

    ``signature`` (base64) covers the canonical JSON of ``head``, ``size`` and ``time``; ``key`` is the public key
    (PEM). Both are empty for a local log.
    """

    size: int = Field(ge=0)
    head: str
    time: str
    key: str = ""
    signature: str = ""

    def content(self) -> dict[str, Any]:
        """Return the signed fields."""
        return self.model_dump(include={"size", "head", "time"})


def checkpoint_of(entries: Sequence[LogEntry], key: SigningKey | None = None) -> Checkpoint:
    """Return the checkpoint of a log, signed if there is a key."""
    size = len(entries)  # the log may grow meanwhile
    head = entries[size - 1].hash if size else GENESIS
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    unsigned = Checkpoint(size=size, head=head, time=time)
    if key is None:
        return unsigned
    return unsigned.model_copy(update={"key": key.public, "signature": key.sign(unsigned.content())})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file.

    Raises:
        UserError: the file is no checkpoint, or its signature does not match its content.
    """
    try:
        checkpoint = Checkpoint.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {FETCH}") from error
    except ValidationError as error:
        raise UserError(f"{path}: is no checkpoint of a log; {FETCH}") from error
    if checkpoint.signature or checkpoint.key:
        key = public_key(checkpoint.key.encode(), str(path))
        if not is_signed(checkpoint.content(), checkpoint.signature, key):
            raise UserError(f"{path}: its signature does not match its content; {FETCH}")
    return checkpoint


def fault_of(checkpoint: Checkpoint, entries: Sequence[LogEntry]) -> str:
    """Return why the log does not begin with a checkpoint; empty if it does."""
    if checkpoint.size > len(entries):
        return f"{len(entries)} entries"
    found = entries[checkpoint.size - 1].hash if checkpoint.size else GENESIS
    return "" if found == checkpoint.head else f"entry {checkpoint.size - 1} with the hash {found}"
