"""Placement of a compiled pipeline's steps in a cluster: image, volume, amounts, and where jobs are made."""

from __future__ import annotations

from typing import Any
from unittest import mock

from kfp.dsl.pipeline_task import PipelineTask

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import LABEL_TASK, NO_MESH, TASK, label_value
from platform_sdk.kubeflow.training_job.pod import USER


def place(task: Any, cluster: ClusterSpec) -> None:
    """Give a KFP task what every step needs on the cluster.

    Raises:
        UserError: the package kfp-kubernetes is not installed.
    """
    try:
        from kfp import kubernetes
    except ImportError as error:
        raise UserError("compiling for a cluster needs kfp-kubernetes; pip install hopforge[cluster]") from error
    # At every setting KFP inspects the whole stack, which took most of the time of compiling a long recipe.
    with mock.patch.object(PipelineTask, "_ensure_container_spec_exists", _ensure_container):
        _place(task, cluster, kubernetes)


def _ensure_container(task: PipelineTask) -> None:
    """Raise what KFP raises for a task without a container, but without the caller's name."""
    if task.container_spec is None:
        raise ValueError(f"{task.name}: only single-step components can be placed on a cluster")


def _place(task: Any, cluster: ClusterSpec, kubernetes: Any) -> None:
    task.set_container_image(cluster.launcher_image)
    task.set_cpu_request(cluster.launcher.cpu).set_cpu_limit(cluster.launcher.cpu)
    task.set_memory_request(cluster.launcher.memory).set_memory_limit(cluster.launcher.memory)
    task.set_caching_options(False)  # every run has its own directory, so nothing is shared between runs
    # All others are set from the run directory (lifecycle.enter_cluster): Argo keeps these eight times for each step.
    for variable, value in cluster.environment.items():
        if variable.startswith("PYTHON"):
            task.set_env_variable(variable, value)
    # The whole volume, writable: KFP mounts no claim read-only and cannot name a run's own folder as a sub-path. Jobs
    # get it read-only, except for their run's folder and caches (training_job.description).
    kubernetes.mount_pvc(task, pvc_name=cluster.workspace.claim, mount_path=cluster.workspace.path)
    task.set_env_variable(TASK, task.name)
    for label, value in {LABEL_TASK: label_value(task.name), **NO_MESH}.items():
        kubernetes.add_pod_label(task, label, value)
    # What else a restricted namespace asks for KFP sets by itself, but it lets a step's image run as root,
    # and Kubernetes takes only the uid of an image's USER.
    kubernetes.set_security_context(task, run_as_non_root=True, run_as_group=USER)
    entries = {variable: entry.split("/", 1) for variable, entry in cluster.secrets.items()}
    for secret in dict.fromkeys(name for name, _ in entries.values()):
        keys = {key: variable for variable, (name, key) in entries.items() if name == secret}
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=keys)
