"""A job of independent pods as a Kubernetes Indexed Job: each pod does the part with its index."""

from __future__ import annotations

from typing import Any

from platform_sdk.kubeflow.training_job.description import Description

GROUP, VERSION, PLURAL, KIND = "batch", "v1", "jobs", "Job"
CONTAINER = "shard"
POD_SELECTOR = "batch.kubernetes.io/job-name"
RESTARTS_ARE_BOUNDED = True  # by backoffLimitPerIndex
MINIMUM = "kueue.x-k8s.io/job-min-parallelism"


def render(job: Description) -> dict[str, Any]:
    """Return the object to create: ``spec.nodes`` pods, of which Kueue may admit some first and the others later."""
    spec = job.spec
    pod = {**job.pod(CONTAINER), "restartPolicy": "Never"}
    body: dict[str, Any] = {
        "suspend": spec.queue is not None,
        "completionMode": "Indexed",
        "completions": spec.nodes,
        "parallelism": spec.nodes,
        "backoffLimitPerIndex": spec.restarts,  # a part that fails does not end the others
        "podReplacementPolicy": "Failed",  # never two pods that write one part's files
        # A pod that gives way to another, or whose node goes, has not failed.
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "activeDeadlineSeconds": spec.run_timeout_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds,
        "template": {"metadata": job.pod_metadata(), "spec": pod},
    }
    metadata = job.metadata(body)
    if spec.queue is not None:
        metadata["annotations"][MINIMUM] = "1"
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": body}


def makers(name: str) -> tuple[str, ...]:
    """Return the names of the objects whose events explain missing pods."""
    return (name,)
