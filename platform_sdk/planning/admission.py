"""Fit of planned jobs into the quota that a cluster's Kueue reports now."""

from __future__ import annotations

from collections.abc import Sequence

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.queues import pending
from platform_sdk.kubeflow.training_job.api import KUEUE_PATH, ApiUnavailable, Item, expected_form
from platform_sdk.kubeflow.training_job.kueue import read_configuration
from platform_sdk.planning.checks import Site
from platform_sdk.planning.jobs import PlannedJob
from platform_sdk.planning.quota import Fit, Queues, fit


def fits(site: Site, jobs: Sequence[PlannedJob]) -> list[Fit]:
    """Return the verdict on each job: it fits now, waits, never fits, or the quota may not be read.

    Raises:
        ApiUnavailable: the API server cannot be reached.
    """
    queue = site.cluster.job.queue
    if queue is None:
        return [Fit(verdict="unknown", reason="the cluster file names no queue, so the scheduler decides")] * len(jobs)
    try:
        with expected_form("an object"):
            return _fits(site, jobs, queue)
    except ApiUnavailable:
        raise
    except UserError as error:
        return [Fit(verdict="unknown", reason=f"the quota of queue {queue} cannot be read: {error}")] * len(jobs)


def _fits(site: Site, jobs: Sequence[PlannedJob], queue: str) -> list[Fit]:
    local = site.get(f"{KUEUE_PATH}/namespaces/{site.namespace}/localqueues/{queue}")
    own = local and site.get(f"{KUEUE_PATH}/clusterqueues/{local['spec']['clusterQueue']}")
    if not local or not own:
        missing = f"ClusterQueue {local['spec']['clusterQueue']}" if local else f"LocalQueue {queue}"
        return [Fit(verdict="unknown", reason=f"{missing} does not exist")] * len(jobs)
    queues = read_queues(site, own)
    waiting = _pending(site, queue)
    return [_with_state(fit(job, queues), local, own, waiting) for job in jobs]


def read_queues(site: Site, own: Item) -> Queues:
    """Return a ClusterQueue with the parts of its cohort that may be read."""
    name = str(own["spec"].get("cohortName") or "")
    cohort, shared = _cohort(site, name) if name else ((), None)
    return Queues(own, cohort, shared, _excluded(site))


def _cohort(site: Site, name: str) -> tuple[tuple[Item, ...] | None, Item | None]:
    try:
        listed = site.get(f"{KUEUE_PATH}/clusterqueues")
        shared = site.get(f"{KUEUE_PATH}/cohorts/{name}")  # a cohort without a quota has no object
    except ApiUnavailable:
        raise
    except UserError:
        return None, None
    if shared is not None and shared["spec"].get("parentName"):
        return None, None
    members = (listed or {}).get("items") or ()
    return tuple(item for item in members if item["spec"].get("cohortName") == name), shared


def _excluded(site: Site) -> tuple[str, ...] | None:
    """Return the prefixes of resources that Kueue ignores.

    None if Kueue's configuration may not be read, or transforms resources before counting them.
    """
    try:
        content = YAML(typ="safe").load(read_configuration(site.connection)) or {}
        resources = content.get("resources") or {}
        if resources.get("transformations") or resources.get("quotaCheckStrategy") == "IgnoreUndeclared":
            return None
        return tuple(resources.get("excludeResourcePrefixes") or ())
    except ApiUnavailable:
        raise
    except (UserError, YAMLError, AttributeError):
        return None


def _pending(site: Site, queue: str) -> list[str]:
    """Return the Workloads that wait in a LocalQueue, in its order; empty if Kueue does not show them."""
    try:
        return pending(site.connection, site.namespace, queue)
    except UserError:  # no right, or Kueue's visibility server is off
        return []


def _with_state(verdict: Fit, local: Item, own: Item, waiting: list[str]) -> Fit:
    """Return the verdict with regard to stopped queues and pending jobs."""
    if verdict.verdict not in ("now", "waits"):
        return verdict
    for kind, item in (("LocalQueue", local), ("ClusterQueue", own)):
        name = item["metadata"]["name"]
        if (item["spec"].get("stopPolicy") or "None") != "None":
            return Fit(verdict="waits", reason=f"{kind} {name} is stopped ({item['spec']['stopPolicy']})")
        for condition in (item.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Active" and condition["status"] == "False":
                return Fit(verdict="waits", reason=f"{kind} {name} is not active: {condition.get('message', '')}")
    others = int((own.get("status") or {}).get("pendingWorkloads") or 0)
    if not others or verdict.verdict == "waits":
        return verdict
    before = f"{others} other jobs are pending in ClusterQueue {own['metadata']['name']}"
    if waiting:
        before += f", {len(waiting)} of them in LocalQueue {local['metadata']['name']} (first {waiting[0]})"
    if own["spec"].get("queueingStrategy") == "StrictFIFO":
        return Fit(verdict="waits", reason=f"{before}, which admits in order")
    return verdict.model_copy(update={"reason": before})
