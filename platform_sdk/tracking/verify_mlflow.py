"""Comparison of MLflow with a run's journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from platform_sdk.credentials import without_credentials
from platform_sdk.errors import UserError
from platform_sdk.files import read_model, sha256
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.adoption import adopted_run
from platform_sdk.tracking.assessments import compare_assessments
from platform_sdk.tracking.findings import Finding
from platform_sdk.tracking.journal import FOLDER, journals
from platform_sdk.tracking.replay import Replay, StoredModel, StoredRun, StoredVersion, directories, first_start
from platform_sdk.tracking.store import STATE_FILE, WEIGHTS, DeliveryState, store_uri
from platform_sdk.tracking.store_errors import reason
from platform_sdk.tracking.stored import Store, artifact_matches
from platform_sdk.tracking.verify_files import FileCheck
from platform_sdk.tracking.verify_log import ALIAS, TAG

VERIFIED = "verified"
OWN_TAGS = frozenset({VERIFIED, TAG})
"""Tags of a run and its versions that hopforge sets later than at delivery."""
HEAD = "manifest_head"
TOKEN = "hopforge.run"


@dataclass(frozen=True)
class StoreResult:
    """Findings in MLflow, the run's versions there, and its id; None for the versions if MLflow was not compared."""

    findings: list[Finding]
    versions: list[StoredVersion] | None = None
    run_id: str = ""


def check_mlflow(files: FileCheck) -> StoreResult:
    """Compare MLflow with the journals of a run whose files were compared."""
    uri = store_uri(files.run_dir)
    shown = f"MLflow store {without_credentials(uri)}"
    if any(finding.thing.endswith(".jsonl") and finding.thing.startswith(FOLDER) for finding in files.findings):
        return StoreResult([])  # the journals, which give the expected contents, are altered
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        return StoreResult([Finding(thing=shown, kind="not checkable", found="no such file")])
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with Store(uri) as store:
            check = StoreCheck(files, store)
            return StoreResult(list(check.findings()), check.versions, check.run_id)
    except AlteredJournal:
        return StoreResult([Finding(thing=f"{FOLDER}/", kind="altered", found="an event of a journal lacks a field")])
    except (MlflowException, SQLAlchemyError, NotImplementedError, UserError, OSError) as error:
        return StoreResult([Finding(thing=shown, kind="not checkable", found=reason(error))])


class AlteredJournal(Exception):
    """An event of a journal lacks a field. The journals of a run under way have no seals, which would show this."""


class StoreCheck:
    """Comparison of one run. For a run under way, only finished steps whose events are delivered are compared."""

    def __init__(self, files: FileCheck, store: Store) -> None:
        self._files, self._store, self._run_dir = files, store, files.run_dir
        self._state = DeliveryState()
        with suppress(UserError):  # missing or damaged: the run is found by its tag
            self._state = read_model(files.run_dir / FOLDER / STATE_FILE, DeliveryState)
        try:
            self._run_id, recorded_dir = self._located()
            self._replay = Replay(files.run_dir, recorded_dir)
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            raise AlteredJournal from error
        self._expected = self._replay.client
        self._things = {finding.thing for finding in files.findings}
        self.versions: list[StoredVersion] = []
        self._heads = {entry.hash for entry in files.chain.entries}

    @property
    def run_id(self) -> str:
        """The run's id in MLflow; empty if MLflow has no run."""
        return self._run_id or ""

    def findings(self) -> Iterator[Finding]:
        """Yield the differences."""
        ids = dict(self._ids())
        parent = self._replay.state.run_id
        if parent is None or ids[parent] is None or (found := self._store.run(str(ids[parent]))) is None:
            yield Finding(thing=f"MLflow run {self._run_dir.name}", kind="missing")
            return
        run, experiment = found
        models = self._store.models(experiment, str(ids[parent]))
        self._weights = {model.model_id: model.tags.get(WEIGHTS, model.model_id) for model, _ in models}
        self._approval = run.tags.get(TAG, "")
        runs: dict[str, StoredRun] = {parent: run}
        head = run.tags.get(HEAD, "")
        if self._files.finished:
            self._expect_manifest(parent, run)
            yield from self._run(f"MLflow run {run.name}", parent, run, ids)
        elif manifest.hash_of_head(head) not in self._heads and manifest.FILE_NAME not in self._things:
            yield Finding(thing=manifest.FILE_NAME, kind="altered", expected=f"an entry {head}, which MLflow names")
        for name, step in self._replay.state.steps.items():
            if not self._is_settled(name):
                continue
            label = f"MLflow run {self._expected.runs[parent].name}/{name}"
            stored = self._store.run(str(ids[step])) if ids[step] else None
            if stored is None:
                yield Finding(thing=label, kind="missing")
                continue
            runs[step] = stored[0]
            yield from self._run(label, step, stored[0], ids)
        if self._files.finished:
            yield from self._models([model for model, _ in models])
            yield from self._versions(str(ids[parent]))
            if self._approval and not self.versions:
                yield Finding(thing=f"MLflow run {run.name}: tag {TAG}", kind="added", found=self._approval)
        for recorded, step, event in self._replay.traces:
            path = self._here(recorded)
            if step in runs and self._is_intact(path):
                yield from self._traces(path, step, event, str(ids[step]), experiment)

    def _located(self) -> tuple[str | None, Path]:
        """Return the run's id in MLflow, and the directory from which it was delivered."""
        started = first_start(self._run_dir)
        tokens = {f"{started['time']}:{path}": path for path in directories(self._run_dir, self._state)}
        found = (self._store.find(TOKEN, token) for token in tokens)
        given = self._store.run(started["adopt"]) if started["adopt"] else None
        adopted = started["adopt"] if given is None else adopted_run(started, given[0].tags)
        run_id = adopted or self._state.run_id or next((run_id for run_id in found if run_id), None)
        stored = self._store.run(run_id) if run_id else None
        token = stored[0].tags.get(TOKEN, "") if stored else ""
        return run_id, tokens.get(token, next(iter(tokens.values())))

    def _expect_manifest(self, parent: str, run: StoredRun) -> None:
        """Expect the manifest as an artifact, unless it is altered here, or no delivery of format 1 stored it."""
        entries = self._files.chain.entries
        if manifest.FILE_NAME in self._things:
            run.artifacts.pop(manifest.FILE_NAME, None)
        elif entries[-1].journal is not None or manifest.FILE_NAME in run.artifacts:
            digest = sha256(self._run_dir / manifest.FILE_NAME)
            self._expected.runs[parent].artifacts[manifest.FILE_NAME] = digest

    def _ids(self) -> Iterator[tuple[str, str | None]]:
        """Yield the ids of the expected runs with those in MLflow."""
        parent = self._replay.state.run_id
        if parent is None:
            return
        yield parent, self._run_id
        for name, step in self._replay.state.steps.items():
            yield step, step if step in self._replay.given else self._state.steps.get(name)

    def _is_settled(self, step: str) -> bool:
        key = f"steps/{step}"
        size = journals(self._run_dir)[key].stat().st_size
        return self._files.finished or (self._files.closed(step) and self._state.offsets.get(key) == size)

    def _here(self, path: Path) -> Path:
        """Return the place of a path in this run directory; a file missing here may exist where the run was before."""
        before = self._replay.recorded_dir
        outside = not path.is_relative_to(self._run_dir) and path.is_relative_to(before)
        return self._run_dir / path.relative_to(before) if outside else path

    def _is_intact(self, path: Path) -> bool:
        name = path.relative_to(self._run_dir) if path.is_relative_to(self._run_dir) else path
        return path.is_file() and str(name) not in self._things

    def _run(self, label: str, key: str, found: StoredRun, ids: Mapping[str, str | None]) -> Iterator[Finding]:
        expected: StoredRun = self._expected.runs[key]
        adopted = key in self._replay.given or (key == self._replay.state.run_id and self._replay.state.adopted)
        if not adopted:
            for field in ("name", "status", "start", "end"):
                yield from _value(f"{label}: {field}", getattr(expected, field), getattr(found, field))
        tags = {name: str(ids.get(value, value)) for name, value in expected.tags.items()}
        later = OWN_TAGS if key == self._replay.state.run_id else frozenset()
        yield from _tags(label, tags, found.tags, adopted=adopted, later=later)
        yield from _table(f"{label}: param", expected.params, found.params, adopted=adopted)
        yield from _metrics(label, expected.metrics, found.metrics, adopted=adopted)
        for what, wanted, stored in (
            ("dataset", _shown(expected.datasets), _shown(found.datasets)),
            ("model read", self._named(expected.models_read), self._found(found.models_read)),
            ("model written", self._named(expected.models_written), self._found(found.models_written)),
        ):
            yield from _set(f"{label}: {what}", wanted, stored)
        for name, digest in expected.artifacts.items():
            thing, path = f"{label}: artifact {name}", found.artifacts.get(name)
            if path is None:
                yield Finding(thing=thing, kind="missing")
            elif not artifact_matches(path, digest, self._accepted(name)):
                shown = digest if isinstance(digest, str) else ""
                yield Finding(thing=thing, kind="altered", expected=shown, found=sha256(path))
        if not adopted:
            for name in sorted(found.artifacts.keys() - expected.artifacts.keys()):
                yield Finding(thing=f"{label}: artifact {name}", kind="added")

    def _accepted(self, name: str) -> set[str]:
        """Return the digest of an artifact's file, which may be newer than the last event that names it."""
        candidates = (self._run_dir / name, self._run_dir / FOLDER / name)
        return {sha256(path) for path in candidates if path.is_file() and self._is_intact(path)}

    def _named(self, ids: Iterable[str]) -> set[str]:
        return {str(self._expected.models[id].tags[WEIGHTS]) for id in ids}

    def _found(self, ids: Iterable[str]) -> set[str]:
        return {self._weights.get(id, id) for id in ids}

    def _models(self, models: list[StoredModel]) -> Iterator[Finding]:
        found = {model.tags.get(WEIGHTS, ""): model for model in models}
        for expected in self._expected.models.values():
            label = f"MLflow model {expected.name}"
            model = found.pop(expected.tags[WEIGHTS], None)
            if model is None:
                yield Finding(thing=label, kind="missing")
                continue
            for field in ("name", "model_type", "status"):
                yield from _value(f"{label}: {field}", getattr(expected, field), getattr(model, field))
            yield from _tags(label, self._with_head(expected.tags, model.tags), model.tags)
            yield from _metrics(label, expected.metrics, model.metrics)
            if expected.directory is not None:
                yield from self._model_files(label, self._here(expected.directory), model)
        for model in found.values():
            yield Finding(thing=f"MLflow model {model.name}", kind="added", found=model.model_id)

    def _with_head(self, expected: dict[str, str], found: dict[str, str]) -> dict[str, str]:
        """Return the expected tags. In format 1, the head of a model is any entry before the model's."""
        head = found.get(HEAD, "")
        return {**expected, HEAD: head} if head in self._heads and ":" not in expected.get(HEAD, ":") else expected

    def _model_files(self, label: str, directory: Path, model: StoredModel) -> Iterator[Finding]:
        stored = self._store.folder(model.artifact_location)
        prefix = f"{directory.relative_to(self._run_dir).as_posix()}/"
        sealed = {
            name.removeprefix(prefix): digest
            for entry in seals.last_entries(self._files.chain.entries).values()
            for name, digest in entry.files.items()
            if name.startswith(prefix)
        }
        found = {path.relative_to(stored).as_posix(): path for path in stored.rglob("*") if path.is_file()}
        for name, digest in sealed.items():
            own, thing = directory / name, f"{label}: file {name}"
            if name not in found:
                yield Finding(thing=thing, kind="missing", expected=digest)
            elif not (own.is_file() and own.samefile(found[name])) and sha256(found[name]) != digest:
                yield Finding(thing=thing, kind="altered", expected=digest, found=sha256(found[name]))
        for name in sorted(found.keys() - sealed.keys()) if sealed else ():
            yield Finding(thing=f"{label}: file {name}", kind="added", found=sha256(found[name]))

    def _versions(self, run_id: str) -> Iterator[Finding]:
        versions = self.versions = self._store.versions(run_id)
        for one in versions:
            one.run_approval = self._approval
        by_model = {self._weights.get(one.model_id, one.tags.get(WEIGHTS, "")): one for one in versions}
        numbers: dict[str, str] = {}
        names = {version.name for version in self._expected.versions}
        for expected in self._expected.versions:
            weights = expected.tags[WEIGHTS]
            version = by_model.pop(weights, None)
            if version is None:
                yield Finding(thing=f"MLflow model {expected.name}: version of {weights[:16]}…", kind="missing")
                continue
            label = f"MLflow model {expected.name}/{version.version}"
            numbers[expected.version] = version.version
            yield from _tags(label, self._with_head(expected.tags, version.tags), version.tags, later=OWN_TAGS)
            yield from _value(f"{label}: description", expected.description, version.description)
        for version in by_model.values():
            yield Finding(thing=f"MLflow model {version.name}/{version.version}", kind="added")
        for name in names:
            yield from self._aliases(name, numbers)

    def _aliases(self, name: str, numbers: Mapping[str, str]) -> Iterator[Finding]:
        """Compare aliases of this run's versions; another run of the same name may have taken the run's alias."""
        found = self._store.aliases(name)
        # The run's alias is at its newest version; parallel trainings register theirs in any order.
        newest = max(numbers.values(), key=int, default="")
        expected = {alias: newest for alias, number in self._expected.aliases.items() if number in numbers}
        for alias, number in expected.items():
            thing = f"MLflow model {name}: alias {alias}"
            if alias not in found:
                yield Finding(thing=thing, kind="missing", expected=number)
            elif int(found[alias]) < int(number) or (found[alias] != number and found[alias] in numbers.values()):
                yield Finding(thing=thing, kind="altered", expected=number, found=found[alias])
        for alias, number in found.items():
            if number in numbers.values() and alias not in expected and alias != ALIAS:
                yield Finding(thing=f"MLflow model {name}: alias {alias}", kind="added", found=number)

    def _traces(self, path: Path, step: str, event: Any, run_id: str, experiment: str) -> Iterator[Finding]:
        stored = self._store.traces(experiment, run_id)
        for info, spans in self._replay.trace_pairs(path, step, event, run_id, experiment):
            thing = f"MLflow trace {info.client_request_id}"
            trace = stored.pop(info.trace_id, None)
            if trace is None:
                yield Finding(thing=thing, kind="missing", expected=info.trace_id)
            elif different := _trace_difference(info, spans, trace):
                yield Finding(thing=thing, kind="altered", found=different)
            if trace is not None:
                yield from compare_assessments(thing, info.assessments, trace.info.assessments)
        for trace_id in stored:
            yield Finding(thing=f"MLflow trace {trace_id}", kind="added")


def _trace_difference(info: Any, spans: list[Any], trace: Any) -> str:
    """Return the name of the first field of a trace that differs; empty if none does."""
    for field in ("request_time", "request_preview", "response_preview"):
        if getattr(info, field) != getattr(trace.info, field):
            return field
    # Earlier versions did not shorten the id.
    if trace.info.client_request_id not in (info.client_request_id, info.tags["mlflow.traceName"]):
        return "client_request_id"
    for field in ("tags", "trace_metadata"):
        if not getattr(info, field).items() <= getattr(trace.info, field).items():
            return field
        added = getattr(trace.info, field).keys() - getattr(info, field).keys()
        if any(not name.startswith("mlflow.") for name in added):
            return field
    expected, found = ({span.span_id: _span(span) for span in part} for part in (spans, trace.data.spans))
    for span_id in expected.keys() | found.keys():
        if expected.get(span_id) != found.get(span_id):
            return f"span {expected.get(span_id, found.get(span_id))[0]}"  # type: ignore[index]
    return ""


def _span(span: Any) -> tuple[Any, ...]:
    return span.name, span.parent_id, span.start_time_ns, span.end_time_ns, span.attributes, span.status.description


def _value(thing: str, expected: object, found: object) -> Iterator[Finding]:
    if expected != found:
        yield Finding(thing=thing, kind="altered", expected=str(expected), found=str(found))


def _tags(
    label: str, expected: Mapping[str, str], found: Mapping[str, str], *, adopted: bool = False,
    later: frozenset[str] = frozenset(),
) -> Iterator[Finding]:  # fmt: skip
    own = {
        name: value
        for name, value in found.items()
        if name in expected or not (name.startswith("mlflow.") or name in later)
    }
    yield from _table(f"{label}: tag", expected, own, adopted=adopted)


def _table(
    label: str, expected: Mapping[str, str], found: Mapping[str, str], *, adopted: bool = False
) -> Iterator[Finding]:
    for name, value in expected.items():
        if name not in found:
            yield Finding(thing=f"{label} {name}", kind="missing", expected=value)
        else:
            yield from _value(f"{label} {name}", value, found[name])
    for name in sorted(found.keys() - expected.keys()) if not adopted else ():
        yield Finding(thing=f"{label} {name}", kind="added", found=found[name])


def _metrics(
    label: str,
    expected: Mapping[str, set[tuple[int, int, float]]],
    found: Mapping[str, set[tuple[int, int, float]]],
    *,
    adopted: bool = False,
) -> Iterator[Finding]:
    shown: list[dict[str, str]] = [{}, {}]
    for name in expected.keys() | found.keys():
        points = expected.get(name, set()), found.get(name, set())
        steps = {step for step, _, _ in points[0] ^ points[1]}
        for texts, metrics, part in zip(shown, (expected, found), points, strict=True):
            if name in metrics:
                texts[name] = ", ".join(f"{value:g} at step {step}" for step, _, value in sorted(part) if step in steps)
    yield from _table(f"{label}: metric", *shown, adopted=adopted)


def _set(label: str, expected: set[str], found: set[str]) -> Iterator[Finding]:
    yield from (Finding(thing=f"{label} {one}", kind="missing") for one in sorted(expected - found))
    yield from (Finding(thing=f"{label} {one}", kind="added") for one in sorted(found - expected))


def _shown(datasets: set[tuple[str, ...]]) -> set[str]:
    return {" ".join(dataset) for dataset in datasets}
