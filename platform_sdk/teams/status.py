"""Present use of GPUs: totals of Kueue's queues by pool and team."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from platform_sdk.config.struct import Struct
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.kubeflow.training_job.api import KUEUE_PATH, Item, UnexpectedForm, expected_form
from platform_sdk.teams.check import amount, limits
from platform_sdk.teams.cluster import Cluster, UnseenError


class TeamUsage(Struct):
    """GPUs of one team in one pool, and its waiting jobs."""

    pool: str
    team: str
    nominal: int
    used: int
    """GPUs that its jobs hold, borrowed ones included."""
    borrowed: int
    idle: int
    """Nominal GPUs not used by its own jobs; other teams may borrow them up to its lending limit."""
    lent: tuple[int, int] = (0, 0)
    """Minimum and maximum of its GPUs that others use: Kueue counts borrowed GPUs without their lender."""
    pending: int
    """Jobs that wait in its queue, for any pool."""
    oldest: datetime | None = None
    """Start of the oldest job's wait."""


class PoolUsage(Struct):
    """GPUs of one pool."""

    pool: str
    resource: str
    count: int
    used: int
    borrowed: int
    """GPUs in use beyond their team's nominal, so lent by others: Kueue does not report the lender."""


class Status(Struct):
    """Pools and teams as Kueue's objects describe them; ``unseen`` lists objects that could not be read."""

    pools: tuple[PoolUsage, ...]
    teams: tuple[TeamUsage, ...]
    unseen: tuple[str, ...] = ()


def read_status(spec: TeamsSpec, cluster: Cluster) -> Status:
    """Return the use of every pool by every team.

    Raises:
        UserError: the API server cannot be reached, or does not accept the credentials.
    """
    unseen: list[str] = []
    teams: list[TeamUsage] = []
    for name in sorted(spec.teams):
        try:
            queue = cluster.get(f"{KUEUE_PATH}/clusterqueues/{name}")
        except UnseenError as error:
            unseen.append(f"ClusterQueue {name}: {error}")
            continue
        if queue is None:
            unseen.append(f"ClusterQueue {name}: there is none; apply the rendered manifests")
            continue
        oldest = None
        try:
            with expected_form("their list"):
                oldest = _oldest(cluster.items(f"{KUEUE_PATH}/namespaces/{name}/workloads"))
        except (UnseenError, UnexpectedForm) as error:
            unseen.append(f"waiting jobs of {name}: {error}")
        try:
            with expected_form(f"ClusterQueue {name}"):
                teams += _usage(name, spec, queue, oldest)
        except UnexpectedForm as error:
            unseen.append(str(error))
    teams = [_with_lent(team, teams, spec) for team in teams]
    pools = tuple(
        PoolUsage(
            pool=name,
            resource=pool.resource,
            count=pool.count,
            used=sum(team.used for team in teams if team.pool == name),
            borrowed=sum(team.borrowed for team in teams if team.pool == name),
        )
        for name, pool in sorted(spec.pools.items())
    )
    return Status(pools=pools, teams=tuple(teams), unseen=tuple(unseen))


def _usage(name: str, spec: TeamsSpec, queue: Item, oldest: datetime | None) -> list[TeamUsage]:
    status = queue.get("status") or {}
    reserved = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsReservation") or ()
        for resource in flavor["resources"]
    }
    found = []
    for pool in spec.teams[name].pools:
        resource = spec.pools[pool].resource
        nominal = _number(limits(queue).get(f"{pool}/{resource}/nominalQuota", 0))
        own = reserved.get((pool, resource), {})
        used, borrowed = _number(own.get("total", 0)), _number(own.get("borrowed", 0))
        found.append(
            TeamUsage(
                pool=pool, team=name, nominal=nominal, used=used, borrowed=borrowed,
                idle=max(0, nominal - used), pending=int(status.get("pendingWorkloads") or 0), oldest=oldest,
            )
        )  # fmt: skip
    return found


def _with_lent(own: TeamUsage, teams: list[TeamUsage], spec: TeamsSpec) -> TeamUsage:
    """Return the usage with the minimum and maximum share of the team in all GPUs borrowed in the pool."""
    pool = [team for team in teams if team.pool == own.pool]
    borrowed = sum(team.borrowed for team in pool)
    lendable = {team.team: min(spec.teams[team.team].gpus[team.pool].lent, team.idle) for team in pool}
    others = sum(lendable.values()) - lendable[own.team]
    most = min(lendable[own.team], borrowed)
    return own.model_copy(update={"lent": (min(most, max(0, borrowed - others)), most)})


def _number(quantity: Any) -> int:
    return math.ceil(amount(quantity))


def _oldest(workloads: list[Item]) -> datetime | None:
    """Return the start of the longest wait for quota."""
    active = (item for item in workloads if (item.get("spec") or {}).get("active") is not False)
    waiting = [item for item in active if not (_has(item, "QuotaReserved") or _has(item, "Finished"))]
    return min(map(_waits_since, waiting), default=None)


def _waits_since(workload: Item) -> datetime:
    """Return the time of a Workload's creation, or of its last eviction, e.g. by a preemption."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    lost = [one.get("lastTransitionTime") for one in conditions if (one["type"], one["status"]) == ("Evicted", "True")]
    since = next(filter(None, lost), workload["metadata"]["creationTimestamp"])
    return datetime.fromisoformat(since).astimezone(UTC)


def _has(workload: Item, condition: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)
