"""Findings of ``hopforge verify``: things that differ from a run's records, or could not be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from platform_sdk.config.struct import Struct

Kind = Literal["altered", "added", "missing", "not checkable"]
WHOLE, DIFFERENT, UNCHECKED = 0, 1, 3
"""Exit statuses: nothing differs; something differs; something could not be compared. 2 is a usage error."""
OUTCOMES = {WHOLE: "whole", DIFFERENT: "differs from its records", UNCHECKED: "not wholly checkable"}

ROWS = {
    "files": "an edit of a file in the run directory",
    "mlflow": "an edit in MLflow",
    "rewritten": "a run rewritten as a whole by someone who can write its directory and MLflow",
    "log": "a rewritten log",
    "service": "a log service and its key in the wrong hands",
}
"""Edits that a verification can detect, by name, in the order of the table in docs/manifest.md."""


class Finding(Struct):
    """One thing that differs: a file by its name in the run directory, or a field in MLflow."""

    thing: str
    kind: Kind
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        values = [f"{name} {value}" for name, value in (("expected", self.expected), ("found", self.found)) if value]
        details = f" ({', '.join(values)})" if values else ""
        return f"{self.thing}: {self.kind}{details}"


class Verification(Struct):
    """Result for one run. ``head`` is ``number:hash`` of the manifest's last entry; empty if there is none.

    ``detects`` names the rows of ``ROWS`` that hold: edits of these kinds would have been found.
    Empty for the log itself. ``run_id`` is the run's id in MLflow; empty if MLflow was not compared. ``removed`` is who
    removed the run on record, and why; empty for a run that is there.
    """

    run: str
    head: str
    finished: bool
    findings: tuple[Finding, ...]
    detects: tuple[str, ...]
    run_id: str = ""
    removed: str = ""

    @property
    def outcome(self) -> str:
        """The outcome in a word."""
        return OUTCOMES[exit_status([self])]


def exit_status(verifications: Iterable[Verification]) -> int:
    """Return the exit status of ``hopforge verify``."""
    kinds = {finding.kind for verification in verifications for finding in verification.findings}
    if kinds - {"not checkable"}:
        return DIFFERENT
    return UNCHECKED if kinds else WHOLE
