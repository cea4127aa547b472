"""Diagnosis of a failed job: exit codes, memory, evictions, last log lines, events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from platform_sdk.kubeflow.training_job.api import ClusterApi
from platform_sdk.kubeflow.training_job.description import SAMPLER

LINES = 20
WARNINGS = 5
SIGNALLED = 128
"""Exit codes from this on: a signal ended the process."""
STOPPED = (137, 143)  # SIGKILL, SIGTERM
ERROR_LINE = re.compile(r"(?:^|: ?)error: (.+)")  # torchrun writes the rank before a process's line


def diagnose(
    name: str, reason: str, api: ClusterApi, pods: Iterable[Mapping[str, Any]], events_of: Iterable[str]
) -> str:
    """Return a message for people: the cause in the first line, then the operator's reason and each failed pod's end.

    Args:
        reason: of the job's condition.
        pods: the job's pods.
        events_of: names of the objects whose warnings explain a job without a failed pod.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    cause, details = "", []
    for pod in pods:
        pod_name = pod["metadata"]["name"]
        ends = list(_ends(pod))
        for container, text in ends:
            lines = api.log(pod_name, container, LINES).splitlines() if container else []
            details += [f"pod {pod_name}: {text}", *(f"  {line}" for line in lines)]
            cause = cause or f"pod {pod_name}: {text}{_error(lines)}"
        if ends:
            details += [f"  event {text}" for text in api.warnings([pod_name])[-WARNINGS:]]
    if not details:
        details = [f"  event {text}" for text in api.warnings(events_of)[-WARNINGS:]]
    first = f"job {name} failed" + (f": {cause or reason}" if cause or reason else "")
    return "\n".join([first, *([reason] if cause and reason else []), *details])


def end_text(ended: Mapping[str, Any]) -> str:
    """Return a description of a container's end, from its ``terminated`` state."""
    code = ended["exitCode"]
    if ended.get("reason") == "OOMKilled":
        return f"exit code {code}, out of memory (OOMKilled): raise job.resources.memory, or lower batches"
    reason = f", {ended['reason']}" if ended.get("reason") not in (None, "", "Error") else ""
    return f"exit code {code}{reason}" + (f": {ended['message']}" if ended.get("message") else "")


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
                yield container["name"], end_text(ended)
                break


def _with_its_pod(container: str, ended: Mapping[str, Any]) -> bool:
    """Return True for the sidecar server, if the kubelet ended it because the other containers had ended."""
    return container == SAMPLER and ended["exitCode"] in STOPPED and ended.get("reason") != "OOMKilled"


def _error(lines: list[str]) -> str:
    """Return the last error message in a log, for the end of a sentence; empty if there is none."""
    found = [match[1] for line in lines if (match := ERROR_LINE.search(line))]
    return f": {found[-1]}" if found else ""
