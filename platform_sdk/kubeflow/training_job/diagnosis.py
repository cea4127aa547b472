"""Diagnosis of a failed job: exit codes, memory, evictions, last log lines, events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from platform_sdk.kubeflow.training_job.api import ClusterApi
from platform_sdk.kubeflow.training_job.description import SAMPLER

LINES = 20
WARNINGS = 5
TOLD_TO_END = (137, 143)  # SIGKILL, SIGTERM


def diagnose(name: str, reason: str, api: ClusterApi) -> str:
    """A message for people: what the operator says, and of every failed pod its end and last log lines."""
    parts = [f"job {name} failed" + (f": {reason}" if reason else "")]
    failed = 0
    for pod in api.pods(name):
        pod_name = pod["metadata"]["name"]
        ends = list(_ends(pod))
        failed += bool(ends)
        for container, text in ends:
            parts.append(f"pod {pod_name}: {text}")
            lines = api.log(pod_name, container, LINES).splitlines() if container else []
            parts += [f"  {line}" for line in lines]
        if ends:
            parts += [f"  event {text}" for text in api.warnings(pod_name)[-WARNINGS:]]
    if not failed:
        parts += [f"  event {text}" for text in api.warnings(name)[-WARNINGS:]]
    return "\n".join(parts)


def _ends(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the failed containers of a pod as (container, words); container "": the pod itself."""
    status = pod.get("status", {})
    if status.get("reason") == "Evicted":
        yield "", f"was evicted: {status.get('message', '')}"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        # A container that was started again shows its bad end as the last state.
        for when in ("state", "lastState"):
            ended = (container.get(when) or {}).get("terminated")
            if ended and ended.get("exitCode") and not _with_its_pod(container["name"], ended):
                yield container["name"], _words(ended)
                break


def _with_its_pod(container: str, ended: Mapping[str, Any]) -> bool:
    """Return whether this is the sidecar server, which the kubelet ended because the others had ended."""
    return container == SAMPLER and ended["exitCode"] in TOLD_TO_END and ended.get("reason") != "OOMKilled"


def _words(ended: Mapping[str, Any]) -> str:
    code = ended["exitCode"]
    if ended.get("reason") == "OOMKilled":
        return f"exit code {code}, out of memory (OOMKilled): raise job.resources.memory, or lower batches"
    told = f", {ended['reason']}" if ended.get("reason") not in (None, "", "Error") else ""
    return f"exit code {code}{told}" + (f": {ended['message']}" if ended.get("message") else "")
