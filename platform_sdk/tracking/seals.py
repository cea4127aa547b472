"""Seals: digests of the files of finished steps, and their comparison with the current files.

A step's manifest entry contains its seals, so that an edited file is always detected. A step that runs again has no
seals until it ends, since it may rewrite its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY, read_regular, sha256
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import manifest
from platform_sdk.tracking.digests import Digests
from platform_sdk.tracking.journal import (
    STATE_EVENTS,
    Event,
    journals,
    read,
    run_file,
    step_file,
)
from platform_sdk.tracking.removed import is_in, removed_paths

STEP = "step "
ENDED = "run ended: "
OUTCOMES = (f"*/{PhaseDir.sample}", f"*/{PhaseDir.train}", f"*/{PhaseDir.scores}")
INDEX = "index"  # the folder of Milvus Lite's files, which a run rebuilds from the corpus if they are missing
NAMED = 3  # maximum number of altered files in a message


@dataclass(frozen=True)
class Fault:
    """A file that differs from the run's record; a message is ``path`` followed by ``reason``."""

    path: Path
    reason: str
    remedy: str = REMEDY

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.remedy}"


def seal(run_dir: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of the files ``paths``, and of all files in folders among them, by name in the run.

    Files outside the run directory are named by absolute path. Hidden files are skipped: they are incomplete or private
    to a writer.
    """
    digests = Digests(run_dir)
    found = {_name(run_dir, file): digests.of(file) for path in paths for file in _files(path)}
    digests.save()
    return found


def journal_faults(run_dir: Path, entries: Iterable[manifest.Entry]) -> Iterator[Fault]:
    """Yield journals that were altered, added or removed after the run ended; runs of format 1 have no such seals."""
    last = next((entry for entry in reversed(list(entries)) if entry.event.startswith(ENDED)), None)
    if last is None or last.journal is None:
        return
    folder = f"{RunDir.step_journals}/"
    sealed = {name: digest for name, digest in last.files.items() if name.startswith(folder)}
    paths = {_name(run_dir, path): path for path in journals(run_dir).values()}
    now = {name: sha256(path) for name, path in paths.items() if name.startswith(folder)}
    altered = {name for name in {*now, *sealed} if now.get(name) != sealed.get(name)}
    run = run_file(run_dir)
    if hashlib.sha256(read_regular(run)[: last.journal.bytes]).hexdigest() != last.journal.sha256:
        altered.add(_name(run_dir, run))
    for name in sorted(altered):
        yield Fault(run_dir / name, "was altered, added or removed after the run had ended")


def check(run_dir: Path) -> None:
    """Compare every file of a finished step with its seal, and the manifest with the heads in the journals.

    This is for steps of an unfinished run. Readers of a run call ``opened.open_run``.

    Args:
        run_dir: The run directory, possibly without a run.

    Raises:
        UserError: a file or the manifest was altered or removed; the message names file, expected and found digest.
    """
    entries = manifest.read(run_dir)
    digests = Digests(run_dir)
    found = [*head_faults(run_dir, entries), *file_faults(run_dir, entries, digests, external=True)]
    digests.save()
    if found:
        more = f"\n… and {len(found) - NAMED} more files" if len(found) > NAMED else ""
        raise UserError("\n".join(map(str, found[:NAMED])) + more, code="run.altered")


def require_manifest(run_dir: Path) -> None:
    """Raise a ManifestError if steps have finished but the manifest is missing: a new one would lack them.

    Before the run begins, ``hopforge search`` and other commands prepare its corpus without a manifest.
    """
    begun = RunDir(run_dir).run_journal.is_file()
    outcomes = (RunDir.corpus_digests, *OUTCOMES) if begun else OUTCOMES
    if not manifest.read(run_dir) and any(next(run_dir.glob(pattern), None) for pattern in outcomes):
        path = run_dir / manifest.FILE_NAME
        raise manifest.ManifestError(f"{path}: is missing or empty, but steps of the run are finished; {REMEDY}")


def last_entries(entries: Iterable[manifest.Entry]) -> dict[str, manifest.Entry]:
    """Return the last entry of each step, by the step's name."""
    return {entry.event.removeprefix(STEP): entry for entry in entries if entry.event.startswith(STEP)}


def file_faults(
    run_dir: Path, entries: Iterable[manifest.Entry], digests: Digests, *, external: bool, finished: bool = False
) -> Iterator[Fault]:
    """Yield the sealed files that were altered, or removed without a record of their removal.

    Args:
        external: Also compare the files outside the run directory, e.g. the base model's.
        finished: The run has finished, and so has every step. Otherwise the journals show which steps run again.
    """
    removed = removed_paths(run_dir)
    for step, entry in last_entries(entries).items():
        if not (finished or _closed(run_dir, step)):
            continue
        for name, expected in entry.files.items():
            path = run_dir / name  # an absolute name stays what it is
            if Path(name).is_absolute() and not (external and path.is_file()):
                continue
            remedy = REMEDY
            if (parts := Path(name).parts)[0] == INDEX and len(parts) > 2:
                made_again = run_dir.joinpath(*parts[:2])
                if not made_again.exists():
                    continue
                remedy = f"delete {made_again} and repeat the run's hopforge run, which makes it again"
            if not path.is_file():
                if is_in(name, removed):
                    continue
                reason = f"is missing, but step {step} had written it (SHA-256 {expected[:16]}…)"
                yield Fault(path, reason, remedy)
            elif digests.of(path) != expected and (found := digests.rehash(path)) != expected:
                reason = f"was altered after step {step} (SHA-256 expected {expected[:16]}…, found {found[:16]}…)"
                yield Fault(path, reason, remedy)


def head_faults(run_dir: Path, entries: Iterable[manifest.Entry]) -> Iterator[Fault]:
    """Yield a fault if the manifest lacks an entry named in a journal."""
    path = run_dir / manifest.FILE_NAME
    hashes = {entry.hash for entry in entries}
    for journal in (run_file(run_dir), *sorted(RunDir(run_dir).step_journals.glob("*.jsonl"))):
        for event in read(journal)[0]:
            head = event.get("manifest_head")
            if head is not None and manifest.hash_of_head(head) not in hashes:
                named = f"lacks entry {str(head)[:16]}…, which {journal} names"
                yield Fault(path, f"{named}: it was cut short, removed or written again")
                return


def _closed(run_dir: Path, step: str) -> bool:
    """Return True if the step has finished successfully and has not started again since."""
    journal = step_file(run_dir, step)
    states: list[Event] = [event for event in read(journal)[0] if event["event"] in STATE_EVENTS]
    return not states or states[-1].get("status") == "FINISHED"


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _name(run_dir: Path, path: Path) -> str:
    absolute, root = path.absolute(), run_dir.absolute()
    return str(absolute.relative_to(root) if absolute.is_relative_to(root) else absolute)
