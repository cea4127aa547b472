"""Quota of a team's namespace, the cluster file of its runs, and the runtimes that the file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.teams import Team, TeamsSpec
from platform_sdk.kubeflow.training_job.runtime import runtimes
from platform_sdk.teams import queues

Item = dict[str, Any]
# Quota for the pods of steps, which have no GPU, in addition to the jobs of a team's queue.
STEPS = {"requests.cpu": 64, "limits.cpu": 128}
STEPS_MEMORY = 512 * 1024  # MiB


def quota(team: Team, spec: TeamsSpec) -> dict[str, str]:
    """Return the limits of the namespace: the queue's quota with all that it may borrow, and room for steps."""
    cpu, memory, gpus = 0, STEPS_MEMORY, dict[str, int]()
    for pool in sorted(team.gpus):
        most = team.gpus[pool].nominal + team.gpus[pool].borrow
        own = spec.pools[pool]
        cpu += most * own.per_gpu.cpu
        memory += most * queues.mebibytes(own.per_gpu.memory)
        if own.resource != "cpu":
            gpus[own.resource] = gpus.get(own.resource, 0) + most
    quota = {key: str(cpu + room) for key, room in STEPS.items()}
    quota |= {key: queues.quantity(memory) for key in ("requests.memory", "limits.memory")}
    quota |= {f"requests.{resource}": str(count) for resource, count in sorted(gpus.items())}
    return quota | {
        "pods": "500",
        "persistentvolumeclaims": "10",
        "requests.storage": team.storage,
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }


def runtime_name(team: str) -> str:
    """Return the name of the runtime of a team's TrainJobs, whose sampler has the team's size."""
    return f"hopforge-{team}"


def training_runtimes(name: str, spec: TeamsSpec, template: Mapping[str, Any]) -> list[Item]:
    """Return the ClusterTrainingRuntimes of a team's TrainJobs."""
    return runtimes(ClusterSpec.model_validate(cluster_file(name, spec, template)))


def cluster_file(name: str, spec: TeamsSpec, template: Mapping[str, Any]) -> Item:
    """Return the content of a team's ``cluster.yaml``, based on ``pipelines/cluster.yaml``."""
    team = spec.teams[name]
    pool = spec.pools[team.job.pool]
    trainer, sampler = (queues.amounts_of(pool, count) for count in (team.job.gpus, team.job.sampler_gpus))
    counted = pool.resource != "cpu"
    resources: Item = dict(template["job"]["resources"]) | {
        "cpu": trainer["cpu"],
        "memory": trainer["memory"],
        "gpus": team.job.gpus if counted else 0,
    }
    if counted:
        resources["gpu_resource"] = pool.resource
    if pool.gpu_memory is not None:
        resources["gpu_memory"] = pool.gpu_memory
    job: Item = dict(template["job"]) | {
        "image": spec.images.trainer,
        "nodes": team.job.nodes,
        "resources": resources,
        "queue": queues.LOCAL_QUEUE,
        "runtime": runtime_name(name),
        "priority": team.priorities.default,
    }
    job.pop("sampler", None)
    if team.job.sampler_gpus:
        sampling = {"cpu": sampler["cpu"], "memory": sampler["memory"], "gpus": team.job.sampler_gpus * counted}
        job["sampler"] = {"image": spec.images.sampler, "resources": sampling}
    if pool.topology:
        job["topology"] = pool.topology[-1]
    content = dict(template) | {
        "launcher_image": spec.images.launcher,
        "service_account": "default-editor",
        "environment": dict(template["environment"]) | {"MLFLOW_WORKSPACE": name},
        "job": job,
    }
    if spec.pipelines_url is not None:
        content["pipelines_url"] = spec.pipelines_url
    if spec.mlflow == "kubernetes":
        content["environment"] |= {
            "MLFLOW_TRACKING_URI": spec.mlflow_service,
            "MLFLOW_TRACKING_AUTH": "kubernetes-namespaced",
        }
        for place in (content, job):
            place["secrets"] = {key: entry for key, entry in place["secrets"].items() if not key.startswith("MLFLOW_")}
    ClusterSpec.model_validate(content)
    return content
