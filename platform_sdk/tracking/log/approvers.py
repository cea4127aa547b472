"""Approvals in the log, and their signatures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.log.chain import APPROVED, WITHDRAWN, LogEntry
from platform_sdk.tracking.log.keys import is_signed, public_key


def decisions(entries: Sequence[LogEntry], model: str) -> list[LogEntry]:
    """Return the approvals and withdrawals of a registered model."""
    return [entry for entry in entries if entry.event in (APPROVED, WITHDRAWN) and entry.model == model]


def decisions_on(entries: Sequence[LogEntry], weights: str) -> list[LogEntry]:
    """Return the approvals and withdrawals of all versions with these weights."""
    return [entry for entry in entries if entry.event in (APPROVED, WITHDRAWN) and entry.weights == weights]


def approval_of(entries: Sequence[LogEntry], model: str, version: str) -> LogEntry | None:
    """Return the approval of a version that holds; None if there is none, or it was withdrawn."""
    last = [entry for entry in decisions(entries, model) if entry.version == version][-1:]
    return last[0] if last and last[0].event == APPROVED else None


def shown(entry: LogEntry) -> str:
    """Return a decision as a tag in MLflow. Without a signature the name is a claim."""
    kind = f"signed with key {entry.key[:16]}…" if entry.signature else "a claim"
    return f"{entry.event} by {entry.who} ({kind}), entry {entry.position}: {entry.note}"


class Approvers:
    """Public keys of approvers: one file ``NAME.pem`` for each name.

    Raises:
        UserError: the directory cannot be read, or holds a file that is no public EC key.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise UserError(f"{directory}: no such directory; --approvers needs one file NAME.pem per approver")
        self._directory = directory
        self._keys = {path.stem: public_key(path.read_bytes(), str(path)) for path in sorted(directory.glob("*.pem"))}

    def fault(self, entry: LogEntry) -> str:
        """Return why a decision does not carry its approver's signature; empty if it does."""
        if not entry.signature:
            return f"the name {entry.who} is a claim without a signature"
        if entry.who not in self._keys:
            return f"no key {entry.who}.pem in {self._directory}"
        content = entry.content()
        del content["signature"]
        return "" if is_signed(content, entry.signature, self._keys[entry.who]) else f"no signature of {entry.who}"
