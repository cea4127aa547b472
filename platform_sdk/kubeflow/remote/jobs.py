"""Jobs of a run, of all kinds that the cluster serves; each kind has separate access rights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.facts import Facts, JobFacts
from platform_sdk.diagnosis.queue_rules import UNKNOWN_WAIT
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, ClusterApi, connect, expected_form
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_of
from platform_sdk.kubeflow.training_job.description import LABEL_MANAGER, LABEL_RUN, LABEL_STEP, LABEL_TASK, MANAGER
from platform_sdk.kubeflow.training_job.facts import observed
from platform_sdk.kubeflow.training_job.state import observe

Item = dict[str, Any]

UNKNOWN = "Unknown"
SILENT_SECONDS = 120  # timeout of a followed log, since a lost connection may go unnoticed


@dataclass(frozen=True)
class JobState:
    """A job that a step created; ``step`` is empty if the job has no label for it.

    ``state`` is one of ``training_job.state.State``, or Unknown if its pods or Workloads may not be read. ``part`` is
    the part of the step that the job runs, e.g. train-iteration-03 of the step iterations.
    """

    kind: str
    name: str
    step: str
    state: str
    reason: str
    part: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of job: its name, as PyTorchJob, and its API in the namespace."""

    name: str
    api: ClusterApi

    def of(self, label: str) -> list[Item]:
        """Return the jobs of the run with this label; empty if the cluster does not serve the kind.

        Raises:
            UserError: this account may not list them.
            ApiUnavailable: see ``ClusterApi``.
        """
        return self.api.jobs(f"{LABEL_MANAGER}={MANAGER},{LABEL_RUN}={label}") if label else []


@dataclass
class Jobs:
    """Client of the cluster's API server for the jobs of runs.

    Args:
        connection: see ``ClusterApi``.

    Raises:
        UserError: no cluster is configured.
    """

    namespace: str
    connection: Any = None
    kinds: tuple[Kind, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.connection or connect()
        self.kinds = tuple(
            Kind(backend.KIND, api_of(name, self.namespace, self.connection)) for name, backend in BACKENDS.items()
        )

    def pods(self, selector: str) -> list[Item]:
        """Return the pods with these labels.

        Raises:
            UserError, ApiUnavailable: see ``ClusterApi``; all methods raise the latter, all but ``states`` the former.
        """
        api = self.kinds[0].api
        return api.list_objects(api.labelled_pods(selector))[0]

    def step_pods(self, run_id: str) -> list[Item]:
        """Return the pods of a run's steps, without Kubeflow's drivers and pods in deletion."""
        steps = [pod for pod in self.pods(f"pipeline/runid={run_id}") if pod["metadata"]["labels"].get(LABEL_TASK)]
        return [pod for pod in steps if not pod["metadata"].get("deletionTimestamp")]

    def pod(self, name: str) -> Item | None:
        """Return a pod; None if it does not exist."""
        answer = self.kinds[0].api.found(
            self.connection.core_api.read_namespaced_pod, name, self.namespace, _preload_content=False
        )
        return None if answer is None else dict(json.loads(answer.data))

    def log(self, pod: str, container: str, **options: Any) -> Any:
        """Return the open response with a container's log; None without a container, or if it has not started.

        A followed log ends with urllib3's ReadTimeoutError after two minutes without data.

        Args:
            options: The protocol's: follow, timestamps, tailLines, sinceTime.
        """
        # The client's own method for logs lacks sinceTime.
        client = self.connection.core_api.api_client
        query = {"container": container, **{name: value for name, value in options.items() if value is not None}}
        patience = {"_request_timeout": (5, SILENT_SECONDS)} if options.get("follow") else {}
        return self.kinds[0].api.found(
            client.call_api, "/api/v1/namespaces/{namespace}/pods/{name}/log", "GET",
            {"namespace": self.namespace, "name": pod}, list(query.items()), {"Accept": "*/*"},
            auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False, **patience,
        )  # fmt: skip

    def states(self, label: str) -> tuple[tuple[JobState, ...], str]:
        """Return the states of the jobs with this run label, oldest first, and reasons why some cannot be seen.

        Raises:
            ApiUnavailable: see ``ClusterApi``.
        """
        made: list[tuple[str, JobState]] = []
        notes: list[str] = []
        for kind in self.kinds:
            try:
                with expected_form("an answer of the API server"):
                    made += [
                        (job["metadata"].get("creationTimestamp", ""), _state(kind, job, notes))
                        for job in kind.of(label)
                    ]
            except ApiUnavailable:
                raise
            except UserError as error:
                notes.append(f"{kind.name}s are not shown: {error}")
        by_age = sorted(made, key=lambda entry: (entry[0], entry[1].name))
        return tuple(job for _, job in by_age), "; ".join(dict.fromkeys(notes))


def step_of(job: Item) -> str:
    """Return the pipeline's task of a job, from its labels."""
    labels = job["metadata"].get("labels", {})
    return str(labels.get(LABEL_TASK) or labels.get(LABEL_STEP, ""))


def part_of(job: Item) -> str:
    """Return the part of the step that the job runs, e.g. train-iteration-03."""
    return str(job["metadata"].get("labels", {}).get(LABEL_STEP, ""))


def _state(kind: Kind, job: Item, notes: list[str]) -> JobState:
    """Return a job's state. An ended job needs no further request; a waiting job needs one for the reason."""
    name, step, part = job["metadata"]["name"], step_of(job), part_of(job)
    seen = observe(job, None, ())
    try:
        workload = kind.api.workload(job["metadata"]["uid"]) if seen.state.waiting else None
        pods = [] if seen.state.waiting or seen.state.ended else kind.api.pods(name)
        seen = observe(job, workload, pods)
    except ApiUnavailable:
        raise
    except UserError as error:
        notes.append(str(error))
        what = "why it waits is not known: Kueue's workloads" if seen.state.waiting else "its pods"
        return JobState(kind.name, name, step, UNKNOWN, f"{what} may not be read", part)
    advice = "" if seen.state.ended else _advice(observed(job, workload, pods))
    return JobState(kind.name, name, step, str(seen.state), f"{seen.reason}{advice}", part)


def _advice(job: JobFacts) -> str:
    """Return the remedy for a waiting job by the rules of ``explain``; empty if no rule matches."""
    if job.workload is None and not job.pods:
        return ""  # Kueue or the job's controller has not seen it yet
    findings = explain(Facts(run=job.name, place="cluster", state="RUNNING", jobs=(job,))).findings
    known = [finding.remedy for finding in findings if finding.rule != UNKNOWN_WAIT]
    return f"; {known[0]}" if known else ""
