"""Verification of a directory that ``hopforge export`` wrote: the run writes it again, and the files are compared."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import sha256, write_text
from platform_sdk.methods.audit_export import AUDIT_FILES, CHECKPOINT, LOG, entries_of, run_files
from platform_sdk.methods.finished import FinishedRun, open_finished
from platform_sdk.methods.model_export import export_model
from platform_sdk.methods.model_signature import SIGNATURE, signature_fault
from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Finding, Verification
from platform_sdk.tracking.log.checkpoint import fault_of, read_checkpoint
from platform_sdk.tracking.opened import CARD, contains_run
from platform_sdk.tracking.verify import verify_run
from platform_sdk.tracking.verify_log import LogCheck

HEAD = re.compile(r"^\| manifest's head \| `(?P<head>\d+:[0-9a-f]{64})` \|$", re.MULTILINE)
WEIGHTS = re.compile(r"^\| weights \| `(?P<weights>[0-9a-f]+)` \|$", re.MULTILINE)


def exported_head(directory: Path) -> str:
    """Return the manifest's head in the model card of an exported directory; empty for other directories."""
    card = directory / CARD
    if contains_run(directory) or not card.is_file():
        return ""
    found = HEAD.search(card.read_text(errors="replace"))
    return found["head"] if found else ""


def verify_export(directory: Path, log: LogCheck, folder: Path, key: Path | None = None) -> list[Verification]:
    """Compare an exported directory with its run, its log entries with the log, and verify that run.

    Without the run, the weights are compared with the log, and the other files with the signature.

    Args:
        directory: The exported directory.
        log: The log of the run's folder.
        folder: The folder of the run directories.
        key: The public key of the directory's signature; without it, a signature is not checkable.
    """
    head = exported_head(directory)
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    run_dir = next((run for run in inside if contains_run(run) and _contains(run, head)), None)
    of_run = [] if run_dir is None else [verify_run(run_dir, log)]
    signed = list(_signature(directory, key))
    if run_dir is None:
        is_signed = key is not None and not signed
        findings, detects = _by_log(directory, head, log, folder, signed=is_signed)
    else:
        findings, detects = _by_run(directory, run_dir, log), of_run[0].detects
    own = Verification(run=str(directory), head=head, finished=True, findings=(*findings, *signed), detects=detects)
    of_log = log.verification()
    return [own, *of_run, *([] if of_log is None else [of_log])]


def _signature(directory: Path, key: Path | None) -> Iterator[Finding]:
    exists = (directory / SIGNATURE).is_file()
    if key is None and exists:
        yield Finding(thing=SIGNATURE, kind="not checkable", found="no public key; name it with --public-key")
    elif key is not None and not exists:
        yield Finding(thing=SIGNATURE, kind="missing")
    elif key is not None and (fault := signature_fault(directory, key)):
        yield Finding(thing=SIGNATURE, kind="altered", expected=f"a signature with {key}", found=fault)


def _contains(run_dir: Path, head: str) -> bool:
    try:
        return any(entry.head == head for entry in manifest.read(run_dir))
    except UserError:
        return False


def _by_run(directory: Path, run_dir: Path, log: LogCheck) -> list[Finding]:
    weights = WEIGHTS.search((directory / CARD).read_text(errors="replace"))
    try:
        finished = open_finished(run_dir)
        if weights is not None and weights["weights"] != finished.weights:
            before = open_finished(run_dir, before=True)
            finished = before if before.weights == weights["weights"] else finished
        with tempfile.TemporaryDirectory() as temporary:
            again = Path(temporary) / "model"
            export_model(finished, again)
            own = _digests(directory, SIGNATURE)
            if not own.keys() & set(AUDIT_FILES):
                return _compared(_digests(again), own)
            for name, text in run_files(finished, again).items():
                write_text(again / name, text)
            return [*_compared(_digests(again), own, LOG, CHECKPOINT), *_of_log(directory, finished, log)]
    except UserError as error:
        return [Finding(thing=directory.name, kind="not checkable", found=f"the run cannot be exported: {error}")]


def _of_log(directory: Path, finished: FinishedRun, log: LogCheck) -> Iterator[Finding]:
    """Compare the exported checkpoint and entries with the log."""
    for name in (LOG, CHECKPOINT):
        if not (directory / name).is_file():
            yield Finding(thing=name, kind="missing")
    if not (directory / CHECKPOINT).is_file():
        return
    try:
        checkpoint = read_checkpoint(directory / CHECKPOINT)
    except UserError as error:
        yield Finding(thing=CHECKPOINT, kind="altered", found=str(error))
        return
    if not log.is_sound:  # the log itself is a finding
        return
    if fault := fault_of(checkpoint, log.chain.entries):
        expected = f"a log of {checkpoint.size} entries, {checkpoint.head}"
        yield Finding(thing=CHECKPOINT, kind="altered", expected=expected, found=fault)
        return
    own = entries_of(log.chain.entries[: checkpoint.size], finished)
    lines = b"".join(entry.line() + b"\n" for entry in own)
    if (directory / LOG).is_file() and (directory / LOG).read_bytes() != lines:
        yield Finding(thing=LOG, kind="altered", expected=f"the log's {len(own)} entries about the run")


def _compared(expected: dict[str, str], found: dict[str, str], *ignored: str) -> list[Finding]:
    findings = []
    for name in sorted((expected.keys() | found.keys()) - set(ignored)):
        if expected.get(name) != found.get(name):
            kind = "added" if name not in expected else "altered" if name in found else "missing"
            digests = {"expected": expected.get(name, ""), "found": found.get(name, "")}
            findings.append(Finding.model_validate({"thing": name, "kind": kind, **digests}))
    return findings


def _digests(directory: Path, *ignored: str) -> dict[str, str]:
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    return {name: sha256(path) for name, path in files.items() if name not in ignored}


def _by_log(
    directory: Path, head: str, log: LogCheck, folder: Path, *, signed: bool
) -> tuple[list[Finding], tuple[str, ...]]:
    recorded = [entry for entry in log.chain.entries if entry.head == head] if log.is_sound else []
    missing = f"no run in {folder} has the head of the model card; name its folder with --folder"
    if not recorded or not recorded[0].weights:
        return [Finding(thing=directory.name, kind="not checkable", found=missing)], ()
    try:
        found = policy_digest(directory)
    except UserError as error:
        finding = Finding(thing="weights", kind="altered", expected=recorded[0].weights, found=str(error))
        return [finding], ()
    shown = WEIGHTS.search((directory / CARD).read_text(errors="replace"))
    if found != recorded[0].weights:  # which are the last trained ones: not those before training
        kind = "altered" if shown is None or shown["weights"] == recorded[0].weights else "not checkable"
        values = {"expected": recorded[0].weights, "found": found}
        if kind == "altered" or not signed:
            return [Finding.model_validate({"thing": "weights", "kind": kind, **values})], ()
    if signed:
        return [], log.rows
    return [Finding(thing="files other than the weights", kind="not checkable", found=missing)], log.rows
