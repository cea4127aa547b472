"""Rules for jobs that Kueue holds back or evicted, that nothing creates pods for, and that ran out of time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from platform_sdk.diagnosis.facts import Condition, Facts, JobFacts
from platform_sdk.diagnosis.findings import Evidence, Finding
from platform_sdk.diagnosis.sources import clipped

REASONS = {
    "ExceedsMaxQuota": "asks for more than its queue can ever have",
    "NoMatchingFlavor": "fits no flavor of its queue",
    "Misconfigured": "has a queue that is missing, inactive or wrongly configured",
    "Suspended": "has a queue that an administrator stopped",
    "WaitingForPreemptedWorkloads": "waits for preempted jobs to end",
    "WaitingForPodsReady": "waits until the pods of jobs admitted before are ready",
    "TopologyPlacementFailed": "finds no nodes near enough to each other",
    "OnHold": "is on hold",
    "AdmissionGated": "is held by a gate on its admission",
    "PendingEvaluation": "has not been evaluated by Kueue yet",
    "WaitingForQuota": "waits until quota is free",
}
"""Kueue 0.19's reasons, which it reports with the feature gate UnadmittedWorkloadsObservability."""

REMEDIES = {
    "ExceedsMaxQuota": "lower job.nodes, job.gpus or job.resources, or have an administrator raise the queue's quota; "
    "waiting does not help",
    "NoMatchingFlavor": "correct job.node_selector and job.tolerations in the cluster file, or name another queue "
    "(kubectl get resourceflavors); waiting does not help",
    "Misconfigured": "name an existing queue in job.queue (kubectl get localqueues), or have an administrator repair "
    "it; waiting does not help",
    "Suspended": "ask the administrator who set the queue's stopPolicy",
    "TopologyPlacementFailed": "lower job.nodes, or wait until nodes of one rack are free",
    "OnHold": "ask the administrator who holds it",
    "AdmissionGated": "ask the administrator which gate or admission check holds it",
    "WaitingForPodsReady": "wait, or look at the pods of the queue's other jobs",
}
UNKNOWN_WAIT = "queued_unknown"
"""Rule of a job that waits for a reason which no message explains."""
WAIT = "wait, raise job.priority if the team allows it, or lower job.gpus and job.nodes"

HELD_BACK = {
    "Deactivated": "waiting does not help: set spec.active of its Workload to true, or start the run again",
    "DeactivatedDueToRequeuingLimitExceeded": "waiting does not help: find out why its pods did not become ready, then "
    "set spec.active of its Workload to true",
    "ClusterQueueStopped": "ask the administrator who set the stopPolicy of the ClusterQueue",
    "LocalQueueStopped": "ask the administrator who set the stopPolicy of the LocalQueue",
}
"""Remedies for evictions after which Kueue does not admit a job again by itself."""

MESSAGES = (
    ("ExceedsMaxQuota", re.compile(r"> maximum capacity|exceeds? (?:the )?max(?:imum)?|insufficient quota for")),
    ("WaitingForPreemptedWorkloads", re.compile(r"Pending the (?:preemption|migration) of")),
    ("NoMatchingFlavor", re.compile(r"untolerated taint|doesn't match node affinity|unavailable in ClusterQueue|"
                                    r"flavor \S+ not found")),
    ("Misconfigured", re.compile(r"(?:Local|Cluster)Queue \S+ (?:doesn't|does not) exist|is inactive|"
                                 r"namespace doesn't match ClusterQueue selector")),
    ("Suspended", re.compile(r"(?:Local|Cluster)Queue \S+ is (?:stopped|on hold)")),
    ("TopologyPlacementFailed", re.compile(r"topology")),
    ("WaitingForQuota", re.compile(r"insufficient unused quota")),
)  # fmt: skip
"""Reasons by Kueue's messages: without the gate, every reason is Pending or Inadmissible."""


NOT_FREE = re.compile(r"insufficient unused quota for \S+ in flavor ([^\s,]+)")
CLOSED = re.compile(r"insufficient quota for \S+ in flavor ([^\s,]+)|untolerated taint .*? in flavor ([^\s,]+)|"
                    r"flavor (\S+) (?:doesn't match|not found)")  # fmt: skip
"""Flavors that a job can wait for, and flavors that can never hold it."""


def kueue_reason(reserved: Condition) -> str:
    """Return Kueue's reason for a missing quota, by the message if the reason is general; empty if unknown."""
    if reserved.reason in REASONS:
        return reserved.reason
    # Kueue joins the reasons of all flavors: a single one that lacks only unused quota is enough to wait for.
    closed = {name for names in CLOSED.findall(reserved.message) for name in names if name}
    waits = bool(set(NOT_FREE.findall(reserved.message)) - closed)
    passed = ("ExceedsMaxQuota", "NoMatchingFlavor") if waits else ()
    found = (reason for reason, pattern in MESSAGES if pattern.search(reserved.message) and reason not in passed)
    return next(found, "")


def preempted(facts: Facts) -> Iterator[Finding]:
    """Find jobs that Kueue evicted and queued again."""
    for job in _waiting(facts):
        condition = _condition(job, "Evicted")
        if condition is not None and condition.holds:
            by = "preempted by another job" if condition.reason == "Preempted" else f"evicted ({condition.reason})"
            now = "is held back" if condition.reason in HELD_BACK else "is queued again"
            yield Finding(
                rule="preempted", kind="waiting", where=f"job {job.name}", evidence=(_quoted(job, condition),),
                cause=f"job {job.name} was {by} and {now}: {clipped(condition.message)}",
                remedy=HELD_BACK.get(
                    condition.reason,
                    f"nothing is lost: it resumes from its last checkpoint once it is admitted; {WAIT}",
                ),
            )  # fmt: skip


def queued(facts: Facts) -> Iterator[Finding]:
    """Find jobs for which Kueue has reserved no quota."""
    for job in _waiting(facts):
        reserved = _condition(job, "QuotaReserved")
        evicted = _condition(job, "Evicted")
        if reserved is None or reserved.holds or (evicted is not None and evicted.holds):
            continue
        reason = kueue_reason(reserved)
        place = "" if job.workload is None or job.workload.position is None else (
            f", {job.workload.position} jobs before it in queue {job.queue}"
        )  # fmt: skip
        yield Finding(
            rule=f"queued_{reason}" if reason else UNKNOWN_WAIT, kind="waiting", where=f"job {job.name}",
            cause=f"job {job.name} {REASONS.get(reason, 'waits for admission')}{place}: {clipped(reserved.message)}",
            evidence=(_quoted(job, reserved), *_holders(facts)), remedy=REMEDIES.get(reason, WAIT),
        )  # fmt: skip


def check_pending(facts: Facts) -> Iterator[Finding]:
    """Find jobs with a reserved quota that wait for an admission check."""
    for job in _waiting(facts):
        reserved, admitted = _condition(job, "QuotaReserved"), _condition(job, "Admitted")
        if reserved is not None and reserved.holds and admitted is not None and not admitted.holds:
            yield Finding(
                rule="check_pending", kind="waiting", where=f"job {job.name}", evidence=(_quoted(job, admitted),),
                cause=f"job {job.name} has its quota and waits for an admission check: {clipped(admitted.message)}",
                remedy="ask the administrator which AdmissionCheck of the ClusterQueue has not passed",
            )  # fmt: skip


def not_managed(facts: Facts) -> Iterator[Finding]:
    """Find suspended jobs with a queue label for which Kueue created no Workload."""
    for job in _waiting(facts):
        if job.suspended and job.queue and job.workload is None and not job.unseen:
            yield Finding(
                rule="not_managed", kind="waiting", where=f"job {job.name}",
                cause=f"job {job.name} waits in queue {job.queue}, but Kueue created no Workload for it",
                evidence=(Evidence(object=f"{job.kind} {job.name}", time=job.created,
                                   text=f"suspended, label kueue.x-k8s.io/queue-name: {job.queue}, no Workload"),),
                remedy=f"add {job.kind}s to integrations.frameworks of Kueue's configuration, or start its controller",
            )  # fmt: skip


REFUSED = re.compile(r"denied (?:the )?request|is forbidden|violates PodSecurity|exceeded quota|is invalid")
QUOTA = re.compile(r"exceeded quota: ([^,]+)")


def refused(facts: Facts) -> Iterator[Finding]:
    """Find jobs whose pods the API server refuses: admission policies, webhooks, resource quotas."""
    for job in facts.jobs:
        if job.state in ("Succeeded", "Running", "Queued", "Preempted"):  # no pods of a suspended job are created
            continue
        created = max((pod.created for pod in job.pods), default="")
        for event in reversed(job.events):
            overcome = event.time[:19] < created[:19]  # a pod was created after it; seconds, whatever follows
            if REFUSED.search(event.message) and not (event.time and overcome):
                quota = QUOTA.search(event.message)
                rule = f"resource quota {quota[1]}" if quota else "an admission rule"
                yield Finding(
                    rule="refused", kind="failure" if job.state == "Failed" else "waiting", where=f"job {job.name}",
                    cause=f"{rule} refuses the pods of job {job.name}: {clipped(event.message)}",
                    evidence=(Evidence(object=f"event of {event.object}", time=event.time,
                                       text=clipped(f"{event.reason}: {event.message}")),),
                    remedy="wait for other jobs of the namespace to end, or raise its ResourceQuota" if quota else
                    "correct what the message names in the cluster file, or ask the administrator to allow it",
                )  # fmt: skip
                break


TIMED_OUT = re.compile(r"DeadlineExceeded|(?:waited|ran) for more than \d+ s and was deleted")


def deadline(facts: Facts) -> Iterator[Finding]:
    """Find jobs that ran or waited longer than they may."""
    for job in facts.jobs:
        failed = next((each for each in job.conditions if each.type == "Failed" and each.holds), None)
        if failed is not None and failed.reason == "DeadlineExceeded":
            yield Finding(
                rule="deadline", kind="failure", where=f"job {job.name}", evidence=(_quoted(job, failed),),
                cause=f"job {job.name} ran longer than its deadline: {clipped(failed.message)}",
                remedy="raise job.run_timeout_seconds in the cluster file, then run the step again; it resumes",
            )  # fmt: skip
    for step in facts.steps:
        if step.state == "FAILED" and TIMED_OUT.search(step.error):
            yield Finding(
                rule="deadline", kind="failure", where=f"step {step.name}", cause=clipped(step.error),
                evidence=(Evidence(object=f"step {step.name}", time=step.ended, text=clipped(step.error)),),
                remedy="raise job.run_timeout_seconds or job.queue_timeout_seconds in the cluster file, then run the "
                "step again; it resumes",
            )  # fmt: skip


def _waiting(facts: Facts) -> Iterator[JobFacts]:
    return (job for job in facts.jobs if job.state in ("Queued", "Preempted", "Admitted", "Unknown"))


def _condition(job: JobFacts, type_: str) -> Condition | None:
    conditions = () if job.workload is None else job.workload.conditions
    return next((condition for condition in conditions if condition.type == type_), None)


def _quoted(job: JobFacts, condition: Condition) -> Evidence:
    name = f"Workload {job.workload.name}" if job.workload is not None else f"{job.kind} {job.name}"
    text = clipped(f"{condition.reason}: {condition.message}")
    return Evidence(object=f"{name}, condition {condition.type}", time=condition.time, text=text)


def _holders(facts: Facts) -> tuple[Evidence, ...]:
    """Return the totals of the ClusterQueues that use a resource."""
    return tuple(
        Evidence(
            object=f"ClusterQueue {usage.queue}", time=facts.collected,
            text=f"{usage.resource} of {usage.flavor}: {usage.used} of {usage.nominal} used, {usage.borrowed} borrowed",
        )
        for usage in facts.usage
        if usage.used != "0"
    )  # fmt: skip
