"""Kueue's objects for teams: flavors of the pools, one cohort, and a queue per team."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.teams import Pool, Team, TeamsSpec

Item = dict[str, Any]
VERSION = "kueue.x-k8s.io/v1beta2"
COHORT = "hopforge"
LOCAL_QUEUE = "default"
"""Name of a team's LocalQueue: Kueue from 0.17 gives jobs without a queue label the one of this name."""
_UNITS = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}


def cluster_objects(spec: TeamsSpec) -> list[Item]:
    """Return the objects that all queues share: flavors with their topologies, the cohort, and priorities."""
    items = []
    for name, pool in sorted(spec.pools.items()):
        if pool.topology:
            levels = [{"nodeLabel": label} for label in pool.topology]
            items.append(_object("Topology", name, {"levels": levels}))
        items.append(_object("ResourceFlavor", name, _flavor(name, pool)))
    items.append(_object("Cohort", COHORT, {}))
    for name, value in sorted(spec.priorities.items()):
        items.append(
            {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        )
    return items


def cluster_queue(name: str, team: Team, spec: TeamsSpec) -> Item:
    """Return a team's ClusterQueue, with quotas of CPU and memory: Kueue admits no job with an uncovered resource."""
    resources = sorted({spec.pools[pool].resource for pool in team.gpus} - {"cpu"})
    flavors = []
    for pool in team.pools:
        share = team.gpus[pool]
        limits = {"nominalQuota": share.nominal, "borrowingLimit": share.borrow, "lendingLimit": share.lent}
        amounts = {field: amounts_of(spec.pools[pool], count) for field, count in limits.items()}
        quotas = [
            {"name": resource} | {field: amounts[field].get(resource, "0") for field in limits}
            for resource in ("cpu", "memory", *resources)
        ]
        flavors.append({"name": pool, "resources": quotas})
    body = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "resourceGroups": [{"coveredResources": ["cpu", "memory", *resources], "flavors": flavors}],
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    }
    return _object("ClusterQueue", name, body)


def local_queue(team: str) -> Item:
    """Return the queue that a team's jobs name."""
    return _object("LocalQueue", LOCAL_QUEUE, {"clusterQueue": team})


def amounts_of(pool: Pool, count: int) -> dict[str, str]:
    """Return the resources of ``count`` GPUs of a pool: CPU cores, memory and the GPUs, as Kubernetes' quantities."""
    memory = count * mebibytes(pool.per_gpu.memory)
    gpus = {} if pool.resource == "cpu" else {pool.resource: str(count)}
    return {"cpu": str(count * pool.per_gpu.cpu), "memory": quantity(memory)} | gpus


def quantity(mebibytes: int) -> str:
    """Return an amount of memory in MiB as a quantity of Kubernetes."""
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def mebibytes(quantity: str) -> int:
    """Return a quantity of memory in Mi, Gi or Ti as MiB."""
    return int(quantity[:-2]) * _UNITS[quantity[-2:]]


def _flavor(name: str, pool: Pool) -> Item:
    taints = [taint.model_dump(exclude_defaults=True) | {"effect": taint.effect} for taint in pool.nodes.taints]
    # Kueue adds these to the pods that it admits, so that no recipe names a taint.
    tolerations = [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in pool.nodes.taints
    ]
    return (
        {"nodeLabels": dict(sorted(pool.nodes.labels.items()))}
        | ({"nodeTaints": taints, "tolerations": tolerations} if taints else {})
        | ({"topologyName": name} if pool.topology else {})
    )


def _object(kind: str, name: str, body: Item) -> Item:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": body}
