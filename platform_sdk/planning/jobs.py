"""Jobs that the steps of a recipe create on a cluster, from the functions with which the launcher creates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from platform_sdk.config.cluster import ClusterSpec, bytes_of
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.struct import Struct
from platform_sdk.config.task import FromTask, Task
from platform_sdk.execution.step import StepInputs, load_step
from platform_sdk.kubeflow.lifecycle import run_folder
from platform_sdk.kubeflow.training_job.backend import BACKENDS, with_decided_backend
from platform_sdk.kubeflow.training_job.description import TASK, Description
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.sampling.pairs import ROLES

RUN_ID = "00000000-0000-0000-0000-000000000000"
"""Placeholder of the id that Kubeflow Pipelines gives a run."""
UNDECIDED = "PyTorchJob or TrainJob"
Choice = Callable[[Description], Description | None]
"""Chooses the kind of a job; None if the cluster decides and cannot be reached."""


class PlannedJob(Struct):
    """A job of a step.

    Attributes:
        pods: number of pods.
        requests: a pod's requests by resource, e.g. cpu, memory, nvidia.com/gpu; of all its containers.
        gpus: GPUs of a pod.
        manifest: the object that the launcher creates, without its owner; None if its kind is undecided.
    """

    step: str
    name: str
    kind: str
    pods: int
    requests: dict[str, float]
    gpus: int
    queue: str | None
    priority: str | None
    manifest: dict[str, Any] | None = None


@dataclass(frozen=True)
class Place:
    """The cluster, namespace and run id for which jobs are described."""

    cluster: ClusterSpec
    namespace: str = "default"
    run_id: str = RUN_ID
    choose: Choice = with_decided_backend


def planned_jobs(recipe: Recipe, place: Place) -> tuple[list[PlannedJob], list[str]]:
    """Return the jobs of a new run in order, and the reasons why steps cannot have a job.

    Steps that only read files or use the policy's tokenizer create no job. An evaluation creates none if the run has
    evaluated equal weights in the same way before.
    """
    run_dir = run_folder(place.cluster.workspace.path, recipe.name, place.run_id)
    jobs: list[PlannedJob] = []
    faults: dict[str, list[str]] = {}
    for task in recipe.plan:
        try:
            for processes in _processes(task, recipe, run_dir):
                jobs.append(_job(task, processes, place, run_dir))
        except UserError as error:
            faults.setdefault(str(error), []).append(task.id)
    return jobs, [f"{', '.join(steps)}: {message}" for message, steps in faults.items()]


def requests_of(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return the sum of the requests of a pod's containers and sidecars, by resource."""
    total: dict[str, float] = {}
    sidecars = [one for one in pod.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    for container in (*pod["containers"], *sidecars):
        for resource, quantity in container["resources"]["requests"].items():
            total[resource] = total.get(resource, 0.0) + bytes_of(quantity)
    return total


def _job(task: Task, processes: StepProcesses, place: Place, run_dir: Path) -> PlannedJob:
    variables = {**place.cluster.environment, TASK: task.group or task.id}
    described = describe(processes, place.cluster, run_dir, place.namespace, variables)
    chosen = place.choose(described)
    job = chosen or described
    backend = BACKENDS[job.backend]
    requests = requests_of(job.pod(backend.CONTAINER))
    return PlannedJob(
        step=task.id,
        name=job.name,
        kind=backend.KIND if chosen else UNDECIDED,
        pods=job.spec.nodes,
        requests=requests,
        gpus=int(requests.get(job.spec.resources.gpu_resource, 0)),
        queue=job.spec.queue,
        priority=job.spec.priority,
        manifest=backend.render(job) if chosen else None,
    )


def _processes(task: Task, recipe: Recipe, run_dir: Path) -> Iterator[StepProcesses]:
    module: Any = load_step(task.component)
    if not hasattr(module, "processes"):
        return
    inputs = _placeholders(module.Inputs) | recipe.known_inputs(task, run_dir)
    roles = ROLES if task.component == "train" and _trains_pair(task, recipe, run_dir) else ()
    options = {"roles": roles} if roles else {}
    yield from module.processes(module.Inputs.model_validate(inputs), **options)


def _placeholders(inputs: type[StepInputs]) -> dict[str, Any]:
    """Return values for the required inputs, which earlier steps would hand on and no job's description depends on."""
    return {name: _placeholder(field.annotation) for name, field in inputs.model_fields.items() if field.is_required()}


def _placeholder(annotation: Any) -> Any:
    kind = get_origin(annotation) or annotation
    return "" if kind is Path else kind()


def _trains_pair(task: Task, recipe: Recipe, run_dir: Path) -> bool:
    """Return True if a step's initial policy is a pair of models, which the step policy makes."""
    tasks = {one.id: one for one in recipe.plan}
    while task.component != "policy":
        wire = task.inputs.get("model_path")
        if not isinstance(wire, FromTask):
            return False
        task = tasks[wire.task]
    return bool(recipe.known_inputs(task, run_dir).get("worker_name"))
