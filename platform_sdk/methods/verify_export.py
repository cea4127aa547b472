"""Verification of a directory that ``hopforge export`` wrote: the run writes it again, and the files are compared."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.methods.finished import open_finished
from platform_sdk.methods.model_export import CARD, export_model
from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Finding, Verification
from platform_sdk.tracking.opened import contains_run
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


def verify_export(directory: Path, log: LogCheck, folder: Path) -> list[Verification]:
    """Compare an exported directory with its run, and verify that run.

    Without the run, the weights are compared with the log, and the other files are not checkable.
    """
    head = exported_head(directory)
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    run_dir = next((run for run in inside if contains_run(run) and _contains(run, head)), None)
    of_run = [] if run_dir is None else [verify_run(run_dir, log)]
    if run_dir is None:
        findings, detects = _by_log(directory, head, log, folder)
    else:
        findings, detects = _by_run(directory, run_dir), of_run[0].detects
    own = Verification(run=str(directory), head=head, finished=True, findings=tuple(findings), detects=detects)
    of_log = log.verification()
    return [own, *of_run, *([] if of_log is None else [of_log])]


def _contains(run_dir: Path, head: str) -> bool:
    try:
        return any(entry.head == head for entry in manifest.read(run_dir))
    except UserError:
        return False


def _by_run(directory: Path, run_dir: Path) -> list[Finding]:
    weights = WEIGHTS.search((directory / CARD).read_text(errors="replace"))
    try:
        finished = open_finished(run_dir)
        if weights is not None and weights["weights"] != finished.weights:
            before = open_finished(run_dir, before=True)
            finished = before if before.weights == weights["weights"] else finished
        with tempfile.TemporaryDirectory() as temporary:
            again = Path(temporary) / "model"
            export_model(finished, again)
            return _compared(_digests(again), _digests(directory))
    except UserError as error:
        return [Finding(thing=directory.name, kind="not checkable", found=f"the run cannot be exported: {error}")]


def _compared(expected: dict[str, str], found: dict[str, str]) -> list[Finding]:
    findings = []
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            kind = "added" if name not in expected else "altered" if name in found else "missing"
            digests = {"expected": expected.get(name, ""), "found": found.get(name, "")}
            findings.append(Finding.model_validate({"thing": name, "kind": kind, **digests}))
    return findings


def _digests(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): sha256(path) for path in files}


def _by_log(directory: Path, head: str, log: LogCheck, folder: Path) -> tuple[list[Finding], tuple[str, ...]]:
    recorded = [entry for entry in log.chain.entries if entry.head == head] if log.is_sound else []
    missing = f"no run in {folder} has the head of the model card; name its folder with --folder"
    if not recorded or not recorded[0].weights:
        return [Finding(thing=directory.name, kind="not checkable", found=missing)], ()
    found = policy_digest(directory)
    if found != recorded[0].weights:
        return [Finding(thing="weights", kind="altered", expected=recorded[0].weights, found=found)], ()
    return [Finding(thing="files other than the weights", kind="not checkable", found=missing)], log.rows
