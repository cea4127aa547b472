"""A job as a PyTorchJob of the training-operator (v1)."""

from __future__ import annotations

from typing import Any

from platform_sdk.kubeflow.training_job.description import Description

GROUP, VERSION, PLURAL, KIND = "kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"
CONTAINER = "pytorch"  # required by the webhook
POD_SELECTOR = "training.kubeflow.org/job-name"
RESTARTS_ARE_BOUNDED = False  # backoffLimit does not count pods that are replaced


def render(job: Description) -> dict[str, Any]:
    """Return the object to create: one Master and, for more nodes, Workers (the webhook takes no other roles)."""
    spec = job.spec
    template = {"metadata": job.pod_metadata(), "spec": job.pod(CONTAINER)}
    # The operator replaces a pod whose exit code is 128 or more; a lower code fails the job.
    replica = {"restartPolicy": "ExitCode", "template": template}
    replicas = {"Master": {"replicas": 1, **replica}}
    if spec.nodes > 1:
        replicas["Worker"] = {"replicas": spec.nodes - 1, **replica}
    body: dict[str, Any] = {
        "runPolicy": {
            # Kueue admits suspended jobs; without a queue the job starts at once.
            "suspend": spec.queue is not None,
            "cleanPodPolicy": "Running",  # finished pods stay to be looked at, others give their GPUs back
            "activeDeadlineSeconds": spec.run_timeout_seconds,
            "ttlSecondsAfterFinished": spec.ttl_seconds,
            "backoffLimit": spec.restarts,
        },
        "nprocPerNode": str(job.processes_per_node),
        "pytorchReplicaSpecs": replicas,
    }
    if spec.minimum_nodes is not None:
        body["elasticPolicy"] = {
            "minReplicas": spec.minimum_nodes,
            "maxReplicas": spec.nodes,
            "maxRestarts": spec.restarts,
            "rdzvBackend": "c10d",
        }
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": job.metadata(body), "spec": body}


def makers(name: str) -> tuple[str, ...]:
    """Return the names of the objects whose events explain missing pods."""
    return (name,)
