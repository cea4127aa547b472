"""One tracked run for each pipeline run, one nested run for each of its steps.

The process of the pipeline run calls ``start_run`` and ``finish_run``; every step, usually a separate process, uses
``step_run``::

    start_run(run_dir, recipe)
    with step_run(run_dir, "train-iteration-01") as step:      # in the step's process
        step.log_figures(run_dir / "iteration-01" / "figures.json", iteration=1)
    finish_run(run_dir, "FINISHED")

This module does not import mlflow.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from platform_sdk.config.errors import UserError
from platform_sdk.credentials import strip_credentials, without_credentials
from platform_sdk.files import drop_torn_line, read_object, sha256, storage_error, write_text, writing
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.adoption import GIVEN, given_here
from platform_sdk.tracking.journal import DIGEST, FOLDER, RUN, Journal, journals, read, run_file, step_file
from platform_sdk.tracking.opened import ENVIRONMENT, ENVIRONMENT_FILE, STARTED, recipe_digest
from platform_sdk.tracking.provenance import Clocks, own_checkout, provenance, seeds_of, uncommitted_changes, used
from platform_sdk.tracking.step import StepRun
from platform_sdk.tracking.store import STATE_FILE, check_folder, store_uri
from platform_sdk.tracking.usage import GPU_HOURS, gpu_hours_of_run, jobs_of_step

Status = Literal["FINISHED", "FAILED", "KILLED"]
ERROR_LENGTH = 5000
COLUMNS = frozenset({"mlflow.user", "mlflow.source.type", "mlflow.source.name", "mlflow.source.git.commit"})
"""Tags that MLflow's page of runs shows as columns."""

logger = logging.getLogger(__name__)
_step_settings: ContextVar[str] = ContextVar("settings", default="")
_followers: dict[Path, subprocess.Popen[bytes]] = {}
_log_starts: dict[Path, int] = {}
"""Sizes of the followers' logs before the current followers."""


@dataclass(frozen=True)
class RunInfo:
    """A tracked run: its directory, its name in MLflow, and its MLflow store and experiment.

    ``tracking_uri`` is for display: it contains no password.
    """

    run_dir: Path
    name: str
    tracking_uri: str
    experiment: str


@dataclass(frozen=True)
class Failure:
    """Error that ended a run, for the journal.

    Attributes:
        code: exit status of the failed step's process, negative for a signal.
        oom_kills: processes that the kernel killed for lack of memory during the run.
    """

    error: str
    step: str = ""
    code: int = 0
    oom_kills: int = 0


def start_run(
    run_dir: Path, recipe: Mapping[str, Any], *, follow: bool = True, description: str = "", in_step: bool = False,
    place: Mapping[str, str] | None = None, images: Mapping[str, str] | None = None,
) -> RunInfo:  # fmt: skip
    """Start a run, or resume an unfinished one with the MLflow run recorded in the run directory.

    ``MLFLOW_RUN_ID`` in the environment is adopted as the parent run. The store is ``MLFLOW_TRACKING_URI``, or
    otherwise an SQLite file next to the run directory, shared by all runs in the folder.

    Args:
        run_dir: The run directory.
        recipe: The resolved recipe: ``{"pipeline", "name", "parameters": {…}}``.
        follow: Start the process that delivers to MLflow while this process lives. Otherwise every step delivers its
            events at its end, which costs seconds for the import of mlflow.
        description: The recipe's description, for the report and for MLflow; it does not affect results.
        in_step: ``MLFLOW_RUN_ID`` names the run of the calling step, as Kubeflow Pipelines' MLflow plugin sets it: its
            parent is adopted, and every step adopts the run that it is given.
        place: Place on a cluster by names, e.g. ``namespace``; see ``Provenance``. They are also tags of the run.
        images: Digests of the images of this process's pod by their names.

    Raises:
        UserError: the directory belongs to a run of another recipe, a file of a finished step was altered, or MLflow
            cannot open a store in the folder.
    """
    run_dir = run_dir.resolve()
    check_folder(run_dir)
    seals.check(run_dir)
    seals.require_manifest(run_dir)
    path = run_file(run_dir)
    before = [event["recipe"] for event in read(path)[0] if event["event"] == "recipe"]
    if before and before[-1] != json.loads(json.dumps(recipe)):
        raise UserError(
            f"{path}: belongs to a run of another recipe or with other parameters; choose another --workdir, "
            "or repeat the command that began the run"
        )
    team = os.environ.get("MLFLOW_WORKSPACE")
    origin = provenance({**({"team": team} if team else {}), **(place or {})}, images)
    changes = _keep_changes(path.parent) if origin.dirty else None
    if changes is not None:
        origin = origin.model_copy(update={"diff": sha256(changes)})
    environment = path.parent / ENVIRONMENT_FILE
    write_text(environment, json.dumps(origin.model_dump() | {"description": description}, indent=1))
    info = RunInfo(run_dir, run_dir.name, without_credentials(store_uri(run_dir)), _experiment(recipe))
    digests = {
        "recipe": recipe_digest(recipe),
        "git_commit": origin.commit or "unknown",
        ENVIRONMENT: sha256(environment),
    }
    journal = Journal(path)
    _complete_end(run_dir, journal)
    head = manifest.record(
        run_dir,
        STARTED,
        digests,
        seals.seal(run_dir, [] if changes is None else [changes]),
        origin=origin.entry(),
        seeds=seeds_of(recipe["parameters"]),
        images=origin.images,
    ).head
    # The journal must name the run's first start, after whose entry a kill may have come.
    first = next(entry for entry in manifest.read(run_dir) if entry.event == STARTED)
    named = {manifest.hash_of_head(event.get("manifest_head")) for event in read(path)[0]}
    given = os.environ.get(GIVEN)
    fields: dict[str, Any] = {"in_step": True} if given and in_step else {}
    for each in dict.fromkeys((head,) if first.hash in named else (first.head, head)):
        journal.append(
            "started",
            name=info.name,
            experiment=info.experiment,
            adopt=given,
            delivery="follower" if follow else "step",
            manifest_head=each,
            **fields,
        )
    journal.append("recipe", recipe=dict(recipe), digest=digests["recipe"])
    if description:
        journal.append("note", text=description)
    journal.append(
        "tags",
        tags={
            "mlflow.user": origin.shown_user,
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": f"hopforge/{recipe['pipeline']}/{recipe['name']}",
            "mlflow.source.git.commit": origin.commit or "unknown",
            "hopforge.git_dirty": "unknown" if origin.dirty is None else str(origin.dirty).lower(),
            f"{DIGEST}recipe": digests["recipe"],
            "hopforge.python": origin.python,
            **{f"hopforge.{name}": value for name, value in origin.place.items()},
        },
    )
    journal.append("artifact", path=str(environment), folder="", digest=sha256(environment))
    if follow:
        _start_follower(run_dir)
    return info


def _keep_changes(folder: Path) -> Path | None:
    """Write the uncommitted changes of this process's code to a file in ``folder``; None if there are none."""
    checkout = own_checkout()
    assert checkout is not None, "only a checkout is dirty"
    content = uncommitted_changes(checkout, checkout / "platform_sdk")
    if content is None:
        logger.warning("%s: git diff failed, so the uncommitted changes are not kept", checkout)
        return None
    if not content:
        return None
    # Named by content, since a resumed run may have other changes.
    path = folder / f"uncommitted-{hashlib.sha256(content).hexdigest()[:16]}.diff"
    with writing(path) as stream:
        stream.write(content)
    return path


@contextmanager
def step_run(run_dir: Path, step: str) -> Iterator[StepRun]:
    """Track a step of the run in the context. A repeated step resumes its nested run instead of creating a second one.

    The files of finished steps are compared with their seals first. A step that raises is marked FAILED with the error,
    which is raised again.

    Args:
        run_dir: The run directory.
        step: The step's name, unique in its run: ``corpus``, ``sample-iteration-01``, …

    Raises:
        UserError: ``step`` cannot be a file name, a file of a finished step was altered, or the disk is full or
            read-only.
    """
    run_dir = run_dir.resolve()
    seals.check(run_dir)
    journal = Journal(step_file(run_dir, step))
    journal.append("started", name=step, **given_here(run_dir))
    if columns := _columns(run_dir):
        journal.append("tags", tags=columns)
    started, began = time.time_ns(), Clocks.now()
    running = StepRun(run_dir, step, journal)
    try:
        yield running
        files = seals.seal(run_dir, running.sealed)
    except BaseException as error:
        stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
        text = _utf8(f"{type(error).__name__}: {error}")
        shown = storage_error(error)
        with suppress(OSError) if shown else nullcontext():  # on a full disk, the journal cannot be written either
            _log_use(running, started, began)
            journal.append("ended", status="KILLED" if stopped else "FAILED", error=text[:ERROR_LENGTH])
        if shown is not None:
            raise shown from error
        raise
    else:
        entry = manifest.record(
            run_dir,
            f"{seals.STEP}{step}",
            running.digests,
            files,
            journal=journal.path,
            inputs=tuple(running.inputs),
            licences=tuple(running.licences),
            jobs=jobs_of_step(journal.path),
            settings=_settings(run_dir),
            used=_log_use(running, started, began),
        )
        journal.append("ended", at=entry.milliseconds, status="FINISHED", manifest_head=entry.head)
    finally:
        _deliver_without_follower(run_dir)


def finish_run(run_dir: Path, status: Status, failure: Failure | None = None) -> str:
    """End the run and wait until everything is delivered to MLflow; return the MLflow run id.

    Args:
        failure: the error that ended the run.

    Raises:
        UserError: the store could not be reached; the run directory keeps undelivered events.
    """
    run_dir = run_dir.resolve()
    journal = Journal(run_file(run_dir))
    pages = [path for path in (RunDir(run_dir).report, RunDir(run_dir).lineage) if path.is_file()]
    for page in pages:
        journal.append("artifact", path=str(page), folder="", digest=sha256(page))
    if not _has_ended(run_dir, status):
        if hours := gpu_hours_of_run(run_dir):
            journal.append("metrics", metrics={GPU_HOURS: hours}, iteration=0)
        steps = [path for key, path in journals(run_dir).items() if key != RUN]
        for path in steps:  # a killed step may have left part of a line, which its seal would keep
            drop_torn_line(path)
        files = seals.seal(run_dir, [*steps, *pages])
        details = {} if failure is None else {**asdict(failure), "error": _utf8(failure.error)[:ERROR_LENGTH]}
        digests = {"failure": manifest.digest_of(strip_credentials(details))} if details else {}
        entry = manifest.record(run_dir, f"run ended: {status}", digests, files, journal=journal.path)
        journal.append("ended", at=entry.milliseconds, status=status, manifest_head=entry.head, **details)
    _send_to_log(run_dir)
    follower = _followers.pop(run_dir, None)
    status_code = None if follower is None else follower.wait()
    if status_code is None or status_code < 0:  # there is none, or it was killed
        from platform_sdk.tracking.delivery import deliver

        deliver(run_dir)
    elif status_code != 0:
        log = RunDir(run_dir).follower_log
        written = log.read_bytes()[_log_starts.get(run_dir, 0) :].decode(errors="replace")
        lines = written.strip().splitlines() or ["it wrote nothing"]
        # The last error; the first of its lines has the cause.
        shown = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1]).removeprefix(
            "error: "
        )
        raise UserError(
            f"the run could not be delivered to MLflow: {shown} (full log: {log})", code="mlflow.not-delivered"
        )
    run_id = mlflow_run_id(run_dir)
    assert run_id is not None, "a delivered run has an id"
    return run_id


def _utf8(text: str) -> str:
    """Return an error's text, in which a file name may have bytes that are not UTF-8, with these bytes escaped."""
    return text.encode(errors="backslashreplace").decode()


def _complete_end(run_dir: Path, journal: Journal) -> None:
    """Append the line of the run's end if a kill came between its entry in the manifest and this line."""
    last = next(reversed(manifest.read(run_dir)), None)
    if last is not None and last.event.startswith(seals.ENDED):
        named = {event.get("manifest_head") for event in read(journal.path)[0]}
        if last.hash not in {manifest.hash_of_head(head) for head in named}:
            status = last.event.removeprefix(seals.ENDED)
            journal.append("ended", at=last.milliseconds, status=status, manifest_head=last.head)


def _columns(run_dir: Path) -> dict[str, str]:
    """Return the tags behind MLflow's columns User, Source and Version that the run's last start recorded."""
    recorded = [event["tags"] for event in read(run_file(run_dir))[0] if event["event"] == "tags"]
    return {name: value for name, value in (recorded[-1] if recorded else {}).items() if name in COLUMNS}


def _log_use(step: StepRun, started: int, began: Clocks) -> dict[str, str | int | float]:
    """Log the GPU-hours of a step up to now; return what this process used, and the GPU-hours of the step."""
    own = used(began)
    if gpus := int(own["gpus"]):
        step.record_gpu_hours(f"process {os.getpid()} of {started}", float(own["seconds"]) * gpus / 3600)
    return own | {GPU_HOURS: step.log_gpu_hours()}


def _send_to_log(run_dir: Path) -> None:
    """Send the end to the log. A failure must not fail the run: the manifest has the end, which is sent later."""
    from platform_sdk.tracking.log.ends import send_end

    try:
        send_end(run_dir)
    except (UserError, OSError) as error:
        logger.warning("the run's end is not in the log yet: %s; then send it with hopforge log send RUN", error)


def _has_ended(run_dir: Path, status: str) -> bool:
    """Return True if the last event of the run is this end, and the manifest has no later entry."""
    events, entries = read(run_file(run_dir))[0], manifest.read(run_dir)
    if not events or not entries:
        return False
    return (events[-1].get("status"), events[-1].get("manifest_head")) == (status, entries[-1].head)


@contextmanager
def recorded_settings(digest: str) -> Iterator[None]:
    """Record the digest of a step's settings in the manifest entry of the step that runs in the context."""
    token = _step_settings.set(digest)
    try:
        yield
    finally:
        _step_settings.reset(token)


def _settings(run_dir: Path) -> str:
    """Return the digest of the step's settings, or without an executor of the recipe's; empty if neither is known."""
    if digest := _step_settings.get():
        return digest
    starts = [entry for entry in manifest.read(run_dir) if "recipe" in entry.digests]
    return starts[-1].digests["recipe"] if starts else ""


def mlflow_run_id(run_dir: Path) -> str | None:
    """Return the id of the parent run in MLflow; None before delivery."""
    state = run_dir / FOLDER / STATE_FILE
    if not state.is_file():
        return None
    run_id = read_object(state).get("run_id")
    return None if run_id is None else str(run_id)


def _experiment(recipe: Mapping[str, Any]) -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or Path(str(recipe["pipeline"])).name


def _start_follower(run_dir: Path) -> None:
    with RunDir(run_dir).follower_log.open("ab") as log:
        _log_starts[run_dir] = log.tell()
        _followers[run_dir] = subprocess.Popen(
            [sys.executable, "-m", "platform_sdk.tracking", str(run_dir), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C must reach only the run; the follower detects its end
        )


def _deliver_without_follower(run_dir: Path) -> None:
    started = [event for event in read(run_file(run_dir))[0] if event["event"] == "started"]
    if not started or started[-1]["delivery"] == "follower":
        return
    from platform_sdk.tracking.delivery import deliver

    try:
        deliver(run_dir)
    except (UserError, OSError) as error:
        # An unreachable server or a full disk must not stop the training; the journal keeps the undelivered events.
        logger.warning("not delivered yet: %s", error)
