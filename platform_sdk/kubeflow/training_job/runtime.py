"""ClusterTrainingRuntime of TrainJobs: the pod settings that all jobs of a cluster share.

A TrainJob patches its runtime. Its patch can mount a volume only once, and Kueue writes it back with the fields that
Trainer 2.2 knows, so the patch holds the run's own settings and the runtime all others.

``python -m platform_sdk.kubeflow.training_job.runtime CLUSTER.yaml`` prints the runtime of a cluster file; the one of
``pipelines/cluster.yaml`` is in ``manifests/trainer``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.kubeflow.training_job.pod import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    POD_SECURITY,
    shared_mounts,
    volumes,
)
from platform_sdk.kubeflow.training_job.trainjob import CONTAINER, GROUP, VERSION

KIND = "ClusterTrainingRuntime"
RESTARTED = (130, 137, 143)
"""Exit codes after SIGINT, SIGKILL and SIGTERM."""


def render(cluster: ClusterSpec) -> dict[str, Any]:
    """Return the runtime that ``job.runtime`` of a cluster file names.

    As in a PyTorchJob, a pod that a signal ended is replaced, at most ``job.restarts`` times, and any other exit code
    fails the job at once. Pods that are preempted or drained are replaced without being counted.
    """
    job = cluster.job
    container = {
        "name": CONTAINER,  # its image is the TrainJob's
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": shared_mounts(cluster.workspace),
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": volumes(cluster.workspace, job.resources.shared_memory),
    }
    pod_job = {
        "backoffLimit": job.restarts,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": list(RESTARTED)},
                },
            ]
        },
        "template": {"spec": pod},
    }
    # The Trainer puts the processes into the job with this label.
    labelled = {"metadata": {"labels": {f"{GROUP}/trainjob-ancestor-step": "trainer"}}, "spec": pod_job}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": job.runtime, "labels": {f"{GROUP}/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": CONTAINER, "template": labelled}]}},
        },
    }


if __name__ == "__main__":
    YAML().dump(render(read_as(ClusterSpec, Path(sys.argv[1]))), sys.stdout)
