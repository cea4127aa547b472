"""Rules for pods: memory limits, images, volumes, scheduling, evictions and lost nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from platform_sdk.diagnosis.facts import Condition, Event, Facts, JobFacts, PodFacts
from platform_sdk.diagnosis.findings import Evidence, Finding
from platform_sdk.diagnosis.sources import clipped, ended_containers, of_container
from platform_sdk.diagnosis.step_rules import SMALLER


def out_of_memory(facts: Facts) -> Iterator[Finding]:
    """Find containers that exceeded their memory limit."""
    for _, pod, container in ended_containers(facts):
        if container.reason == "OOMKilled":
            limit = f", limit {container.memory_limit}" if container.memory_limit else ""
            peak = of_container(pod, container).peak
            most = f", peak {peak.groups[0]}" if peak.groups else ""
            ended = f"exit code {container.exit_code}, out of memory (OOMKilled)"
            yield Finding(
                rule="pod_out_of_memory", kind="failure", where=f"pod {pod.name}",
                cause=f"pod {pod.name}: {ended}: container {container.name}{limit}{most}",
                evidence=(Evidence(object=f"pod {pod.name}, container {container.name}", time=container.finished,
                                   text=f"{ended}{limit}"), peak.evidence),
                remedy=f"raise job.resources.memory in the cluster file, or {SMALLER}",
            )  # fmt: skip


def evicted(facts: Facts) -> Iterator[Finding]:
    """Find pods that their node or the cluster ended: memory or disk pressure, drains, preemption by the scheduler."""
    for job, pod in _pods(facts):
        disrupted = _condition(pod, "DisruptionTarget", True)
        if pod.reason == "Evicted":
            evidence = Evidence(object=f"pod {pod.name}", text=clipped(f"Evicted: {pod.message}"))
        elif disrupted is not None and disrupted.reason not in NODE_LOST and job.state != "Succeeded":
            text = clipped(f"{disrupted.reason}: {disrupted.message}")
            evidence = Evidence(object=f"pod {pod.name}", time=disrupted.time, text=text)
        else:
            continue
        short = re.search(r"ephemeral|emptydir|disk|memory", evidence.text.lower())
        remedies = {
            "memory": "raise job.resources.memory, so that the scheduler reserves what the job uses",
            "disk": "write less outside the workspace, or free the node's disk",
            "ephemeral": "write less outside the workspace, or raise the limit of ephemeral-storage",
            "emptydir": "write less to this volume, or raise its size limit",
        }
        yield Finding(
            rule="evicted", kind="failure", where=f"pod {pod.name}", evidence=(evidence,),
            cause=f"pod {pod.name} was evicted{f' from node {pod.node}' if pod.node else ''}: {evidence.text}",
            remedy=(remedies[short[0]] if short else "ask who drained the node or preempted the pod")
            + ", then run the step again; it resumes from its last checkpoint",
        )  # fmt: skip


NODE_LOST = ("DeletionByTaintManager", "DeletionByPodGC")
LOST_REASONS = ("NodeLost", "NodeShutdown", "Terminated", "NodeAffinity")


def node_lost(facts: Facts) -> Iterator[Finding]:
    """Find pods whose node was lost or shut down."""
    for job, pod in _pods(facts):
        disrupted = _condition(pod, "DisruptionTarget", True)
        ready = _condition(pod, "Ready", False)
        if pod.reason in LOST_REASONS:
            evidence = Evidence(object=f"pod {pod.name}", text=clipped(f"{pod.reason}: {pod.message}"))
        elif disrupted is not None and disrupted.reason in NODE_LOST:
            text = clipped(f"{disrupted.reason}: {disrupted.message}")
            evidence = Evidence(object=f"pod {pod.name}", time=disrupted.time, text=text)
        elif pod.phase == "Unknown" or (ready is not None and ready.reason == "NodeStatusUnknown"):
            text = clipped(f"phase {pod.phase}: {ready.message if ready else pod.message}")
            evidence = Evidence(object=f"pod {pod.name}", time=ready.time if ready else "", text=text)
        else:
            continue
        if job.state != "Succeeded":
            yield Finding(
                rule="node_lost", kind="failure", where=f"pod {pod.name}", evidence=(evidence,),
                cause=f"node {pod.node or 'unknown'} of pod {pod.name} was lost or shut down",
                remedy=f"look at the node (kubectl describe node {pod.node or 'NAME'}), then run the step again; it "
                "resumes from its last checkpoint",
            )  # fmt: skip


PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
REGISTRY = (
    (re.compile(r"unauthorized|denied|forbidden|401|403"), "add the registry's Secret to the jobs' service account"),
    (re.compile(r"not found|manifest unknown|404"), "correct the image's name or tag in the cluster file, or push it"),
    (re.compile(r"no such host|dial tcp|timeout|refused"), "check that the nodes reach the registry, and its name"),
)  # fmt: skip


def image_not_pulled(facts: Facts) -> Iterator[Finding]:
    """Find pods whose image cannot be pulled."""
    for _, pod in _pods(facts):
        for container in pod.containers:
            if container.state == "waiting" and container.reason in PULL:
                text = clipped(f"{container.reason}: {container.message}")
                advice = next((each for pattern, each in REGISTRY if pattern.search(container.message)), "")
                yield Finding(
                    rule="image_not_pulled", kind="waiting", where=f"pod {pod.name}",
                    cause=f"pod {pod.name} cannot pull image {container.image or 'of ' + container.name}: "
                    f"{container.reason}",
                    evidence=(Evidence(object=f"pod {pod.name}, container {container.name}", time=pod.created,
                                       text=text),),
                    remedy=advice or "correct job.image in the cluster file, or load the image onto the nodes",
                )  # fmt: skip


UNBOUND = re.compile(r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ (?:is )?not found")
VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
CLAIM = re.compile(r"persistentvolumeclaim \"?([^\s\"]+)")


def volume_not_bound(facts: Facts) -> Iterator[Finding]:
    """Find pods that wait for a volume."""
    for job, pod in _pods(facts):
        waiting = _unscheduled(pod)
        if waiting is not None and UNBOUND.search(waiting.message):
            evidence = _quoted(pod, waiting)
        elif event := _event_of(job, pod, VOLUME_EVENTS) if pod.phase == "Pending" else None:
            evidence = _event_evidence(event)
        else:
            continue
        claim = CLAIM.search(evidence.text)
        yield Finding(
            rule="volume_not_bound", kind="waiting", where=f"pod {pod.name}", evidence=(evidence,),
            cause=f"pod {pod.name} waits for its volume{f' {claim[1]}' if claim else ''}: {evidence.text}",
            remedy="create or bind the claim (kubectl get pvc, kubectl describe pvc NAME), and check its storage "
            "class and access mode",
        )  # fmt: skip


def unschedulable(facts: Facts) -> Iterator[Finding]:
    """Find pods that fit on no node."""
    for _, pod in _pods(facts):
        waiting = _unscheduled(pod)
        if waiting is not None and not UNBOUND.search(waiting.message):
            lacking = re.findall(r"Insufficient ([\w./-]+)", waiting.message)
            needs = f"no node has enough free {' and '.join(dict.fromkeys(lacking))}" if lacking else "no node fits"
            remedy = "wait until pods end, lower job.resources, or add nodes" if lacking else (
                "correct job.node_selector and job.tolerations in the cluster file, or label the nodes"
            )  # fmt: skip
            yield Finding(
                rule="unschedulable", kind="waiting", where=f"pod {pod.name}", evidence=(_quoted(pod, waiting),),
                cause=f"pod {pod.name} is not scheduled: {needs}", remedy=remedy,
            )  # fmt: skip


def _pods(facts: Facts) -> Iterator[tuple[JobFacts, PodFacts]]:
    return ((job, pod) for job in facts.jobs for pod in job.pods if job.state != "Succeeded")


def _condition(pod: PodFacts, type_: str, holds: bool) -> Condition | None:
    return next((each for each in pod.conditions if each.type == type_ and each.holds is holds), None)


def _unscheduled(pod: PodFacts) -> Condition | None:
    condition = _condition(pod, "PodScheduled", False)
    return condition if pod.phase == "Pending" and condition is not None and condition.message else None


def _quoted(pod: PodFacts, condition: Condition) -> Evidence:
    text = clipped(f"{condition.reason}: {condition.message}")
    return Evidence(object=f"pod {pod.name}, condition {condition.type}", time=condition.time, text=text)


def _event_of(job: JobFacts, pod: PodFacts, reasons: tuple[str, ...]) -> Event | None:
    of_pod = (event for event in job.events if event.object == f"Pod {pod.name}" and event.reason in reasons)
    return next(of_pod, None)


def _event_evidence(event: Event) -> Evidence:
    return Evidence(
        object=f"event of {event.object}", time=event.time, text=clipped(f"{event.reason}: {event.message}")
    )
