"""Comparison of a run directory with its manifest and journals, which reports every difference.

Readers of a run (``opened``) stop at the first fault; this module continues: an entry whose own hash is right is used
even if the chain around it is broken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from pydantic import ValidationError

from platform_sdk.errors import UserError
from platform_sdk.files import parse_object, read_regular, read_text, sha256
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.findings import Finding
from platform_sdk.tracking.journal import FOLDER, RUN, STATE_EVENTS, Event, event_line, journals, read, relocated
from platform_sdk.tracking.opened import ENVIRONMENT, ENVIRONMENT_FILE, RECIPE, STARTED, recipe_digest
from platform_sdk.tracking.seals import ENDED

WORKING = (
    RunDir.done, RunDir.recipe, RunDir.plan, RunDir.cluster, RunDir.manifest, f"{RunDir.outputs}/*.json",
    f"{RunDir.logs}/*", f"{RunDir.index}/*", f"{RunDir.graph}/extract-*.json",
    f"*/{PhaseDir.begun}", "*-step.json", "*-server.json", "*.seconds.json", "*/drafts.jsonl", "*/malformed.jsonl",
    f"*/{PhaseDir.server_log}", "*/extractions/*", f"*/{PhaseDir.processes}/*", "*/checkpoint*",
    RunDir.environment, RunDir.run_journal, RunDir.follower_log,
    *(f"{FOLDER}/{name}" for name in ("digests.json", "verified.json", "lock", "mlflow.json", "removed.jsonl")),
)  # fmt: skip
"""Patterns of the files that a run leaves without a seal: its records, logs, caches and the state of its steps."""

FAILURE_FIELDS = ("error", "step", "code", "oom_kills")
"""Fields of the end of a failed run in its journal."""


@dataclass
class Chain:
    """Entries of a manifest by number. ``faults`` are the lines that break the chain; empty for a valid one."""

    entries: list[manifest.Entry] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_chain(path: Path) -> Chain:
    """Return the entries of a manifest whose own hash is right, and the faults of the chain."""
    chain = Chain()
    content = read_regular(path)
    if content and not content.endswith(b"\n"):
        chain.faults.append("the last line is cut off")
    previous = manifest.GENESIS
    for number, line in enumerate(content.split(b"\n")[:-1]):
        try:
            entry = manifest.Entry.model_validate_json(line)
        except ValidationError:
            chain.faults.append(f"line {number + 1} is no entry")
            continue
        if not manifest.is_intact(entry, line):
            chain.faults.append(f"the hash of line {number + 1} does not match")
            continue
        if (entry.sequence, entry.previous) != (number, previous):
            chain.faults.append(f"line {number + 1} does not follow line {number}")
        chain.entries.append(entry)
        previous = entry.hash
    chain.entries.sort(key=lambda entry: entry.sequence)
    return chain


class FileCheck:
    """Comparison of one run directory. ``findings`` is filled by the constructor.

    A run under way is compared as far as its steps have finished.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.findings: list[Finding] = []
        self.events: dict[str, list[Event]] = {}
        self.chain = Chain()
        path = run_dir / manifest.FILE_NAME
        if path.is_file():
            self.chain = read_chain(path)
        self._read_journals()
        states = [event for event in self.events.get(RUN, ()) if event["event"] in STATE_EVENTS]
        self.finished = self._is_finished(states)
        for check in (self._manifest, self._recipe, self._environment, self._sealed):
            self.findings += check()
        known = {finding.thing for finding in self.findings}
        self.findings += [finding for finding in self._artifacts() if finding.thing not in known]
        records = (manifest.FILE_NAME, f"{FOLDER}/")
        if self.finished and not any(finding.thing.startswith(records) for finding in self.findings):
            self.findings += self._added()  # without its records, the run does not tell its own files from others

    def _is_finished(self, states: list[Event]) -> bool:
        """Return True if the manifest or the journal records the end, and no later start."""
        if states and states[-1].get("status") == "FINISHED":
            return True
        last = self.chain.entries[-1] if self.chain.entries else None
        if last is None or last.event != f"{ENDED}FINISHED":
            return False
        return not (states and manifest.hash_of_head(states[-1].get("manifest_head")) == last.hash)

    @property
    def head(self) -> str:
        """``number:hash`` of the last entry; empty if the chain is broken."""
        last = None if self.chain.faults or not self.chain.entries else self.chain.entries[-1]
        return "" if last is None else f"{last.sequence}:{last.hash}"

    def closed(self, step: str) -> bool:
        """Return True if the step has finished and has not started again since."""
        states = [event for event in self.events.get(f"steps/{step}", ()) if event["event"] in STATE_EVENTS]
        return self.finished or not states or states[-1].get("status") == "FINISHED"

    def _read_journals(self) -> None:
        for key, path in journals(self.run_dir).items():
            name = str(path.relative_to(self.run_dir))
            try:
                self.events[key] = read(path)[0]
            except UserError:
                self.findings.append(Finding(thing=name, kind="altered", found="a line that is no event"))
            if path.is_file() and read_regular(path)[-1:] not in (b"", b"\n"):
                self._cut_short(key, name)

    def _cut_short(self, key: str, name: str) -> None:
        states = [event for event in self.events.get(key, ()) if event["event"] in STATE_EVENTS]
        ended = any(entry.event.startswith(ENDED) for entry in self.chain.entries[-1:])
        if (states and states[-1]["event"] == "ended") or ended:  # otherwise its writer is still at it, or was killed
            self.findings.append(Finding(thing=name, kind="altered", found="an incomplete last line"))

    def _manifest(self) -> Iterator[Finding]:
        path = self.run_dir / manifest.FILE_NAME
        if not path.is_file() or not (self.chain.entries or self.chain.faults):
            yield Finding(thing=path.name, kind="missing")
            return
        faults = list(self.chain.faults)
        heads = {head for entry in self.chain.entries for head in (entry.hash, entry.head)}
        named = [
            str(event["manifest_head"]) for events in self.events.values() for event in events
            if event.get("manifest_head") is not None
        ]  # fmt: skip
        lacking = [head for head in dict.fromkeys(named) if head not in heads]
        if lacking and not faults:
            faults.append(f"entry {lacking[0][:20]}… is missing, but a journal refers to it")
        if faults:
            more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
            yield Finding(thing=path.name, kind="altered", expected="a valid chain", found=f"{faults[0]}{more}")
            return
        journals_found = [*self._ends(set(named)), *self._journals()]
        yield from {finding.thing: finding for finding in reversed(journals_found)}.values()

    def _ends(self, named: set[str]) -> Iterator[Finding]:
        thing = f"{FOLDER}/run.jsonl"
        if RUN not in self.events or not self.events[RUN]:
            if not self._is_named(thing):
                missing = not (self.run_dir / thing).is_file()
                yield Finding(
                    thing=thing, kind="missing" if missing else "altered", found="" if missing else "no event"
                )
            return
        hashes = {manifest.hash_of_head(head) for head in named}
        ends = [entry for entry in self.chain.entries if entry.event.startswith(ENDED)]
        starts = [entry for entry in self.chain.entries if entry.event == STARTED][:1]
        if any(entry.hash not in hashes for entry in (*starts, *ends)):
            yield Finding(thing=thing, kind="altered", found="a start or an end of the run is not recorded")

    def _journals(self) -> Iterator[Finding]:
        """Compare the journals with the entries that seal them; the last line follows from its entry."""
        for step, entry in seals.last_entries(self.chain.entries).items():
            name = f"{FOLDER}/steps/{step}.jsonl"
            if f"steps/{step}" in self.events:
                yield from self._journal(name, entry, "FINISHED" if self.closed(step) else None)
            elif not self._is_named(name):
                yield Finding(thing=name, kind="missing")
        last = self.chain.entries[-1]
        if last.event.startswith(ENDED):
            states = [event for event in self.events.get(RUN, ()) if event["event"] in STATE_EVENTS]
            again = states and manifest.hash_of_head(states[-1].get("manifest_head")) == last.hash
            resumed = again and states[-1]["event"] == "started"
            status = None if resumed else last.event.removeprefix(ENDED)
            yield from self._journal(f"{FOLDER}/run.jsonl", last, status)

    def _journal(self, name: str, entry: manifest.Entry, status: str | None) -> Iterator[Finding]:
        """Compare a journal with its seal, and its end with the entry if it ended with ``status``."""
        seal, path = entry.journal, self.run_dir / name
        if seal is None or not path.is_file() or self._is_named(name):
            return
        content = read_regular(path)
        found = hashlib.sha256(content[: seal.bytes]).hexdigest()
        if found != seal.sha256 or len(content) < seal.bytes:
            expected = f"{seal.sha256} of the first {seal.bytes} bytes"
            yield Finding(thing=name, kind="altered", expected=expected, found=found)
        elif status is not None:
            rest = content[seal.bytes :]
            failure = {} if status == "FINISHED" else _failure(rest, entry.digests.get("failure"))
            event = {"event": "ended", "status": status, "manifest_head": entry.head, **failure}
            line = event_line(entry.milliseconds, event)
            if rest != f"{line}\n".encode():
                yield Finding(thing=name, kind="altered", expected=line, found="another end")

    def _recipe(self) -> Iterator[Finding]:
        recorded = {entry.digests["recipe"] for entry in self.chain.entries if "recipe" in entry.digests}
        path = self.run_dir / RECIPE
        if not path.is_file():
            yield Finding(thing=RECIPE, kind="missing")
            return
        try:
            found = recipe_digest(parse_object(read_text(path), str(path)))
        except (UserError, UnicodeEncodeError):
            found = f"SHA-256 {sha256(path)}"
        if recorded and found not in recorded:
            yield Finding(thing=RECIPE, kind="altered", expected=min(recorded), found=found)

    def _environment(self) -> Iterator[Finding]:
        starts = [entry for entry in self.chain.entries if entry.event == STARTED]
        expected = starts[-1].digests.get(ENVIRONMENT) if starts and self.finished else None
        if expected is not None:
            yield from self._compared(f"{FOLDER}/{ENVIRONMENT_FILE}", expected)

    def _sealed(self) -> Iterator[Finding]:
        files = self._start_files()
        for step, entry in seals.last_entries(self.chain.entries).items():
            if self.closed(step):
                files |= entry.files
        if self.finished and not self._is_named(manifest.FILE_NAME):
            files |= self._end_files()
        for name, expected in files.items():
            parts = Path(name).parts
            rebuilt = parts[0] == seals.INDEX and len(parts) > 2 and not self.run_dir.joinpath(*parts[:2]).exists()
            if Path(name).is_absolute() and not Path(name).is_file():
                yield Finding(thing=name, kind="not checkable", expected=expected, found="no such file on this machine")
            elif not rebuilt and not self._is_named(name):
                yield from self._compared(name, expected)

    def _start_files(self) -> dict[str, str]:
        """Return the files that the run's starts sealed: the uncommitted changes of the code."""
        starts = (entry for entry in self.chain.entries if entry.event == STARTED)
        return {name: digest for entry in starts for name, digest in entry.files.items()}

    def _end_files(self) -> dict[str, str]:
        """Return the files that the run's end sealed: the journals of steps, and the report."""
        last = self.chain.entries[-1:]
        return {name: digest for entry in last if entry.event.startswith(ENDED) for name, digest in entry.files.items()}

    def _artifacts(self) -> Iterator[Finding]:
        """Compare files without a seal that the journals name: the report of a run of format 1."""
        sealed = {name for entry in seals.last_entries(self.chain.entries).values() for name in entry.files}
        sealed |= self._end_files().keys()
        for name, digests in self._artifact_digests().items():
            if name not in sealed and (found := self._digest(name)) not in digests:
                kind = "altered" if found else "missing"
                yield Finding(thing=name, kind=kind, expected=" or ".join(sorted(digests)), found=found)

    def _artifact_digests(self) -> dict[str, set[str]]:
        known: dict[str, set[str]] = {}
        # Events of an altered journal may lack fields.
        for event in self.events.get(RUN, ()) if self.finished and not self._is_named(f"{FOLDER}/run.jsonl") else ():
            if event["event"] == "artifact":
                path = relocated(self.run_dir, event["path"])
                inside = path.is_relative_to(self.run_dir)
                name = str(path.relative_to(self.run_dir)) if inside else Path(event["folder"], path.name).as_posix()
                known.setdefault(name, set()).add(str(event["digest"]))
        return known

    def _added(self) -> Iterator[Finding]:
        steps = seals.last_entries(self.chain.entries)
        known = {name for entry in steps.values() for name in entry.files} | self._artifact_digests().keys()
        known |= self._start_files().keys() | self._end_files().keys()
        for path in sorted(self.run_dir.rglob("*")):
            name = path.relative_to(self.run_dir).as_posix()
            hidden = any(part.startswith(".") for part in path.relative_to(self.run_dir).parts)
            if not path.is_file() or hidden or name in known:
                continue
            unsealed = any(fnmatch(name, pattern) for pattern in WORKING)
            if name.startswith(f"{RunDir.step_journals}/"):
                unsealed = name in {f"{RunDir.step_journals}/{step}.jsonl" for step in steps}
            if not unsealed:
                yield Finding(thing=name, kind="added", found=sha256(path))

    def _compared(self, name: str, expected: str) -> Iterator[Finding]:
        found = self._digest(name)
        if found != expected:
            yield Finding(thing=name, kind="altered" if found else "missing", expected=expected, found=found)

    def _digest(self, name: str) -> str:
        path = self.run_dir / name
        return sha256(path) if path.is_file() else ""

    def _is_named(self, name: str) -> bool:
        return any(finding.thing == name for finding in self.findings)


def _failure(line: bytes, expected: str | None) -> Event:
    """Return the failure in the line of an end if it has the expected digest; earlier runs recorded no digest."""
    try:
        event = parse_object(line.decode(), "end")
    except (UserError, UnicodeDecodeError):
        return {}
    failure = {name: event[name] for name in FAILURE_FIELDS if name in event}
    return failure if expected in (None, manifest.digest_of(failure)) else {}
