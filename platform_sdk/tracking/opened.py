"""Opening of a run for reading: chain, seals and recipe are verified first.

Steps of an unfinished run call ``seals.check`` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.errors import UserError
from platform_sdk.files import REMEDY, parse_object, read_object, read_text, sha256
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.digests import Digests, VerifiedDigests
from platform_sdk.tracking.journal import FOLDER, STATE_EVENTS, read, run_file
from platform_sdk.tracking.seals import Fault

RECIPE = RunDir.recipe
ENVIRONMENT = "environment"
ENVIRONMENT_FILE = Path(RunDir.environment).name
STARTED = "run started"
CARD = "README.md"
"""The model card in an exported directory."""
SHOWN = (
    PhaseDir.scores, PhaseDir.train, PhaseDir.figures, PhaseDir.statistics, PhaseDir.updates, PhaseDir.rollouts,
    PhaseDir.selected, PhaseDir.examples,
)  # fmt: skip
"""Files of a phase with results for readers; in a finished run each must have a seal."""
ALTERED = "or add --altered to read the run as it is, with a warning in every output"


@dataclass(frozen=True)
class OpenedRun:
    """A run whose files were compared with its records.

    ``altered`` is empty unless the caller wanted altered files too; then each item reports one of them. ``entries`` is
    the manifest, empty if it is broken.
    """

    run_dir: Path
    recipe: dict[str, Any]
    finished: bool
    entries: tuple[manifest.Entry, ...]
    altered: tuple[str, ...] = ()

    def step(self, name: str) -> manifest.Entry | None:
        """Return the manifest's last entry of a step."""
        return seals.last_entries(self.entries).get(name)

    def recorded(self, step: str, digest: str) -> str:
        """Return a digest that a step recorded; empty if it recorded none."""
        entry = self.step(step)
        return "" if entry is None else entry.digests.get(digest, "")

    def first(self, digest: str) -> str:
        """Return a digest that the run's start recorded; empty if it recorded none."""
        return self.entries[0].digests.get(digest, "") if self.entries else ""

    def sealed_in(self, folder: Path) -> dict[Path, str]:
        """Return the SHA-256 of every sealed file in a folder, which may be outside the run directory."""
        files = {
            self.run_dir / name: digest
            for entry in seals.last_entries(self.entries).values()
            for name, digest in entry.files.items()
        }
        root = folder.resolve()
        return {path: digest for path, digest in files.items() if path.resolve().is_relative_to(root)}

    def sealed_at_end(self, name: str) -> str:
        """Return the SHA-256 of a file that the run's end sealed; empty if the run has not finished."""
        return self.entries[-1].files.get(name, "") if self.entries and self.finished else ""

    def require_finished(self) -> None:
        """Raise a UserError if the run has not finished."""
        if not self.finished:
            raise UserError(
                f"{self.run_dir}: the run has not finished; repeat its hopforge run to resume it, then try again"
            )


def open_run(run_dir: Path, *, altered: bool | None = None, full: bool = False) -> OpenedRun:
    """Open a run, finished or not, after comparing its files with the manifest.

    In a run under way, the files of finished steps are compared. A directory that records neither steps nor events
    opens with a warning in ``altered``, since nothing can be compared.

    Args:
        altered: Also open a run with altered files, and report them in ``altered``; False: the error names the option
            ``--altered``; None: the command has no such option.
        full: Read every file again, including files that are unchanged since their last verification.

    Raises:
        UserError: ``run_dir`` is not a run directory, or a file was altered or removed: the message names the file,
            the number of intact files, and the remedy.
    """
    if not (run_dir / RECIPE).is_file():
        if (run_dir / manifest.FILE_NAME).is_file():
            raise UserError(f"{run_dir / RECIPE}: is missing, but the manifest reports a started run; {REMEDY}")
        raise UserError(f"{run_dir}: not a run directory (it contains no {RECIPE})", code="run.not-a-run")
    digests = VerifiedDigests(run_dir, full=full)
    try:
        entries, faults = manifest.read(run_dir), []
    except manifest.ManifestError as error:
        entries, faults = [], [_manifest_fault(run_dir, error)]
    try:
        states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    except UserError as error:
        states, faults = [], [*faults, Fault(run_file(run_dir), _reason(error, run_file(run_dir)))]
    finished = bool(states) and states[-1].get("status") == "FINISHED"
    last = str(states[-1]["event"]) if states else ""
    if not faults:
        faults = list(_faults(run_dir, entries, digests if finished else Digests(run_dir), finished, last))
    digests.save()
    if faults and not altered:
        told = _sentence(faults, _intact(entries, faults))
        raise UserError(told if altered is None else f"{told}, {ALTERED}", code="run.altered")
    warnings = tuple(f"{fault.path}: {fault.reason}" for fault in faults)
    if not entries and not states and not faults:
        warnings = (f"{run_dir}: contains no manifest and no journal, so its files cannot be verified",)
    return OpenedRun(run_dir, read_object(run_dir / RECIPE), finished, tuple(entries), warnings)


def contains_run(folder: Path) -> bool:
    """Return True if a folder contains a run's recipe or manifest; ``open_run`` reports the missing one.

    A manifest next to a model card belongs to an exported model.
    """
    has_manifest = (folder / manifest.FILE_NAME).is_file() and not (folder / CARD).is_file()
    return (folder / RECIPE).is_file() or has_manifest


def run_of(path: Path) -> Path | None:
    """Return the innermost run directory that a file or folder belongs to; None if there is none.

    Two of recipe, manifest and journal identify a run, since any of them may have been removed.
    """
    for folder in (path.resolve(), *path.resolve().parents):
        records = (folder / RECIPE, folder / manifest.FILE_NAME, run_file(folder))
        if sum(record.is_file() for record in records) >= 2:
            return folder
    return None


def external_faults(opened: OpenedRun, folder: Path) -> Iterator[str]:
    """Yield the files of the initial model outside the run directory that were altered or removed."""
    for path, expected in opened.sealed_in(folder).items():
        found = sha256(path) if path.is_file() else "missing"
        if found != expected:
            digests = f"SHA-256 expected {expected[:16]}…, found {found[:16]}…"
            yield f"{path}: is not the file that the run began with ({digests})"


def recipe_digest(recipe: Mapping[str, Any]) -> str:
    """Return the digest of a resolved recipe, as in the manifest's first entry."""
    return manifest.digest_of(recipe)


def _faults(
    run_dir: Path, entries: list[manifest.Entry], digests: Digests, finished: bool, last: str
) -> Iterator[Fault]:
    """Yield the faults of a run; ``last`` is its journal's last start or end, empty if there is none."""
    begun = bool(last)
    path = run_dir / manifest.FILE_NAME
    steps = seals.last_entries(entries)
    if not entries:
        if begun:
            yield Fault(path, "is missing or empty, but the journal reports that the run has begun")
        return
    try:
        yield from seals.head_faults(run_dir, entries)
        if steps and not begun:
            yield Fault(run_file(run_dir), "is missing or empty, but steps of the run are finished")
        elif begun:
            yield from _journal_faults(run_dir, entries)
        yield from _recipe_faults(run_dir, entries)
        yield from seals.file_faults(run_dir, entries, digests, external=False, finished=finished)
        if last == "ended":
            yield from seals.journal_faults(run_dir, entries)
        if finished:
            yield from _end_faults(run_dir, entries, steps.values())
    except UserError as error:  # a journal that cannot be read
        named = Path(str(error).partition(".jsonl")[0] + ".jsonl")
        yield Fault(named, _reason(error, named))


def _journal_faults(run_dir: Path, entries: Iterable[manifest.Entry]) -> Iterator[Fault]:
    """Yield a fault if the journal lacks an end of the run that the manifest contains."""
    heads = {manifest.hash_of_head(event.get("manifest_head")) for event in read(run_file(run_dir))[0]}
    if any(entry.event.startswith(seals.ENDED) and entry.hash not in heads for entry in entries):
        reason = "lacks the run's end, which the manifest holds, so it was cut short or altered"
        yield Fault(run_file(run_dir), reason, "restore it from a copy, or repeat the run's hopforge run")


def _recipe_faults(run_dir: Path, entries: Iterable[manifest.Entry]) -> Iterator[Fault]:
    path = run_dir / RECIPE
    text = read_text(path)
    try:
        found = recipe_digest(parse_object(text, str(path)))
    except (UserError, UnicodeEncodeError):  # a lone surrogate has no UTF-8
        yield Fault(path, "is no longer the JSON object that the run was started with, so it was altered")
        return
    for entry in entries:
        expected = entry.digests.get("recipe")
        if entry.event == STARTED and expected is not None and found != expected:
            yield Fault(
                path,
                f"was altered after the run was started (digest expected {expected[:16]}…, found {found[:16]}…)",
            )
            return


def _end_faults(run_dir: Path, entries: Iterable[manifest.Entry], steps: Iterable[manifest.Entry]) -> Iterator[Fault]:
    """Yield faults of a finished run: results without a seal, and a changed environment since its last start."""
    last = next((entry for entry in reversed(list(entries)) if entry.event == STARTED), None)
    expected = last.digests.get(ENVIRONMENT) if last else None
    environment = run_dir / FOLDER / ENVIRONMENT_FILE
    if expected is not None and (not environment.is_file() or sha256(environment) != expected):
        yield Fault(environment, "was altered or removed after the run was started")
    sealed = {name for entry in steps for name in entry.files}
    shown = (path for folder in sorted(run_dir.iterdir()) if folder.is_dir() for path in sorted(folder.iterdir()))
    for path in shown:
        if path.name in SHOWN and path.parent.name != FOLDER and str(path.relative_to(run_dir)) not in sealed:
            yield Fault(path, "was added to the run: no step of it has written this file", "remove it")


def _manifest_fault(run_dir: Path, error: UserError) -> Fault:
    path = run_dir / manifest.FILE_NAME
    return Fault(path, _reason(error, path))


def _reason(error: UserError, path: Path) -> str:
    return str(error).removesuffix(f"; {REMEDY}").removeprefix(str(path)).removeprefix(":").strip()


def _intact(entries: Iterable[manifest.Entry], faults: Iterable[Fault]) -> int:
    files = {name for entry in seals.last_entries(entries).values() for name in entry.files}
    return len(files) - sum(any(str(fault.path).endswith(f"/{name}") for name in files) for fault in faults)


def _sentence(faults: list[Fault], intact: int) -> str:
    first, *others = faults
    also = f", and so {'was' if len(others) == 1 else 'were'} {_named(others)}" if others else ""
    rest = f"the other {intact} sealed files are intact" if intact else "the run's files cannot be verified without it"
    return f"{first.path}: {first.reason}{also} ({rest}); {first.remedy}"


def _named(faults: list[Fault]) -> str:
    names = ", ".join(str(fault.path.name) for fault in faults[: seals.NAMED])
    return f"{names} and {len(faults) - seals.NAMED} more" if len(faults) > seals.NAMED else names
