"""A job as a TrainJob of Kubeflow Trainer (v2)."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import Description

GROUP, VERSION, PLURAL, KIND = "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
CONTAINER = "node"  # of the runtime's replicated job of that name
POD_SELECTOR = "jobset.sigs.k8s.io/jobset-name"
PATCHES = "hopforge.dev/launcher"
RESTARTS_ARE_BOUNDED = True  # by the runtime's backoffLimit


def render(job: Description) -> dict[str, Any]:
    """Return the TrainJob: what runs is in ``trainer``, and the run's own pod settings are in a patch of the runtime.

    ``runtime`` has the pod settings that all jobs share.

    Raises:
        UserError: the job has a vLLM server in its pods. A patch can change a runtime's init containers, but not add
            any.
    """
    if job.sidecar is not None:
        raise UserError(
            "a TrainJob cannot bring the vLLM server of sampling.engine openai: set job.backend: pytorchjob, or give "
            "the url of a server that takes new weights"
        )
    spec = job.spec
    pod = job.pod(CONTAINER)
    container = pod["containers"][0]
    # The volumes' claim and size are the job's, and overwrite those of the runtime.
    patch: dict[str, Any] = {key: pod[key] for key in ("volumes", "nodeSelector", "tolerations") if key in pod}
    if mounts := job.run_mounts():
        patch["containers"] = [{"name": CONTAINER, "volumeMounts": mounts}]
    template = {"metadata": {"labels": job.pod_labels()}, "spec": patch}
    body: dict[str, Any] = {
        "runtimeRef": {"apiGroup": GROUP, "kind": "ClusterTrainingRuntime", "name": spec.runtime},
        "suspend": spec.queue is not None,
        "activeDeadlineSeconds": spec.run_timeout_seconds,
        "trainer": {
            "image": container["image"],
            "command": container["command"],
            "env": container["env"],
            "numNodes": spec.nodes,
            "numProcPerNode": job.processes_per_node,
            "resourcesPerNode": container["resources"],
        },
        "runtimePatches": [
            {
                "manager": PATCHES,
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {"replicatedJobs": [{"name": CONTAINER, "template": {"spec": {"template": template}}}]}
                    }
                },
            }
        ],
    }
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": job.metadata(body), "spec": body}


def makers(name: str) -> tuple[str, ...]:
    """Return the names of the objects whose events say why pods are missing: TrainJob and JobSet, and the Job."""
    return (name, f"{name}-{CONTAINER}-0")
