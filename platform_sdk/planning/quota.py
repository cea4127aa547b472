"""Fit of a job into the quota of its Kueue queue, by Kueue's rules.

A queue's capacity for a resource is its nominal quota plus the amount that it may borrow from its cohort. A job that
exceeds the capacity of every flavor is never admitted. Objects that this account may not read count as unknown, and
never lead to the verdict ``never``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from platform_sdk.config.cluster import bytes_of
from platform_sdk.config.struct import Struct
from platform_sdk.planning.jobs import PlannedJob

Item = dict[str, Any]
Verdict = Literal["now", "waits", "never", "unknown"]
Cell = tuple[str, str]  # flavor, resource
PODS = "pods"
UNSEEN = "the quota of the other queues in the cohort of ClusterQueue {} cannot be read"


class Fit(Struct):
    """Verdict on a job's admission, with the reason."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Queues:
    """Queues of a job as the API server shows them.

    Attributes:
        own: the ClusterQueue of the job's LocalQueue.
        cohort: the ClusterQueues of its cohort, itself included; None if they may not be listed or the cohort has a
            parent, so that its quota is unknown.
        shared: the quota of the Cohort object itself; None if there is none.
        excluded: prefixes of resources that Kueue ignores; None if its configuration may not be read.
    """

    own: Item
    cohort: tuple[Item, ...] | None = ()
    shared: Item | None = None
    excluded: tuple[str, ...] | None = ()

    @property
    def cohort_name(self) -> str:
        return str(self.own["spec"].get("cohortName") or "")


@dataclass(frozen=True)
class Amount:
    """Capacity of a queue for a resource in a flavor, and the amount available now; None if unknown."""

    capacity: float | None
    available: float | None


def fit(job: PlannedJob, queues: Queues) -> Fit:
    """Return the verdict on a job in a queue without other pending jobs."""
    name = queues.own["metadata"]["name"]
    pod_sets = _pod_sets(job)
    wanted = {resource: amount for resource, amount in job.requests.items() if amount}
    groups = [_flavors(group) for group in queues.own["spec"].get("resourceGroups") or ()]
    covered = {resource for group in groups for resource in group.resources}
    ignored = queues.excluded or ()
    missing = [resource for resource in wanted if resource not in covered and not resource.startswith(ignored)]
    if missing:
        reason = f"ClusterQueue {name} has no quota for {', '.join(missing)}"
        return Fit(verdict="unknown" if queues.excluded is None else "never", reason=reason)
    amounts = {cell: _amount(cell, queues) for group in groups for cell in group.cells}
    verdicts = [
        _fit_group(job, pod_sets, {**wanted, PODS: 1.0}, group, amounts, name)
        for group in groups
    ]  # fmt: skip
    order: list[Verdict] = ["never", "unknown", "waits", "now"]
    return min(verdicts, key=lambda one: order.index(one.verdict), default=Fit(verdict="now"))


@dataclass(frozen=True)
class _Group:
    flavors: tuple[str, ...]
    resources: tuple[str, ...]

    @property
    def cells(self) -> Iterator[Cell]:
        return itertools.product(self.flavors, self.resources)


def _flavors(group: Item) -> _Group:
    return _Group(tuple(flavor["name"] for flavor in group["flavors"]), tuple(group["coveredResources"]))


def _pod_sets(job: PlannedJob) -> list[int]:
    """Return the least numbers of pods that Kueue admits together, by pod set; each pod set gets one flavor."""
    if job.kind == "Job":  # hopforge's Indexed Jobs start with any number of pods
        return [1]
    return [1, job.pods - 1] if job.kind == "PyTorchJob" and job.pods > 1 else [job.pods]


def _fit_group(
    job: PlannedJob, pod_sets: Sequence[int], pod: Mapping[str, float], group: _Group,
    amounts: Mapping[Cell, Amount], queue: str,
) -> Fit:  # fmt: skip
    """Return the verdict for the resources of a group, of which each pod set gets one flavor."""
    found: list[tuple[bool | None, bool | None]] = []
    for choice in itertools.product(group.flavors, repeat=len(pod_sets)):
        needed: dict[Cell, float] = {}
        for flavor, count in zip(choice, pod_sets, strict=True):
            for resource in group.resources:
                if pod.get(resource):
                    needed[flavor, resource] = needed.get((flavor, resource), 0.0) + count * pod[resource]
        found.append(
            (_within(needed, amounts, "available"), _within(needed, amounts, "capacity"))
        )  # fmt: skip
    if any(now for now, _ in found):
        return Fit(verdict="now")
    if any(capacity for _, capacity in found):
        if all(now is None for now, capacity in found if capacity):
            return Fit(verdict="unknown", reason=UNSEEN.format(queue))
        return Fit(verdict="waits", reason=_shortest(job, pod_sets, pod, group, amounts, queue, "available"))
    if any(capacity is None for _, capacity in found):
        return Fit(verdict="unknown", reason=UNSEEN.format(queue))
    return Fit(verdict="never", reason=_shortest(job, pod_sets, pod, group, amounts, queue, "capacity"))


def _within(needed: Mapping[Cell, float], amounts: Mapping[Cell, Amount], what: str) -> bool | None:
    """Return True if all amounts suffice, False if one does not, None if one is unknown."""
    answers = []
    for cell, amount in needed.items():
        bound = getattr(amounts[cell], what)
        answers.append(None if bound is None else amount <= bound + 1e-9)
    return False if False in answers else None if None in answers else True


def _shortest(
    job: PlannedJob, pod_sets: Sequence[int], pod: Mapping[str, float], group: _Group,
    amounts: Mapping[Cell, Amount], queue: str, what: str,
) -> str:  # fmt: skip
    """Return the reason: each resource of which no flavor has enough, with the largest amount."""
    parts = []
    for resource in group.resources:
        needed = sum(pod_sets) * pod.get(resource, 0.0)
        bounds = [getattr(amounts[flavor, resource], what) for flavor in group.flavors]
        known = [bound for bound in bounds if bound is not None]
        if known and len(known) == len(bounds) and needed > max(known):
            parts.append(f"{_text(resource, needed)} of {resource}, but {_text(resource, max(max(known), 0.0))}")
    end = "are free" if what == "available" else "are the most that it may use (nominal quota and borrowing)"
    subject = "a pod" if job.kind == "Job" and job.pods > 1 else "the job"
    if not parts:
        return f"ClusterQueue {queue}: no flavor has enough of all resources for {subject}"
    return f"ClusterQueue {queue}: {subject} needs {'; '.join(parts)} {end}"


def _text(resource: str, amount: float) -> str:
    return f"{amount / 2**30:g}Gi" if resource == "memory" else f"{amount:g}"


def _amount(cell: Cell, queues: Queues) -> Amount:
    """Return the amounts of a queue as Kueue computes them (``available`` and ``potentialAvailable``)."""
    nominal, limit, guaranteed, usage = _quota(queues.own, cell)
    if not queues.cohort_name:
        return Amount(nominal, nominal - usage)
    in_cohort = max(0.0, usage - guaranteed)
    free_alone = max(0.0, guaranteed - usage)
    borrowable = float("inf") if limit is None else nominal - guaranteed - in_cohort + limit
    if queues.cohort is None:
        most = None if limit is None else nominal + limit
        own = free_alone if guaranteed == nominal else None
        return Amount(most, own if limit == 0 or own is None else None)
    members = [_quota(item, cell) for item in queues.cohort]
    shared = _quota(queues.shared, cell)[0] if queues.shared else 0.0
    quota = shared + sum(nominal - guaranteed for nominal, _, guaranteed, _ in members)
    used = sum(max(0.0, usage - guaranteed) for _, _, guaranteed, usage in members)
    capacity = guaranteed + quota
    if limit is not None:
        capacity = min(capacity, nominal + limit)
    return Amount(capacity, free_alone + min(quota - used, borrowable))


def _quota(item: Item, cell: Cell) -> tuple[float, float | None, float, float]:
    """Return nominal quota, borrowing limit, quota that is never lent, and reserved amount of a queue or cohort."""
    flavor, resource = cell
    found: Item = next(
        (
            one
            for group in item["spec"].get("resourceGroups") or ()
            for kept in group["flavors"]
            if kept["name"] == flavor
            for one in kept["resources"]
            if one["name"] == resource
        ),
        {},
    )
    status = item.get("status") or {}
    reserved = status.get("flavorsReservation") or status.get("flavorsUsage") or ()
    totals = [one.get("total", "0") for kept in reserved if kept["name"] == flavor for one in kept["resources"]
              if one["name"] == resource]  # fmt: skip
    nominal = bytes_of(str(found.get("nominalQuota", "0")))
    limit, lent = found.get("borrowingLimit"), found.get("lendingLimit")
    return (
        nominal,
        None if limit is None else bytes_of(str(limit)),
        0.0 if lent is None else max(0.0, nominal - bytes_of(str(lent))),
        bytes_of(str(totals[0])) if totals else 0.0,
    )
