"""Kueue's configuration: the kinds of jobs that it manages.

A job of a kind that is missing there keeps its queue label, but Kueue creates no Workload for it: it never counts
against a quota, and whatever resumes it runs it past every quota.
"""

from __future__ import annotations

from typing import Any

from platform_sdk.config.cluster import JobSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import ClusterApi, connect
from platform_sdk.kubeflow.training_job.backend import BACKENDS, default_backend

NAMESPACE, CONFIG_MAP, KEY = "kueue-system", "kueue-manager-config", "controller_manager_config.yaml"
DEFAULT_FRAMEWORKS = frozenset({"batch/job"})  # Kueue's own, if its configuration lists none


def framework(backend: str) -> str:
    """Return Kueue's name for the integration of a kind of job, e.g. ``kubeflow.org/pytorchjob``."""
    kind = BACKENDS[backend]
    return f"{kind.GROUP}/{kind.KIND.lower()}"


def remedy(backend: str) -> str:
    """Return the remedy for a kind of job that Kueue does not manage."""
    return (
        f"add {framework(backend)} to integrations.frameworks in the ConfigMap {CONFIG_MAP} of {NAMESPACE} and "
        "restart Kueue's controller (docs/cluster.md), set job.backend to a kind that is listed there, or leave out "
        "job.queue (--queue)"
    )


def manages(configuration: str, backend: str) -> bool:
    """Return True if Kueue with this configuration (YAML) manages jobs of this kind.

    Raises:
        UserError: it is not a Kueue configuration.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe").load(configuration)
        integrations = content.get("integrations") or {}
        listed = integrations.get("frameworks")
        external = integrations.get("externalFrameworks") or ()
        kind = BACKENDS[backend]
        return (
            framework(backend) in (DEFAULT_FRAMEWORKS if listed is None else listed)
            or f"{kind.KIND}.{kind.VERSION}.{kind.GROUP}" in external
        )
    except (YAMLError, AttributeError, TypeError) as error:
        raise UserError(f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {KEY} is not a Kueue configuration: {error}") from error


def read_configuration(connection: Any) -> str:
    """Return the configuration of the cluster's Kueue (YAML).

    Raises:
        UserError, ApiUnavailable: it is not in the ConfigMap of Kueue's manifests and chart, or cannot be read.
    """
    found = ClusterApi.call(connection.core_api.read_namespaced_config_map, CONFIG_MAP, NAMESPACE)
    text = (getattr(found, "data", None) or {}).get(KEY)
    if text is None:
        raise UserError(f"ConfigMap {NAMESPACE}/{CONFIG_MAP} has no key {KEY}")
    return str(text)


def check_queueing(spec: JobSpec, connection: Any = None) -> str:
    """Check, before a run starts, that Kueue manages the kind of job that it will create.

    Returns:
        The reason if the check was not possible; empty if it passed or there is no queue.

    Raises:
        UserError: Kueue's configuration leaves that kind out.
    """
    if spec.queue is None:
        return ""
    notes: list[str] = []
    try:
        connection = connection or connect()
        backend = default_backend(spec, connection, notes.append)
        managed = manages(read_configuration(connection), backend)
    except UserError as error:
        return "; ".join([*notes, f"cannot check that Kueue manages the jobs of queue {spec.queue}: {error}"])
    if not managed:
        raise UserError(
            f"queue {spec.queue}: Kueue does not manage {BACKENDS[backend].KIND}s on this cluster, so jobs would stay "
            f"suspended: its configuration does not list {framework(backend)} (since 0.19 the default "
            f"leaves PyTorchJobs out); {remedy(backend)}",
            code="cluster.kind-not-managed",
        )
    return "; ".join(notes)
