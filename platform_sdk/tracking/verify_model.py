"""Verification of a registered model without its run directory: MLflow has the manifest as an artifact of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from platform_sdk.errors import UserError
from platform_sdk.files import parse_object, read_text, sha256
from platform_sdk.tracking import manifest
from platform_sdk.tracking.adoption import PARENT
from platform_sdk.tracking.findings import Finding, Verification
from platform_sdk.tracking.opened import ENVIRONMENT, ENVIRONMENT_FILE, RECIPE, STARTED, recipe_digest
from platform_sdk.tracking.replay import StoredModel, StoredRun, StoredVersion
from platform_sdk.tracking.seals import ENDED, last_entries
from platform_sdk.tracking.store import WEIGHTS
from platform_sdk.tracking.stored import Store
from platform_sdk.tracking.verify_files import Chain, read_chain
from platform_sdk.tracking.verify_log import LogCheck

HEAD = "manifest_head"
RUN_DIR = "hopforge.run_dir"
ABSENT = "the run directory is not at hand: the files that only it has, the journals, and what MLflow has from them"


class ModelCheck:
    """Comparison of a version with the manifest, the artifacts and the models of its run in MLflow, and with the log.

    Args:
        store: The MLflow store.
        run_id: The run that registered the version.
        number: The version.
        log: The log of the folder of run directories.
    """

    def __init__(self, store: Store, run_id: str, number: str, log: LogCheck) -> None:
        self._store, self._run_id, self._log = store, run_id, log
        self._version = next((one for one in store.versions(run_id) if one.version == number), None)
        self._chain = Chain()

    def verification(self, model: str) -> Verification:
        """Return the result; ``model`` is the version's name."""
        found = self._store.run(self._run_id)
        findings, detects = [Finding(thing=f"MLflow run {self._run_id}", kind="missing")], tuple[str, ...]()
        if found is not None:
            run, experiment = found
            findings = list(self._of_run(run, experiment))
            if not any(finding.thing.endswith(manifest.FILE_NAME) for finding in findings):
                names = self._log.names_of(Path(run.tags.get(RUN_DIR, run.name)))
                logged, detects = self._log.check_chain(self._chain.entries, names, finished=self._finished)
                findings += logged
            if self._version is not None:
                findings += self._log.check_approvals(run.name, self._chain.entries, [self._version])
        findings.append(Finding(thing="run directory", kind="not checkable", found=ABSENT))
        head = self._chain.entries[-1].head if self._chain.entries and not self._chain.faults else ""
        return Verification(
            run=model, head=head, finished=self._finished, findings=tuple(findings), detects=detects,
            run_id=self._run_id,
        )  # fmt: skip

    @property
    def _finished(self) -> bool:
        return any(entry.event == f"{ENDED}FINISHED" for entry in self._chain.entries[-1:])

    def _of_run(self, run: StoredRun, experiment: str) -> Iterator[Finding]:
        label, head = f"MLflow run {run.name}", run.tags.get(HEAD, "")
        path = run.artifacts.get(manifest.FILE_NAME)
        thing = f"{label}: artifact {manifest.FILE_NAME}"
        if path is None:
            yield Finding(thing=thing, kind="missing" if run.status == "FINISHED" and ":" in head else "not checkable")
            return
        self._chain = read_chain(path)
        if self._chain.faults or not self._chain.entries:
            fault = next(iter(self._chain.faults), "no entry")
            yield Finding(thing=thing, kind="altered", expected="a valid chain", found=fault)
            return
        last = self._chain.entries[-1]
        if head != last.head and run.status == "FINISHED":  # a resumed run has a newer head than its first end
            yield Finding(thing=f"{label}: tag {HEAD}", kind="altered", expected=last.head, found=head)
        yield from self._artifacts(label, run)
        for step, stored in self._steps(experiment):
            yield from self._artifacts(f"{label}/{step}", stored)
        yield from self._model(experiment)

    def _steps(self, experiment: str) -> Iterator[tuple[str, StoredRun]]:
        query = f"tags.`{PARENT}` = '{self._run_id}'"
        for one in self._store.client.search_runs([experiment], query, max_results=1000):
            if (stored := self._store.run(one.info.run_id)) is not None:
                yield stored[0].name, stored[0]

    def _artifacts(self, label: str, run: StoredRun) -> Iterator[Finding]:
        """Compare the artifacts that the manifest has digests of."""
        expected = {name: digest for entry in self._ends() for name, digest in entry.files.items()}
        start = next((entry for entry in reversed(self._chain.entries) if entry.event == STARTED), None)
        if start is not None:
            expected |= {ENVIRONMENT_FILE: start.digests.get(ENVIRONMENT, ""), RECIPE: start.digests.get("recipe", "")}
        for name, path in run.artifacts.items():
            found = _recipe_digest(path) if name == RECIPE else sha256(path)
            if expected.get(name, found) != found:
                yield Finding(thing=f"{label}: artifact {name}", kind="altered", expected=expected[name], found=found)

    def _ends(self) -> list[manifest.Entry]:
        ended = [entry for entry in self._chain.entries[-1:] if entry.event.startswith(ENDED)]
        return [*last_entries(self._chain.entries).values(), *ended]

    def _model(self, experiment: str) -> Iterator[Finding]:
        version = self._version
        if version is None:
            return
        label = f"MLflow model {version.name}/{version.version}"
        weights = version.tags.get(WEIGHTS, "")
        trained = {entry.digests[WEIGHTS]: entry for entry in self._ends() if WEIGHTS in entry.digests}
        models = [model for model, _ in self._store.models(experiment, self._run_id)]
        model = next((one for one in models if one.model_id == version.model_id), None)
        entry = trained.get(weights)
        if entry is None:
            expected = " or ".join(trained)
            yield Finding(thing=f"{label}: tag {WEIGHTS}", kind="altered", expected=expected, found=weights)
        else:
            yield from self._covered(label, version, entry)
            if model is not None:
                yield from self._model_files(f"MLflow model {model.name}", model, entry)
        if model is None:
            yield Finding(thing=f"{label}: logged model", kind="missing", expected=version.model_id)

    def _covered(self, label: str, version: StoredVersion, entry: manifest.Entry) -> Iterator[Finding]:
        """Compare a version's head. In format 1, it is any entry of the chain."""
        head = version.tags.get(HEAD, "")
        known = {one.hash for one in self._chain.entries} if entry.journal is None else {entry.head}
        if head not in known:
            yield Finding(thing=f"{label}: tag {HEAD}", kind="altered", expected=entry.head, found=head)

    def _model_files(self, label: str, model: StoredModel, entry: manifest.Entry) -> Iterator[Finding]:
        stored = self._store.folder(model.artifact_location)
        found = {path.relative_to(stored).as_posix(): sha256(path) for path in stored.rglob("*") if path.is_file()}
        if not found:
            yield Finding(thing=f"{label}: files", kind="missing")
            return
        sealed = _model_directory(entry.files, found)
        for name in sorted(sealed.keys() | found.keys()):
            if sealed.get(name) != found.get(name):
                kind = "added" if name not in sealed else "altered" if name in found else "missing"
                values = {"expected": sealed.get(name, ""), "found": found.get(name, "")}
                yield Finding.model_validate({"thing": f"{label}: file {name}", "kind": kind, **values})


def _model_directory(sealed: dict[str, str], stored: dict[str, str]) -> dict[str, str]:
    """Return the sealed files of the directory that has most of the stored files, by name in it."""
    shared = Counter(
        str(folder)
        for path in map(PurePosixPath, sealed)
        for folder in path.parents
        if path.relative_to(folder).as_posix() in stored
    )
    if not shared:
        return {}
    folder = shared.most_common(1)[0][0]
    inside = {path: PurePosixPath(path) for path in sealed if PurePosixPath(path).is_relative_to(folder)}
    return {path.relative_to(folder).as_posix(): sealed[name] for name, path in inside.items()}


def _recipe_digest(path: Path) -> str:
    with suppress(UserError, UnicodeEncodeError):
        return recipe_digest(parse_object(read_text(path), str(path)))
    return f"SHA-256 {sha256(path)}"
