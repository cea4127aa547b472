"""A run as it stands: its steps, as Kubeflow Pipelines says, and their jobs, as the cluster says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from kfp.dsl import PIPELINE_JOB_ID_PLACEHOLDER

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.jobs import Jobs, JobState
from platform_sdk.kubeflow.remote.versions import equals, listed
from platform_sdk.kubeflow.training_job.description import label_value

SYSTEM_NAMESPACE = "kubeflow"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEAST_OF_ID = 6  # characters; fewer would soon be those of another run
ID_BEGINNING = re.compile(r"[0-9a-f]{6}[0-9a-f-]*")
FIRST_STEP = "begin"


@dataclass(frozen=True)
class StepState:
    """A step of the pipeline; ``state`` is KFP's, as RUNNING. ``seconds`` is how long it took, once it has ended."""

    name: str
    state: str
    seconds: float | None = None


@dataclass(frozen=True)
class RunState:
    """A run at one moment. ``unseen`` says why something of it could not be seen."""

    run_id: str
    name: str
    state: str
    error: str = ""
    steps: tuple[StepState, ...] = ()
    jobs: tuple[JobState, ...] = ()
    unseen: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class Run:
    """A run that was found: what does not change of it."""

    run_id: str
    name: str
    namespace: str
    """Namespace of its pods and jobs."""
    steps: tuple[str, ...]
    label: str
    """Label that its jobs carry; empty where no step of it makes any."""


def find_run(server: Server, text: str, namespace: str | None) -> Run:
    """The run with this id, name, or beginning of an id.

    Args:
        namespace: Whose run it is; on a server of a single user, where its pods are (else ``kubeflow``).

    Raises:
        UserError: there is none, there are several, or the server refuses.
    """
    run_id = text if RUN_ID.fullmatch(text) else _sought(server, text, namespace)
    found = server.ask(server.api.runs.run_service_get_run, run_id)
    place = SYSTEM_NAMESPACE if namespace is None else namespace
    if server.multi_user:
        place = server.ask(server.api.experiments.experiment_service_get_experiment, found.experiment_id).namespace
    specification = _specification(server, found)
    return Run(
        run_id=found.run_id,
        name=found.display_name,
        namespace=place,
        steps=tuple(_steps(specification, specification["root"])),
        label=_label(specification, found.run_id),
    )


def _sought(server: Server, text: str, namespace: str | None) -> str:
    """The id of the run with this name, else of that whose id begins so: the server finds names, not beginnings."""
    whose = server.namespace(namespace) if server.multi_user else None
    where = f"{f' in {whose}' if whose else ''} on {server.host}"
    method = server.api.runs.run_service_list_runs
    options = {"namespace": whose or "", "sort_by": "created_at desc"}
    named = listed(server, method, "runs", filter=equals(text), **options) if text else iter(())
    matching = [one for one in named if one.display_name == text]
    if not matching and ID_BEGINNING.fullmatch(text):
        matching = [one for one in listed(server, method, "runs", **options) if one.run_id.startswith(text)]
    elif not matching:
        raise UserError(
            f"there is no run {text!r}{where}; give its whole name, its id, or at least the first {LEAST_OF_ID} "
            "characters of the id"
        )
    if not matching:
        raise UserError(f"there is no run {text!r}{where}")
    if len(matching) > 1:
        names = "\n".join(f"  {one.run_id}  {one.display_name}  {one.state}" for one in matching[:10])
        raise UserError(f"{len(matching)} runs are called {text!r}; give more of the id:\n{names}")
    return str(matching[0].run_id)


def _specification(server: Server, found: Any) -> Mapping[str, Any]:
    specification = found.pipeline_spec
    if not specification:
        reference = found.pipeline_version_reference
        version = server.ask(
            server.api.pipelines.pipeline_service_get_pipeline_version,
            reference.pipeline_id,
            reference.pipeline_version_id,
        )
        specification = version.pipeline_spec
    whole: Mapping[str, Any] = specification.get("pipeline_spec", specification)
    return whole


def _steps(specification: Mapping[str, Any], component: Mapping[str, Any]) -> Iterator[str]:
    """The names of the steps, each behind those that it waits for; groups are taken apart."""
    rest = dict(sorted(component["dag"]["tasks"].items()))
    while rest:
        name = next(name for name, task in rest.items() if not set(task.get("dependentTasks", ())) & rest.keys())
        inner = specification["components"][rest.pop(name)["componentRef"]["name"]]
        if "dag" in inner:
            yield from _steps(specification, inner)
        else:
            yield name


def _label(specification: Mapping[str, Any], run_id: str) -> str:
    """The label of the run's jobs: they are named by the run directory, which the first step is told."""
    dags = [specification["root"], *specification["components"].values()]
    for dag in dags:
        first = dag.get("dag", {}).get("tasks", {}).get(FIRST_STEP)
        if first is not None:
            given = first["inputs"]["parameters"]["run_dir"]["runtimeValue"]["constant"]
            return label_value(PurePosixPath(given.replace(PIPELINE_JOB_ID_PLACEHOLDER, run_id)).name)
    return ""


def look(server: Server, run: Run, jobs: Jobs | None) -> RunState:
    """Return a run's current state.

    Raises:
        UserError: the server cannot be reached or refuses. (What hides the jobs is said in ``unseen``.)
    """
    found = server.ask(server.api.runs.run_service_get_run, run.run_id)
    details = (found.run_details.task_details if found.run_details else None) or ()
    newest = {one.display_name: one for one in details}
    made, unseen = jobs.states(run.label) if jobs is not None else ((), "")
    return RunState(
        run_id=run.run_id,
        name=run.name,
        state=found.state or "PENDING",
        error=(found.error.message or "") if found.error else "",
        steps=tuple(_step(name, newest.get(name)) for name in run.steps),
        jobs=made,
        unseen=unseen,
    )


def _step(name: str, detail: Any | None) -> StepState:
    if detail is None or not detail.state:
        return StepState(name, "PENDING")
    over = detail.state in ENDED and detail.start_time and detail.end_time
    return StepState(name, detail.state, (detail.end_time - detail.start_time).total_seconds() if over else None)


def changes(old: RunState | None, new: RunState) -> Iterator[dict[str, str]]:
    """Return the differences from before as records; at first, everything that has begun."""
    before = {} if old is None else {("step", one.name): (one.state, "") for one in old.steps}
    before |= {} if old is None else {("job", one.name): (one.state, one.reason) for one in old.jobs}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for step in new.steps:
        if before.get(("step", step.name), ("PENDING", "")) != (step.state, ""):
            yield {"time": now, "step": step.name, "state": step.state}
    for job in new.jobs:
        if before.get(("job", job.name)) != (job.state, job.reason):
            yield {"time": now, "step": job.step, "job": job.name, "state": job.state, "reason": job.reason}
    if old is None or (old.state, old.error) != (new.state, new.error):
        yield {"time": now, "run": new.run_id, "name": new.name, "state": new.state, "error": new.error}
    if new.unseen and (old is None or old.unseen != new.unseen):
        yield {"time": now, "unseen": new.unseen}
