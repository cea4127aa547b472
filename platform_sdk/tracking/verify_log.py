"""Comparison of runs with the project's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Finding, Kind, Verification
from platform_sdk.tracking.log.approvers import Approvers, decisions, shown
from platform_sdk.tracking.log.chain import APPROVED, RUN_ENDED, Chain, LogEntry
from platform_sdk.tracking.log.checkpoint import Checkpoint, fault_of
from platform_sdk.tracking.log.client import AnyLog, open_log
from platform_sdk.tracking.replay import StoredVersion
from platform_sdk.tracking.store import WEIGHTS
from platform_sdk.tracking.verify_files import FileCheck

ALIAS = TAG = "approved"
"""Alias and tag of an approved version in MLflow."""


class LogCheck:
    """The log of a folder of runs, read once for all of them.

    Args:
        folder: The folder of the run directories.
        checkpoint: A checkpoint kept elsewhere, with which the log must begin.
        approvers: Keys with which signatures of approvals are compared.
    """

    def __init__(self, folder: Path, checkpoint: Checkpoint | None = None, approvers: Approvers | None = None) -> None:
        self.log: AnyLog = open_log(folder)
        self._folder, self._checkpoint, self._approvers = folder.resolve(), checkpoint, approvers
        self._unreachable = ""
        self.chain = Chain()
        try:
            self.chain = self.log.read()
        except (UserError, OSError) as error:
            self._unreachable = str(error)
        self._is_empty = not (self.chain.entries or self.chain.faults or self._unreachable)
        self._fault = "" if checkpoint is None or self._unreachable else fault_of(checkpoint, self.chain.entries)

    @property
    def is_sound(self) -> bool:
        """True if the log was read, its chain is valid, and it begins with the checkpoint."""
        return not (self._unreachable or self.chain.faults or self._fault)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the edits that a look-up in this log detects."""
        return ("rewritten", "log") if self._checkpoint is not None else ("rewritten",)

    def verification(self) -> Verification | None:
        """Return the result for the log itself; None if it is sound and no checkpoint was compared."""
        expected = "" if self._checkpoint is None else f"{self._checkpoint.size} entries, {self._checkpoint.head}"
        if self._unreachable:
            found = [Finding(thing="log", kind="not checkable", found=self._unreachable)]
        elif self.chain.faults:
            found = [Finding(thing="log", kind="altered", expected="a valid chain", found=self.chain.faults[0])]
        elif self._fault:
            found = [Finding(thing="log", kind="altered", expected=expected, found=self._fault)]
        elif self._checkpoint is None:
            return None
        else:
            found = []
        last = self.chain.entries[-1:]
        return Verification(
            run=self.log.name,
            head=last[0].position if last and self.is_sound else "",
            finished=True,
            findings=tuple(found),
            detects=(),
        )

    def ends(self, start: str) -> list[LogEntry]:
        """Return the recorded ends of the run with this first entry."""
        return [entry for entry in self.chain.entries if entry.event == RUN_ENDED and entry.start == start]

    def check_run(self, files: FileCheck, stored: list[Finding]) -> tuple[list[Finding], tuple[str, ...]]:
        """Compare a run's manifest with the ends that the log records.

        Args:
            files: The compared run directory. An altered manifest is not compared again.
            stored: The findings of the comparison with MLflow.

        Returns:
            The findings, and the names of the edits that the comparison detects.
        """
        findings = (*files.findings, *stored)
        broken = files.chain.faults or any(finding.thing == manifest.FILE_NAME for finding in findings)
        if self._is_empty or not self.is_sound or broken or not files.chain.entries:
            return [], ()
        heads = [entry.head for entry in files.chain.entries]
        start, last = files.chain.entries[0].hash, heads[-1]
        recorded = self.ends(start) or self._named(files.run_dir)
        lacking = [entry for entry in recorded if entry.head not in heads]
        if lacking:
            expected = f"{lacking[-1].head}, the log's entry {lacking[-1].sequence}"
            return [Finding(thing=manifest.FILE_NAME, kind="altered", expected=expected, found=last)], self.rows
        if not files.finished:
            return [], self.rows if recorded else ()
        if not recorded or recorded[-1].head != last:
            found = f"no entry of {last}; hopforge log send adds it"
            return [Finding(thing="log", kind="not checkable", found=found)], ()
        return [], self.rows

    def check_approvals(self, files: FileCheck, versions: Sequence[StoredVersion]) -> Iterator[Finding]:
        """Compare the aliases and tags of approvals with the log, for a run's versions in MLflow."""
        if not self.is_sound:
            return
        heads = {entry.head for entry in files.chain.entries}
        latest: list[LogEntry] = []
        for version in versions:
            label = f"MLflow model {version.name}"
            of_model = decisions(self.chain.entries, version.name)
            own = [
                entry for entry in of_model
                if entry.version == version.version and entry.head in heads
                and entry.weights == version.tags.get(WEIGHTS)
            ][-1:]  # fmt: skip
            latest = sorted([*latest, *own], key=lambda entry: entry.sequence)[-1:]
            approved = bool(own) and own[0].event == APPROVED
            if ALIAS in version.aliases and not approved:
                yield Finding(thing=f"{label}: alias {ALIAS}", kind="added", found=version.version)
            elif approved and own[0] == of_model[-1] and ALIAS not in version.aliases:
                yield Finding(thing=f"{label}: alias {ALIAS}", kind="missing", expected=version.version)
            yield from _tag(f"{label}/{version.version}", own, version.tags.get(TAG, ""))
            if approved and self._approvers is not None and (fault := self._approvers.fault(own[0])):
                claimed: Kind = "altered" if own[0].signature else "not checkable"
                thing = f"approval of {version.name}/{version.version}"
                yield Finding(thing=thing, kind=claimed, expected=f"a signature of {own[0].who}", found=fault)
        if versions and versions[0].run_approval is not None:
            yield from _tag(f"MLflow run {files.run_dir.name}", latest, versions[0].run_approval)

    def missing(self, runs: list[Path]) -> list[Verification]:
        """Return a result for each run that the log records in the folder and that is not among ``runs``."""
        if not self.is_sound:
            return []
        starts = {_first(run) for run in runs}
        names = {self.log.named(run.resolve()) for run in runs}
        lacking: dict[str, LogEntry] = {}
        for entry in self.chain.entries:
            inside = self._folder / entry.run == self._folder / Path(entry.run).name
            if entry.event == RUN_ENDED and inside and entry.start not in starts and entry.run not in names:
                lacking[entry.run] = entry
        return [
            Verification(
                run=Path(name).name,
                head="",
                finished=True,
                findings=(Finding(thing="run directory", kind="missing", expected=entry.head),),
                detects=self.rows,
            )
            for name, entry in lacking.items()
        ]

    def _named(self, run_dir: Path) -> list[LogEntry]:
        name = self.log.named(run_dir)
        return [entry for entry in self.chain.entries if entry.event == RUN_ENDED and entry.run == name]


def _tag(label: str, decision: Sequence[LogEntry], found: str) -> Iterator[Finding]:
    """Compare the tag ``approved`` of a version or a run with the last decision, if there is one."""
    expected = shown(decision[0]) if decision else ""
    if expected != found:
        kind: Kind = "added" if not expected else "altered" if found else "missing"
        yield Finding(thing=f"{label}: tag {TAG}", kind=kind, expected=expected, found=found)


def _first(run_dir: Path) -> str:
    try:
        return next((entry.hash for entry in manifest.read(run_dir)), "")
    except UserError:
        return ""
