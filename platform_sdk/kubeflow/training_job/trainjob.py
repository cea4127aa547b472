"""A job as a TrainJob of Kubeflow Trainer (v2)."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import Description

GROUP, VERSION, PLURAL, KIND = "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
CONTAINER = "node"  # of the runtime's replicated job of that name
POD_SELECTOR = "jobset.sigs.k8s.io/jobset-name"
PATCHES = "hopforge.dev/launcher"


def render(job: Description) -> dict[str, Any]:
    """The object to create: what to run is said to the trainer, how its pods look as a patch of the runtime.

    Raises:
        UserError: a vLLM server is to stand beside the trainer. A patch can change a runtime's init containers, and add
            none.
    """
    if job.sidecar is not None:
        raise UserError(
            "a TrainJob cannot bring the vLLM server of sampling.engine openai: set job.backend: pytorchjob, or give "
            "the url of a server that takes new weights"
        )
    spec = job.spec
    pod = job.pod(CONTAINER)
    container = pod["containers"][0]
    # A patch may say this much of a pod; the rest the trainer is told, or the runtime has.
    patched = {key: container[key] for key in ("name", "volumeMounts", "securityContext")}
    patchable = {key: value for key, value in pod.items() if key != "automountServiceAccountToken"}
    template = {"metadata": {"labels": job.pod_labels()}, "spec": {**patchable, "containers": [patched]}}
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
