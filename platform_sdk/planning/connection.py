"""Connection of a plan to the cluster of KUBECONFIG."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import here
from platform_sdk.kubeflow.training_job.api import connect
from platform_sdk.planning.jobs import Place


def connected(cluster: ClusterSpec, namespace: str | None) -> tuple[Place, Any, str]:
    """Return the place of a plan, the connection to its API server or None, and the reason for None."""
    try:
        connection = connect()
    except UserError as error:
        return Place(cluster, namespace or "default"), None, f"only the cluster file was checked: {error}"
    return Place(cluster, namespace or current_namespace()), connection, ""


def current_namespace() -> str:
    """Return the namespace of this pod, else of KUBECONFIG's current context, else ``default``."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        return here.namespace()
    except UserError:
        pass
    try:
        _, current = list_kube_config_contexts()
    except ConfigException:
        return "default"
    return str(current["context"].get("namespace") or "default")
