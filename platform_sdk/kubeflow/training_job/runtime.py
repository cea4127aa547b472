"""ClusterTrainingRuntime of TrainJobs: the pod settings that all jobs of a cluster share.

A TrainJob patches its runtime. The patch can mount a volume only once, and Kueue writes it back with only the fields of
Trainer 2.2. So the patch contains the run's own settings, and the runtime all others.

``python -m platform_sdk.kubeflow.training_job.runtime CLUSTER.yaml`` prints the runtimes of a cluster file: one for
jobs, with ``job.sampler`` another for jobs with a vLLM server, whose container no patch could add, and with
``job.program.image`` two more for jobs with a program of this image. The runtimes of
``pipelines/cluster.yaml`` are in ``manifests/trainer``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec, SamplerSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.pod import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    POD_SECURITY,
    program,
    program_volumes,
    server,
    shared_mounts,
    volumes,
)
from platform_sdk.kubeflow.training_job.trainjob import CONTAINER, GROUP, VERSION, runtime_name
from platform_sdk.processes.torchrun import NODE_LOST

KIND = "ClusterTrainingRuntime"
RESTARTED = (130, 137, 143)
"""Exit codes after SIGINT, SIGKILL and SIGTERM."""


def runtimes(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """Return all runtimes of a cluster file."""
    samplers = [None] if cluster.job.sampler is None else [None, cluster.job.sampler]
    images = [None] if cluster.job.program.image is None else [None, cluster.job.program.image]
    return [render(cluster, sampler, image) for image in images for sampler in samplers]


def render(
    cluster: ClusterSpec, sampler: SamplerSpec | None = None, program_image: str | None = None
) -> dict[str, Any]:
    """Return the runtime that ``job.runtime`` of a cluster file names; with ``sampler``, its variant for online jobs,
    and with ``program_image`` for jobs whose program has this image.

    As in a PyTorchJob, a pod that a signal ended is replaced, at most ``job.restarts`` times, and any other exit code
    fails the job at once. Pods that are preempted or drained are replaced without being counted, and so are pods that
    lost the first node: with many nodes, one drain of the first would reach the limit. The first node's own end counts.
    """
    job = cluster.job
    container = {
        "name": CONTAINER,  # its image is the TrainJob's
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": shared_mounts(cluster.workspace),
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": volumes(cluster.workspace, job.resources.shared_memory),
    }
    if sampler is not None:
        pod["initContainers"] = [server(sampler, cluster.workspace, job.resources.gpu_resource)]
    if program_image is not None:
        pod["initContainers"] = [*pod.get("initContainers", ()), *program(program_image, job.program, job.image)]
        pod["volumes"] = [*pod["volumes"], *program_volumes()]
    pod_job = {
        "backoffLimit": job.restarts,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": _exit_codes("In", NODE_LOST)},
                {"action": "FailJob", "onExitCodes": _exit_codes("NotIn", *RESTARTED)},
            ]
        },
        "template": {"spec": pod},
    }
    # The Trainer puts the processes into the job with this label.
    labelled = {"metadata": {"labels": {f"{GROUP}/trainjob-ancestor-step": "trainer"}}, "spec": pod_job}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": runtime_name(job, sampler is not None, program_image is not None),
            "labels": {f"{GROUP}/framework": "torch"},
        },
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": CONTAINER, "template": labelled}]}},
        },
    }


def _exit_codes(operator: str, *values: int) -> dict[str, Any]:
    return {"containerName": CONTAINER, "operator": operator, "values": list(values)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: give one cluster file: python -m platform_sdk.kubeflow.training_job.runtime CLUSTER.yaml")
    yaml = YAML()
    yaml.width = 100_000
    yaml.representer.ignore_aliases = lambda data: True
    try:
        yaml.dump_all(runtimes(read_as(ClusterSpec, Path(sys.argv[1]))), sys.stdout)
    except UserError as error:
        sys.exit(f"error: {error}")
