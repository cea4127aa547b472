"""Plan of a run on a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.struct import Struct
from platform_sdk.kubeflow.training_job.backend import default_backend, with_backend, with_decided_backend
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.methods.faults import errors
from platform_sdk.planning.admission import fits
from platform_sdk.planning.checks import Check, Site, checks
from platform_sdk.planning.history import EarlierRuns, earlier_runs
from platform_sdk.planning.jobs import Place, PlannedJob, planned_jobs
from platform_sdk.planning.quota import Fit
from platform_sdk.planning.steps import PlannedStep


class StepPod(Struct):
    """Pod of a step, which creates the step's job and waits for it."""

    image: str
    cpu: str
    memory: str


class ClusterPlan(Struct):
    """Steps and jobs of a new run on a cluster.

    Attributes:
        fits: whether each job fits into its queue's quota, by the job's name; empty without an API server.
        checks: checks by requests to the API server, with their results.
        notes: checks that were not possible.
        problems: the reasons why the run cannot work.
    """

    recipe: str
    pipeline: str
    namespace: str
    steps: tuple[PlannedStep, ...]
    step_pod: StepPod
    jobs: tuple[PlannedJob, ...]
    earlier: EarlierRuns = EarlierRuns()
    fits: dict[str, Fit] = Field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return not self.problems


def plan_on_cluster(recipe: Recipe, place: Place, connection: Any = None) -> ClusterPlan:
    """Return the plan of a recipe's run on a cluster, with the durations of earlier runs; nothing is created.

    Args:
        connection: a ``kubeflow.training.TrainingClient``; None to plan by the cluster file alone.
    """
    return check_on_cluster(recipe, place, connection).model_copy(update={"earlier": earlier_runs(recipe, None)})


def check_on_cluster(recipe: Recipe, place: Place, connection: Any = None) -> ClusterPlan:
    """Return the plan without earlier runs; see ``plan_on_cluster``."""
    cluster, notes = place.cluster, list[str]()
    verdicts: dict[str, Fit] = {}
    done: list[Check] = []
    try:
        if connection is not None:
            backend = default_backend(cluster.job, connection, notes.append)
            place = Place(cluster, place.namespace, place.run_id, partial(_with_default, backend))
    except UserError as error:
        notes.append(f"only the cluster file was checked: {error}")
        connection = None
    jobs, faults = planned_jobs(recipe, place)
    if connection is not None:
        site = Site(connection, place.namespace, cluster)
        try:
            done += checks(site, jobs)
            verdicts = {job.name: one for job, one in zip(jobs, fits(site, jobs), strict=True)}
        except UserError as error:
            notes.append(f"the checks on the cluster are incomplete: {error}")
    return ClusterPlan(
        recipe=recipe.name,
        pipeline=recipe.pipeline.name,
        namespace=place.namespace,
        steps=tuple(PlannedStep(step=task.id, component=task.component) for task in recipe.plan),
        step_pod=_step_pod(cluster),
        jobs=tuple(jobs),
        fits=verdicts,
        checks=tuple(done),
        notes=tuple(notes),
        problems=(
            *(str(problem) for problem in errors(recipe, cluster)),
            *faults,
            *(f"{check.subject}: {check.message}" for check in done if check.state == "failed"),
            *never_fitting(jobs, verdicts),
        ),
    )


def never_fitting(jobs: list[PlannedJob], verdicts: dict[str, Fit]) -> list[str]:
    """Return the reasons why jobs can never be admitted, each with its steps."""
    steps: dict[str, list[str]] = {}
    for job in jobs:
        if job.name in verdicts and verdicts[job.name].verdict == "never":
            steps.setdefault(verdicts[job.name].reason, []).append(job.step)
    return [
        f"{', '.join(dict.fromkeys(named))}: never fits: {reason}; lower job.resources or job.nodes in the cluster "
        "file, or ask for more quota"
        for reason, named in steps.items()
    ]


def _with_default(backend: str, job: Description) -> Description:
    return with_decided_backend(job) or with_backend(job, backend)


def _step_pod(cluster: ClusterSpec) -> StepPod:
    return StepPod(image=cluster.launcher_image, cpu=cluster.launcher.cpu, memory=cluster.launcher.memory)
