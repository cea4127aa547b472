"""A job as a TrainJob of Kubeflow Trainer (v2)."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.cluster import JobSpec
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.pod import SAMPLER

GROUP, VERSION, PLURAL, KIND = "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
CONTAINER = "node"  # of the runtime's replicated job of that name
POD_SELECTOR = "jobset.sigs.k8s.io/jobset-name"
PATCHES = "hopforge.dev/launcher"
RESTARTS_ARE_BOUNDED = True  # by the runtime's backoffLimit


def render(job: Description) -> dict[str, Any]:
    """Return the TrainJob: what runs is in ``trainer``, and the run's own pod settings are in a patch of the runtime.

    The runtime has the pod settings that all jobs share, and for a job with a vLLM server or a program's image also
    their containers, because a patch can change a runtime's init containers, but not add any, nor change their images.
    """
    spec = job.spec
    pod = job.pod(CONTAINER)
    container = pod["containers"][0]
    # The job's claim and size of volumes replace the runtime's.
    patch: dict[str, Any] = {key: pod[key] for key in ("volumes", "nodeSelector", "tolerations") if key in pod}
    if mounts := job.run_mounts():
        patch["containers"] = [{"name": CONTAINER, "volumeMounts": mounts}]
    for server in pod.get("initContainers", ()):
        if server["name"] == SAMPLER:  # a program has nothing of the run
            patch["initContainers"] = [{"name": SAMPLER, "env": server["env"], "volumeMounts": mounts}]
    template = {"metadata": job.pod_metadata(), "spec": patch}
    body: dict[str, Any] = {
        "runtimeRef": {
            "apiGroup": GROUP,
            "kind": "ClusterTrainingRuntime",
            "name": runtime_name(spec, job.sidecar is not None, job.program is not None),
        },
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


def runtime_name(spec: JobSpec, online: bool, program: bool = False) -> str:
    """Return the name of the ClusterTrainingRuntime of jobs, with a vLLM server or a user's program or without."""
    return f"{spec.runtime}{'-online' * online}{'-program' * program}"


def makers(name: str) -> tuple[str, ...]:
    """Return the names of the objects whose events explain missing pods: TrainJob and JobSet, and the Job."""
    return (name, f"{name}-{CONTAINER}-0")
