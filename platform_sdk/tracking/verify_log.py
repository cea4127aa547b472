"""Comparison of runs with the project's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Finding, Kind, Verification
from platform_sdk.tracking.log.approvers import Approvers, decisions, shown
from platform_sdk.tracking.log.chain import APPROVED, RUN_ENDED, RUN_REMOVED, Chain, LogEntry
from platform_sdk.tracking.log.checkpoint import Checkpoint, fault_of
from platform_sdk.tracking.log.client import AnyLog, open_log
from platform_sdk.tracking.removal import explains, sealed_files
from platform_sdk.tracking.removed import is_in, removed_paths
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

    def explain_missing(self, files: FileCheck) -> None:
        """Drop the findings of missing files whose removal the log records.

        If the log cannot be read, files whose removal the run directory records are not checkable.
        """
        missing = [finding.thing for finding in files.findings if finding.kind == "missing"]
        if not missing or not files.chain.entries:
            return
        sealed, start = sealed_files(files.chain.entries), files.chain.entries[0].hash
        recorded = [entry for entry in self.chain.entries if entry.start == start] if self.is_sound else []
        explained = {name for name in missing if any(explains(entry, sealed, name) for entry in recorded)}
        files.findings = [finding for finding in files.findings if finding.thing not in explained]
        if self._unreachable:
            claimed = {name for name in missing if name in sealed and is_in(name, removed_paths(files.run_dir))}
            files.findings = [
                finding.model_copy(update={"kind": "not checkable", "found": "a removal that only the log can confirm"})
                if finding.thing in claimed
                else finding
                for finding in files.findings
            ]

    def check_run(self, files: FileCheck, stored: list[Finding]) -> tuple[list[Finding], tuple[str, ...]]:
        """Compare a run's manifest with the ends that the log records.

        Args:
            files: The compared run directory. An altered manifest is not compared again.
            stored: The findings of the comparison with MLflow.

        Returns:
            The findings, and the names of the edits that the comparison detects.
        """
        findings = (*files.findings, *stored)
        if files.chain.faults or any(finding.thing == manifest.FILE_NAME for finding in findings):
            return [], ()
        return self.check_chain(files.chain.entries, {self.log.named(files.run_dir)}, finished=files.finished)

    def check_chain(
        self, entries: Sequence[manifest.Entry], names: AbstractSet[str], *, finished: bool
    ) -> tuple[list[Finding], tuple[str, ...]]:
        """Compare a valid chain of a manifest with the ends that the log records; see ``check_run``.

        Args:
            entries: The manifest.
            names: The run directory as entries of the log name it.
            finished: The run has finished.
        """
        if self._is_empty or not self.is_sound or not entries:
            return [], ()
        heads = [entry.head for entry in entries]
        start, last = entries[0].hash, heads[-1]
        recorded = self.ends(start) or self._named(names)
        lacking = [entry for entry in recorded if entry.head not in heads]
        if lacking:
            expected = f"{lacking[-1].head}, the log's entry {lacking[-1].sequence}"
            return [Finding(thing=manifest.FILE_NAME, kind="altered", expected=expected, found=last)], self.rows
        if not finished:
            return [], self.rows if recorded else ()
        if not recorded or recorded[-1].head != last:
            found = f"no entry of {last}; hopforge log send adds it"
            return [Finding(thing="log", kind="not checkable", found=found)], ()
        return [], self.rows

    def check_approvals(
        self, run: str, entries: Sequence[manifest.Entry], versions: Sequence[StoredVersion]
    ) -> Iterator[Finding]:
        """Compare the aliases and tags of approvals with the log, for a run's versions in MLflow.

        Args:
            run: The run's name in MLflow.
            entries: The run's manifest.
            versions: The run's versions in MLflow.
        """
        if not self.is_sound:
            return
        heads = {entry.head for entry in entries}
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
            newest = [entry for entry in of_model if own and entry.team == own[0].team][-1:]
            if approved and own == newest and ALIAS not in version.aliases:
                yield Finding(thing=f"{label}: alias {ALIAS}", kind="missing", expected=version.version)
            yield from _tag(f"{label}/{version.version}", own, version.tags.get(TAG, ""))
            if approved and self._approvers is not None and (fault := self._approvers.fault(own[0])):
                claimed: Kind = "altered" if own[0].signature else "not checkable"
                thing = f"approval of {version.name}/{version.version}"
                yield Finding(thing=thing, kind=claimed, expected=f"a signature of {own[0].who}", found=fault)
        if versions and versions[0].run_approval is not None:
            yield from _tag(f"MLflow run {run}", latest, versions[0].run_approval)

    def absent(self, runs: list[Path]) -> list[Verification]:
        """Return a result for each run that the log records in the folder and that is not among ``runs``.

        The run is missing unless the log records its removal.
        """
        if not self.is_sound:
            return []
        first = {self.log.named(run.resolve()): _first(run) for run in runs}
        starts = set(first.values())
        names = {name for name, start in first.items() if not self.ends(start)}  # compared with the ends of this name
        last: dict[str, LogEntry] = {}
        for entry in self._of_team():
            inside = self.log.located(entry.run).parent == self._folder
            known = entry.start in starts or entry.run in names
            if inside and not known and entry.event in (RUN_ENDED, RUN_REMOVED):
                last[entry.run] = entry
        return [self._absent(Path(name).name, entry) for name, entry in last.items()]

    def _absent(self, name: str, last: LogEntry) -> Verification:
        removed = next((one for one in self._removals() if one.start == last.start), None)
        lacking = Finding(thing="run directory", kind="missing", expected=last.head)
        return Verification(
            run=name,
            head=last.head if removed else "",
            finished=True,
            findings=() if removed else (lacking,),
            detects=self.rows,
            removed=f"{removed.who}, entry {removed.position}: {removed.note}" if removed else "",
        )

    def names_of(self, run_dir: Path) -> set[str]:
        """Return the names in the log of a run directory that may have been moved into the folder of this log."""
        return {self.log.named(run_dir), self.log.named(self._folder / run_dir.name)}

    def _named(self, names: AbstractSet[str]) -> list[LogEntry]:
        removed = {entry.start for entry in self._removals()}
        ends = (entry for entry in self._of_team() if entry.event == RUN_ENDED and entry.run in names)
        return [entry for entry in ends if entry.start not in removed]

    def _of_team(self) -> Iterator[LogEntry]:
        """Return the entries whose run directories are paths on this volume."""
        return (entry for entry in self.chain.entries if entry.team == self.log.team)

    def _removals(self) -> list[LogEntry]:
        return [entry for entry in self.chain.entries if entry.event == RUN_REMOVED]


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
