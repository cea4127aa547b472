"""Choice of a job's kind: from the cluster file, or else by the APIs that the cluster serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from platform_sdk.config.cluster import BackendName, JobSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.api import ClusterApi, Forbidden, serves
from platform_sdk.kubeflow.training_job.description import Description

BACKENDS = {"pytorchjob": pytorchjob, "trainjob": trainjob, "job": indexedjob}


def api_of(backend: str, namespace: str, connection: Any = None) -> ClusterApi:
    """Return the API of a kind of job in a namespace."""
    kind = BACKENDS[backend]
    return ClusterApi(
        namespace, group=kind.GROUP, version=kind.VERSION, plural=kind.PLURAL, selector=kind.POD_SELECTOR,
        connection=connection,
    )  # fmt: skip


def api_for(job: Description, connection: Any = None) -> ClusterApi:
    """Return the API of the job's kind."""
    return api_of(job.backend, job.namespace, connection)


def choose_backend(job: Description, connection: Any, tell: Callable[[str], None]) -> Description:
    """Return the job with its backend chosen, if the cluster file does not set it and the job is not ``indexed``.

    A job of that name that an earlier launcher created keeps its kind. Otherwise the default is a TrainJob if the
    cluster serves Trainer 2's API.

    Raises:
        UserError: the cluster file sets TrainJobs, and the job's program can only be in a PyTorchJob.
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    decided = with_decided_backend(job)
    if decided is job:
        return job
    for candidate in (with_backend(job, name) for name in get_args(BackendName)):
        if api_for(candidate, connection).get(candidate.name) is not None:
            return candidate
    return decided or with_backend(job, default_backend(job.spec, connection, tell))


def with_decided_backend(job: Description) -> Description | None:
    """Return the job with the backend that the cluster file and the job decide; None if the cluster's APIs decide.

    Raises:
        UserError: see ``choose_backend``.
    """
    fault = _fault_of_trainjob(job)
    if fault is not None and job.spec.backend == "trainjob":
        raise UserError(fault)
    if job.indexed or job.spec.backend is not None:
        return job
    return with_backend(job, "pytorchjob") if fault is not None or job.spec.minimum_nodes is not None else None


def _fault_of_trainjob(job: Description) -> str | None:
    """Return an error message if the job's program cannot be in a TrainJob, which has only its runtime's containers."""
    own = None if job.program is None else job.program.program
    remedy = "cannot be in a TrainJob; set job.backend: pytorchjob in the cluster's file"
    if own is not None and own.serves:
        return f"agent.image with agent.url {remedy}"
    if own is None or own.image == job.spec.program.image:
        return None
    return (
        f"agent.image {own.image}, which is not job.program.image, {remedy}, or name the image in job.program.image "
        "and apply the runtimes again (python -m platform_sdk.kubeflow.training_job.runtime CLUSTER.yaml)"
    )


def default_backend(spec: JobSpec, connection: Any, tell: Callable[[str], None]) -> BackendName:
    """Return the default kind of a cluster file's jobs: ``job.backend``, or else a kind that the cluster serves.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    if spec.backend is not None:
        return spec.backend
    if spec.minimum_nodes is not None:  # elastic training
        return "pytorchjob"
    try:
        return "trainjob" if serves(connection, trainjob.GROUP, trainjob.VERSION, trainjob.PLURAL) else "pytorchjob"
    except Forbidden as error:
        tell(f"no right to see if the cluster serves TrainJobs ({error}); creating a PyTorchJob (job.backend chooses)")
        return "pytorchjob"


def with_backend(job: Description, backend: str) -> Description:
    """Return the job as another kind of object."""
    return replace(job, spec=job.spec.model_copy(update={"backend": backend}))
