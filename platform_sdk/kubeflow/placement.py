"""Placement of a compiled pipeline's steps in a cluster: image, volume, resources, labels and Secrets."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.cluster import ClusterSpec, bytes_of
from platform_sdk.kubeflow.training_job.description import LABEL_TASK, NO_MESH, TASK, label_value
from platform_sdk.kubeflow.training_job.pod import USER

Item = dict[str, Any]


def placed(container: Item, task: str, cluster: ClusterSpec) -> Item:
    """Return the container of a step with the image, the amounts and the environment that it has on the cluster."""
    cpu, memory = cluster.launcher.cpu, cluster.launcher.memory
    # Servers before 2.4 read the numbers, later ones the texts.
    numbers = {"cpu": bytes_of(cpu), "memory": bytes_of(memory) / 1e9}
    resources: Item = {}
    for name, text in {"cpu": cpu, "memory": memory}.items():
        for limit in ("Limit", "Request"):
            resources[f"{name}{limit}"] = numbers[name]
            resources[f"resource{name.capitalize()}{limit}"] = text
    # All others are set from the run directory (lifecycle.enter_cluster): Argo keeps these eight times for each step.
    python = {name: value for name, value in cluster.environment.items() if name.startswith("PYTHON")}
    environment = [{"name": name, "value": value} for name, value in {**python, TASK: task}.items()]
    return container | {"image": cluster.launcher_image, "resources": resources, "env": environment}


def pod(task: str, cluster: ClusterSpec) -> Item:
    """Return the volume, labels, security and Secrets of a step's pod, as kfp-kubernetes writes them."""
    content: Item = {
        # The whole volume, writable: KFP mounts no claim read-only and cannot name a run's own folder as a sub-path.
        # Jobs get it read-only, except for their run's folder and caches (training_job.description).
        "pvcMount": [
            {
                "constant": cluster.workspace.claim,
                "pvcNameParameter": _constant(cluster.workspace.claim),
                "mountPath": cluster.workspace.path,
            }
        ],
        "podMetadata": {"labels": {LABEL_TASK: label_value(task), **NO_MESH}},
        # KFP sets the other fields that a restricted namespace requires. But KFP allows root, and Kubernetes uses
        # only the uid of an image's USER.
        "securityContext": {"runAsNonRoot": True, "runAsGroup": str(USER)},
    }
    entries = {variable: entry.split("/", 1) for variable, entry in cluster.secrets.items()}
    secrets = [
        {
            "secretName": secret,
            "secretNameParameter": _constant(secret),
            "keyToEnv": [
                {"secretKey": key, "envVar": variable} for variable, (name, key) in entries.items() if name == secret
            ],
            "optional": False,
        }
        for secret in dict.fromkeys(name for name, _ in entries.values())
    ]
    return content | ({"secretAsEnv": secrets} if secrets else {})


def _constant(text: str) -> Item:
    return {"runtimeValue": {"constant": text}}
