"""Message of a failed job: its cause by the rules of ``diagnosis``, then the end of each failed pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.facts import ContainerFacts, Facts, PodFacts
from platform_sdk.diagnosis.findings import Finding
from platform_sdk.diagnosis.sources import ended_with_its_pod
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, ClusterApi, Item
from platform_sdk.kubeflow.training_job.facts import event_facts, job_facts, pod_facts
from platform_sdk.kubeflow.training_job.state import State

LINES = 100
SHOWN = 20
"""Lines of a log in the message; the rules read the last ``LINES``."""
WARNINGS = 5
OWN_REMEDY = "first_error"
"""Rule whose cause is an error message, which already has its remedy."""


def failure_message(
    job: Item,
    reason: str,
    api: ClusterApi,
    pods: Sequence[Mapping[str, Any]],
    events_of: Iterable[str],
    *,
    skip_logs: bool = False,
) -> str:
    """Return the error message: the cause in the first line, then the operator's reason and each failed pod's end.

    Args:
        reason: of the job's condition.
        pods: the job's pods.
        events_of: names of the objects whose warnings explain a job without a failed pod.
        skip_logs: True to leave out logs that cannot be read, with a note, instead of raising.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    name = job["metadata"]["name"]
    notes: list[str] = []
    seen = [_seen(pod, api, notes) if skip_logs else with_logs(pod, api) for pod in pods]
    ended = [pod for pod in seen if _is_bad(pod)]
    warnings = api.warning_events([pod.name for pod in ended] or events_of, job)
    state = State.FAILED
    facts = job_facts(job, seen, None, map(event_facts, warnings), state=str(state), reason=reason)
    cause = _cause(explain(Facts(run=name, place="cluster", state="FAILED", jobs=(facts,))).findings)
    details = [line for pod in ended for line in _end_of(pod)] + notes
    details += [f"  event {_line(event)}" for event in warnings[-WARNINGS:]]
    first = f"job {name} failed" + (f": {cause or reason}" if cause or reason else "")
    return "\n".join([first, *([reason] if cause and reason else []), *details])


def _seen(pod: Mapping[str, Any], api: ClusterApi, notes: list[str]) -> PodFacts:
    """Return the facts about a pod, with a note instead of its logs if its node is lost."""
    try:
        return with_logs(pod, api)
    except ApiUnavailable as error:  # if nothing else answers either, the whole message is requested again
        bare = pod_facts(pod)
        notes.append(f"pod {bare.name}: its log cannot be read: {error}")
        return bare


def with_logs(pod: Mapping[str, Any], api: ClusterApi) -> PodFacts:
    """Return the facts about a pod with the last lines of its failed containers, including replaced ones.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    bare = pod_facts(pod)
    logs = {
        each.name: api.log(bare.name, each.name, LINES, previous=each.state == "running")
        for each in filter(_is_bad_container, bare.containers)
    }
    return pod_facts(pod, logs) if logs else bare


def _cause(findings: Sequence[Finding]) -> str:
    """Return the first failure with its remedy, or else the first reason to wait; empty for neither."""
    for kind in ("failure", "waiting"):
        for finding in findings:
            if finding.kind == kind and finding.rule != "run_failed":
                return finding.cause if finding.rule == OWN_REMEDY else f"{finding.cause}; {finding.remedy}"
    return ""


def _is_bad(pod: PodFacts) -> bool:
    return pod.reason == "Evicted" or any(map(_is_bad_container, pod.containers))


def _is_bad_container(container: ContainerFacts) -> bool:
    return bool(container.exit_code) and not ended_with_its_pod(container)


def _end_of(pod: PodFacts) -> list[str]:
    """Return the lines about a failed pod: how it and its containers ended, and the last lines of their logs."""
    lines = [f"pod {pod.name}: was evicted: {pod.message}"] if pod.reason == "Evicted" else []
    for container in filter(_is_bad_container, pod.containers):
        ended = end_text({"exitCode": container.exit_code, "reason": container.reason, "message": container.message})
        lines += [f"pod {pod.name}: {ended}", *(f"  {line.text}" for line in container.lines[-SHOWN:])]
    return lines


def end_text(ended: Mapping[str, Any]) -> str:
    """Return a description of a container's end, from its ``terminated`` state."""
    code = ended["exitCode"]
    if ended.get("reason") == "OOMKilled":
        return f"exit code {code}, out of memory (OOMKilled): raise job.resources.memory, or lower batches"
    reason = f", {ended['reason']}" if ended.get("reason") not in (None, "", "Error") else ""
    return f"exit code {code}{reason}" + (f": {ended['message']}" if ended.get("message") else "")


def _line(event: Mapping[str, Any]) -> str:
    return " ".join(f"{event.get('reason', '')}: {event.get('message', '')}".split())
