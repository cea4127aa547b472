"""Choice of a job's kind: from the cluster file, otherwise by the APIs that the cluster serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

from platform_sdk.config.cluster import JobSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.api import ClusterApi, Forbidden, serves
from platform_sdk.kubeflow.training_job.description import Description

BackendName = Literal["pytorchjob", "trainjob"]
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
    """Return the job with its backend chosen, if the cluster file does not set it and pods must be connected.

    A job of that name that an earlier launcher created keeps its kind. Otherwise the default is a TrainJob where the
    cluster serves Trainer 2's API.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    _check_program(job)
    if job.indexed or job.spec.backend is not None:
        return job
    for candidate in (with_backend(job, name) for name in get_args(BackendName)):
        if api_for(candidate, connection).get(job.name) is not None:
            return candidate
    return with_decided_backend(job) or with_backend(job, default_backend(job.spec, connection, tell))


def with_decided_backend(job: Description) -> Description | None:
    """Return the job with the backend that the cluster file and the job decide; None if the cluster's APIs decide."""
    _check_program(job)
    if job.indexed or job.spec.backend is not None:
        return job
    only_pytorchjob = job.spec.minimum_nodes is not None or _outside_runtimes(job) is not None
    return with_backend(job, "pytorchjob") if only_pytorchjob else None


def _outside_runtimes(job: Description) -> str | None:
    """Return why a job's program cannot be in a TrainJob, or None. A TrainJob cannot add a container to its runtime."""
    if job.program is None:
        return None
    if job.program.program.serves:
        return "agent.url of an image"
    image = job.program.program.image
    return None if image == job.spec.program.image else f"agent.image {image}, which is not job.program.image,"


def _check_program(job: Description) -> None:
    """Raise a UserError if the cluster file wants a TrainJob for a program that only a PyTorchJob can have."""
    if job.spec.backend == "trainjob" and (reason := _outside_runtimes(job)):
        raise UserError(
            f"{reason} cannot be in a TrainJob; set job.backend: pytorchjob in the cluster's file, or name the image "
            "in job.program.image and apply the runtimes again (python -m platform_sdk.kubeflow.training_job.runtime)"
        )


def default_backend(spec: JobSpec, connection: Any, tell: Callable[[str], None]) -> BackendName:
    """Return the kind of the jobs of a cluster file that does not name one.

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
        tell(f"cannot tell if the cluster serves TrainJobs ({error}); creating a PyTorchJob (job.backend chooses)")
        return "pytorchjob"


def with_backend(job: Description, backend: str) -> Description:
    """Return the job as another kind of object."""
    return replace(job, spec=job.spec.model_copy(update={"backend": backend}))
