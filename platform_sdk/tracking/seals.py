"""Seals: the digests of the files that finished steps left, and their comparison with the files as they are now.

They stand in the manifest's entry of the step, so that an edit of a file cannot hide itself. A step that is running
again has no seal until it ends: it may rewrite its files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY, identity, read_object, sha256, write_text
from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import FOLDER, STATE_EVENTS, STEPS_FOLDER, Event, read, run_file, step_file

CACHE = "digests.json"
STEP = "step "
OUTCOMES = ("corpus/digests.json", "*/sample.json", "*/train.json", "*/scores.json")
INDEX = "index"  # the folder of Milvus Lite's own, which a run makes again from the corpus where they are missing
NAMED = 3  # so many altered files are named


def seal(run_dir: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each of ``paths``, and of each file in those that are folders, by its name in the run.

    Files outside the run directory have their absolute path as name. Hidden files are left out: they are being
    written, or belong to a writer alone.
    """
    digests = Digests(run_dir)
    found = {_name(run_dir, file): digests.of(file) for path in paths for file in _files(path)}
    digests.save()
    return found


def check(run_dir: Path, *, external: bool = True) -> None:
    """Compare every file that a finished step left with its seal, and the manifest with the heads in the journals.

    Args:
        run_dir: The run directory; one without a run passes.
        external: Also compare the files outside of it that the run began with: the base model's.

    Raises:
        UserError: a file or the manifest was altered or removed; the message names file, expected and found digest.
    """
    entries = manifest.read(run_dir)
    _check_heads(run_dir, entries)
    digests = Digests(run_dir)
    faults = list(_faults(run_dir, entries, digests, external))
    digests.save()
    if faults:
        more = f"\n… and {len(faults) - NAMED} more files" if len(faults) > NAMED else ""
        raise UserError("\n".join(faults[:NAMED]) + more)


def require_manifest(run_dir: Path) -> None:
    """Raise a ManifestError if there is no manifest beside finished steps: it would begin again without them."""
    if not manifest.read(run_dir) and any(next(run_dir.glob(pattern), None) for pattern in OUTCOMES):
        path = run_dir / manifest.FILE_NAME
        raise manifest.ManifestError(f"{path}: is missing or empty, but steps of the run are finished; {REMEDY}")


def _faults(run_dir: Path, entries: list[manifest.Entry], digests: Digests, external: bool) -> Iterator[str]:
    sealed = {entry.event: entry.files for entry in entries if entry.event.startswith(STEP)}  # the last of each step
    for event, files in sealed.items():
        step = event.removeprefix(STEP)
        if not _closed(run_dir, step):
            continue
        for name, expected in files.items():
            path = run_dir / name  # an absolute name stays what it is
            if Path(name).is_absolute() and not (external and path.is_file()):
                continue
            remedy = REMEDY
            if (parts := Path(name).parts)[0] == INDEX and len(parts) > 2:
                made_again = run_dir.joinpath(*parts[:2])
                if not made_again.exists():
                    continue
                remedy = f"delete {made_again} and repeat the command, which makes it again"
            if not path.is_file():
                yield f"{path}: is missing, but step {step} had written it (SHA-256 {expected[:16]}…); {remedy}"
            elif digests.of(path) != expected and (found := digests.rehash(path)) != expected:
                yield (
                    f"{path}: was altered after step {step} (SHA-256 expected {expected[:16]}…, found {found[:16]}…); "
                    f"{remedy}"
                )


def _check_heads(run_dir: Path, entries: list[manifest.Entry]) -> None:
    """Raise a ManifestError if the manifest lacks an entry that a journal names."""
    path = run_dir / manifest.FILE_NAME
    hashes = {entry.hash for entry in entries}
    for journal in (run_file(run_dir), *sorted((run_dir / FOLDER / STEPS_FOLDER).glob("*.jsonl"))):
        for event in read(journal)[0]:
            head = event.get("manifest_head")
            if head is not None and head not in hashes:
                raise manifest.ManifestError(
                    f"{path}: lacks entry {str(head)[:16]}…, which {journal} names: it was cut short, removed or "
                    f"written again; {REMEDY}"
                )


def _closed(run_dir: Path, step: str) -> bool:
    """Return whether the step has finished successfully and has not begun again since."""
    journal = step_file(run_dir, step)
    states: list[Event] = [event for event in read(journal)[0] if event["event"] in STATE_EVENTS]
    return not states or states[-1].get("status") == "FINISHED"


class Digests:
    """SHA-256 of files, remembered by path, size, times and inode, so that a large one is read once."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FOLDER / CACHE
        self._known: dict[str, list[object]] = {}
        with suppress(UserError):  # not there yet, or damaged: then files are read again
            self._known = read_object(self._path)
        self._changed = False

    def of(self, path: Path) -> str:
        """Return the digest of a file, from memory if the file is the one that was read."""
        known = self._known.get(str(path))
        if isinstance(known, list) and known[:-1] == [*identity(path)]:
            return str(known[-1])
        return self.rehash(path)

    def rehash(self, path: Path) -> str:
        """Return the digest of a file as it is read now."""
        before = identity(path)  # a change while it is read makes it unknown
        digest = sha256(path)
        self._known[str(path)] = [*before, digest]
        self._changed = True
        return digest

    def save(self) -> None:
        """Write down what was read; beside other processes that do, the last one wins."""
        if self._changed and self._path.parent.is_dir() and os.access(self._path.parent, os.W_OK):
            write_text(self._path, json.dumps(self._known), durable=False)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _name(run_dir: Path, path: Path) -> str:
    absolute, root = path.absolute(), run_dir.absolute()
    return str(absolute.relative_to(root) if absolute.is_relative_to(root) else absolute)
