"""Seals: the digests of the files that finished steps left, and their comparison with the files as they are now.

They stand in the manifest's entry of the step, so that an edit of a file cannot hide itself. A step that is running
again has no seal until it ends: it may rewrite its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY
from platform_sdk.tracking import manifest
from platform_sdk.tracking.digests import Digests
from platform_sdk.tracking.journal import FOLDER, STATE_EVENTS, STEPS_FOLDER, Event, read, run_file, step_file

STEP = "step "
OUTCOMES = ("corpus/digests.json", "*/sample.json", "*/train.json", "*/scores.json")
INDEX = "index"  # the folder of Milvus Lite's own, which a run makes again from the corpus where they are missing
NAMED = 3  # so many altered files are named


@dataclass(frozen=True)
class Fault:
    """A file that differs from what the run recorded; ``reason`` completes the sentence that the path begins."""

    path: Path
    reason: str
    remedy: str = REMEDY

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.remedy}"


def seal(run_dir: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each of ``paths``, and of each file in those that are folders, by its name in the run.

    Files outside the run directory have their absolute path as name. Hidden files are left out: they are being
    written, or belong to a writer alone.
    """
    digests = Digests(run_dir)
    found = {_name(run_dir, file): digests.of(file) for path in paths for file in _files(path)}
    digests.save()
    return found


def check(run_dir: Path) -> None:
    """Compare every file that a finished step left with its seal, and the manifest with the heads in the journals.

    For the steps of a run under way. Readers of a run call ``opened.open_run``.

    Args:
        run_dir: The run directory; one without a run passes.

    Raises:
        UserError: a file or the manifest was altered or removed; the message names file, expected and found digest.
    """
    entries = manifest.read(run_dir)
    digests = Digests(run_dir)
    found = [*head_faults(run_dir, entries), *file_faults(run_dir, entries, digests, external=True)]
    digests.save()
    if found:
        more = f"\n… and {len(found) - NAMED} more files" if len(found) > NAMED else ""
        raise UserError("\n".join(map(str, found[:NAMED])) + more)


def require_manifest(run_dir: Path) -> None:
    """Raise a ManifestError if there is no manifest beside finished steps: it would begin again without them."""
    if not manifest.read(run_dir) and any(next(run_dir.glob(pattern), None) for pattern in OUTCOMES):
        path = run_dir / manifest.FILE_NAME
        raise manifest.ManifestError(f"{path}: is missing or empty, but steps of the run are finished; {REMEDY}")


def last_entries(entries: Iterable[manifest.Entry]) -> dict[str, manifest.Entry]:
    """Return the last entry of each step, by the step's name."""
    return {entry.event.removeprefix(STEP): entry for entry in entries if entry.event.startswith(STEP)}


def file_faults(
    run_dir: Path, entries: Iterable[manifest.Entry], digests: Digests, *, external: bool, finished: bool = False
) -> Iterator[Fault]:
    """Yield the sealed files that were altered or removed.

    Args:
        external: Also compare the files outside the run directory that the run began with: the base model's.
        finished: The run has ended, so every step has; else the journals tell which steps are running again.
    """
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
                reason = f"is missing, but step {step} had written it (SHA-256 {expected[:16]}…)"
                yield Fault(path, reason, remedy)
            elif digests.of(path) != expected and (found := digests.rehash(path)) != expected:
                reason = f"was altered after step {step} (SHA-256 expected {expected[:16]}…, found {found[:16]}…)"
                yield Fault(path, reason, remedy)


def head_faults(run_dir: Path, entries: Iterable[manifest.Entry]) -> Iterator[Fault]:
    """Yield a fault if the manifest lacks an entry that a journal names."""
    path = run_dir / manifest.FILE_NAME
    hashes = {entry.hash for entry in entries}
    for journal in (run_file(run_dir), *sorted((run_dir / FOLDER / STEPS_FOLDER).glob("*.jsonl"))):
        for event in read(journal)[0]:
            head = event.get("manifest_head")
            if head is not None and head not in hashes:
                named = f"lacks entry {str(head)[:16]}…, which {journal} names"
                yield Fault(path, f"{named}: it was cut short, removed or written again")
                return


def _closed(run_dir: Path, step: str) -> bool:
    """Return whether the step has finished successfully and has not begun again since."""
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
