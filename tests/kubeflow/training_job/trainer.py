"""Kubeflow Trainer and Kueue, as far as they change a TrainJob: the merge with its runtime, and Kueue's rewriting.

Calibrated on the recordings (``tests/kubeflow/recorded/cluster/trainjob-and-jobset.json``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tests.kubeflow.training_job.api_server import pods_of_patch

Item = dict[str, Any]

KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "volumeMounts": "mountPath", "env": "name"}
"""Keys by which a strategic merge of pod specifications recognises the entries of a list; other lists are replaced."""
POD_FIELDS_OF_TRAINER_2_2 = {
    "affinity", "containers", "imagePullSecrets", "initContainers", "nodeSelector", "schedulingGates",
    "securityContext", "serviceAccountName", "tolerations", "volumes",
}  # fmt: skip


def merged(base: Item, patch: Item) -> Item:
    """Return a pod specification with a patch: of lists with keys, first the patch's entries, then the others."""
    result = copy.deepcopy(base)
    for field, value in patch.items():
        old = result.get(field)
        if isinstance(value, dict) and isinstance(old, dict):
            result[field] = merged(old, value)
        elif field in KEYS and isinstance(old, list):
            by_key = {entry[KEYS[field]]: entry for entry in old}
            mine = [merged(by_key.pop(entry[KEYS[field]], {}), entry) for entry in value]
            result[field] = mine + list(by_key.values())
        else:
            result[field] = copy.deepcopy(value)
    return result


def pod_of(trainjob: Item, runtime: Item) -> Item:
    """Return the pod specification of a TrainJob's pods, without the variables and ports that the Trainer adds."""
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    for patch in pods_of_patch(trainjob):
        pod = merged(pod, patch)
    trainer = trainjob["spec"]["trainer"]
    own = {key: trainer[key] for key in ("image", "command", "env")} | {"resources": trainer["resourcesPerNode"]}
    return merged(pod, {"containers": [{"name": "node", **own}]})


def rewrite(trainjob: Item) -> Iterable[str]:
    """Write a TrainJob's patches as Kueue 0.19.2 does; return the fields that are lost."""
    for pod in pods_of_patch(trainjob):
        for field in sorted(pod.keys() - POD_FIELDS_OF_TRAINER_2_2):
            del pod[field]
            yield field
