"""A run as it stands: its steps, as Kubeflow Pipelines says, and their jobs, as the cluster says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from kfp.dsl import PIPELINE_JOB_ID_PLACEHOLDER

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.versions import listed
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.api import ClusterApi, Unreachable, connect
from platform_sdk.kubeflow.training_job.description import (
    LABEL_MANAGER,
    LABEL_RUN,
    LABEL_STEP,
    LABEL_TASK,
    MANAGER,
    label_value,
)
from platform_sdk.kubeflow.training_job.state import observe

SYSTEM_NAMESPACE = "kubeflow"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FIRST_STEP = "begin"


@dataclass(frozen=True)
class StepState:
    """A step of the pipeline; ``state`` is KFP's, as RUNNING. ``seconds`` is how long it took, once it has ended."""

    name: str
    state: str
    seconds: float | None = None


@dataclass(frozen=True)
class JobState:
    """A job that a step made; ``step`` is empty where the job does not say whose it is."""

    kind: str
    name: str
    step: str
    state: str
    reason: str


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
    """Where its pods and jobs are."""
    steps: tuple[str, ...]
    label: str
    """By which its jobs are found; empty where no step of it makes any."""


def find_run(server: Server, text: str, namespace: str | None) -> Run:
    """The run with this id, beginning of an id, or name.

    Args:
        namespace: Whose run it is; on a server of a single user, where its pods are (else ``kubeflow``).

    Raises:
        UserError: there is none, there are several, or the server refuses.
    """
    if RUN_ID.fullmatch(text):
        found = server.ask(server.api.runs.run_service_get_run, text)
    else:
        whose = server.namespace(namespace) if server.multi_user else None
        method = server.api.runs.run_service_list_runs
        known = listed(server, method, "runs", namespace=whose or "", sort_by="created_at desc")
        matching = [one for one in known if one.run_id.startswith(text) or one.display_name == text]
        if not matching:
            raise UserError(f"there is no run {text!r}{f' in {whose}' if whose else ''} on {server.host}")
        if len(matching) > 1:
            names = "\n".join(f"  {one.run_id}  {one.display_name}  {one.state}" for one in matching[:10])
            raise UserError(f"{len(matching)} runs are called {text!r}; say more of the id:\n{names}")
        found = server.ask(server.api.runs.run_service_get_run, matching[0].run_id)
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


@dataclass
class Jobs:
    """The cluster's API server, as far as a run's jobs need it.

    Args:
        connection: as of ``ClusterApi``.

    Raises:
        UserError: there is no cluster to speak to.
    """

    namespace: str
    connection: Any = None
    _apis: list[tuple[str, ClusterApi]] = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.connection or connect()
        self._apis = [
            (
                backend.KIND,
                ClusterApi(
                    self.namespace, group=backend.GROUP, version=backend.VERSION, plural=backend.PLURAL,
                    selector=backend.POD_SELECTOR, connection=self.connection,
                ),
            )
            for backend in (pytorchjob, trainjob)
        ]  # fmt: skip

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The pods with these labels."""
        core, api = self.connection.core_api, self._apis[0][1]
        answer = api.call(core.list_namespaced_pod, self.namespace, label_selector=selector, _preload_content=False)
        return list(json.loads(answer.data)["items"])

    def log(self, pod: str, container: str, lines: int, *, follow: bool) -> Any:
        """The open answer that holds a container's log; None where there is none, or it has not started."""
        core, api = self.connection.core_api, self._apis[0][1]
        patience = {"_request_timeout": (5, None)} if follow else {}  # a log may be silent for long
        return api.found(
            core.read_namespaced_pod_log, pod, self.namespace, container=container, tail_lines=lines, follow=follow,
            _preload_content=False, **patience,
        )  # fmt: skip

    def of(self, run: Run) -> Iterator[tuple[str, ClusterApi, dict[str, Any]]]:
        """The kind, the API and the object of every job of a run."""
        if run.label:
            for kind, api in self._apis:
                for job in api.jobs(f"{LABEL_MANAGER}={MANAGER},{LABEL_RUN}={run.label}"):
                    yield kind, api, job

    def states(self, run: Run) -> Iterator[JobState]:
        for kind, api, job in self.of(run):
            metadata = job["metadata"]
            seen = observe(job, api.workload(metadata["uid"]), api.pods(metadata["name"]))
            labels = metadata.get("labels", {})
            step = labels.get(LABEL_TASK) or labels.get(LABEL_STEP, "")
            yield JobState(kind, metadata["name"], step, str(seen.state), seen.reason)


def look(server: Server, run: Run, jobs: Jobs | None) -> RunState:
    """How a run stands now.

    Raises:
        UserError: the server cannot be reached or refuses. (What hides the jobs is said in ``unseen``.)
    """
    found = server.ask(server.api.runs.run_service_get_run, run.run_id)
    details = (found.run_details.task_details if found.run_details else None) or ()
    newest = {one.display_name: one for one in details}
    made: tuple[JobState, ...] = ()
    unseen = ""
    if jobs is not None:
        try:
            made = tuple(sorted(jobs.states(run), key=lambda job: job.name))
        except (UserError, Unreachable) as error:
            unseen = str(error)
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
    """What is different from before, as records; at first, everything that has begun."""
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
