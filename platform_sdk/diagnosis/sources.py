"""Processes of a run that ended badly or still run, from local steps and from the containers of pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from platform_sdk.diagnosis.facts import ContainerFacts, Facts, JobFacts, Line, PodFacts, StepFacts
from platform_sdk.diagnosis.findings import Evidence
from platform_sdk.processes.peak_memory import LINE as PEAK_MEMORY

TEXT = 400
SIDECARS = ("sampler", "program")
"""Sidecar containers of a trainer: the vLLM server and the user's program."""
STOPPED = (137, 143)
"""Exit codes after SIGKILL and SIGTERM."""


@dataclass(frozen=True)
class Match:
    """Text of a process that matches a pattern, as evidence."""

    groups: tuple[str, ...]
    evidence: Evidence


@dataclass(frozen=True)
class Source:
    """Process and its log; ``running`` is True if it has not ended, ``exit_code`` is negative for a signal."""

    name: str
    running: bool
    killed: bool
    error: str
    exit_code: int | None
    ended: str
    changed: str
    log: str
    lines: tuple[Line, ...]

    def find(self, pattern: re.Pattern[str]) -> Match | None:
        """Return the last log line that matches, or else the recorded error; None if neither matches."""
        for line in reversed(self.lines):
            if found := pattern.search(line.text):
                return Match(_groups(found), self.quote(line))
        if found := pattern.search(self.error):
            return Match(_groups(found), Evidence(object=self.name, time=self.ended, text=clipped(self.error)))
        return None

    @property
    def peak(self) -> Match:
        """Return the peak memory with its log line, or empty groups and the reason why the peak is not known."""
        unknown = Evidence(object=self.log, time=self.changed, text="the peak memory is not known: no line reports it")
        return self.find(PEAK_MEMORY) or Match((), unknown)

    def quote(self, line: Line) -> Evidence:
        """Return a log line as evidence."""
        return Evidence(object=self.log, line=line.number, time=self.changed, text=clipped(line.text))


def failed(facts: Facts) -> list[Source]:
    """Return the processes that failed or were killed: the first to end comes first, jobs before their steps."""
    containers = sorted(
        (of_container(pod, container) for _, pod, container in ended_containers(facts)),
        key=lambda source: source.ended or "~",
    )
    return [*containers, *(_of_step(step) for step in facts.steps if step.state in ("FAILED", "KILLED"))]


def running(facts: Facts) -> list[Source]:
    """Return the processes that still run."""
    containers = [
        of_container(pod, container)
        for job in facts.jobs
        for pod in job.pods
        for container in pod.containers
        if container.state == "running"
    ]
    return [*containers, *(_of_step(step) for step in facts.steps if step.state == "RUNNING")]


def ended_containers(facts: Facts) -> Iterator[tuple[JobFacts, PodFacts, ContainerFacts]]:
    """Yield the failed containers of jobs that did not succeed."""
    for job in facts.jobs:
        for pod in job.pods if job.state != "Succeeded" else ():
            for container in pod.containers:
                if container.exit_code and not ended_with_its_pod(container):
                    yield job, pod, container


def clipped(text: str) -> str:
    """Return a text on one line, cut to ``TEXT`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT else f"{line[:TEXT]} …"


def ended_with_its_pod(container: ContainerFacts) -> bool:
    """Return True if a sidecar (vLLM server, user's program) ended because the other containers had ended."""
    return container.name in SIDECARS and container.exit_code in STOPPED and container.reason != "OOMKilled"


def _of_step(step: StepFacts) -> Source:
    return Source(
        f"step {step.name}", step.state == "RUNNING", step.state == "KILLED", step.error, step.exit_code, step.ended,
        step.changed, step.log, step.lines,
    )  # fmt: skip


def of_container(pod: PodFacts, container: ContainerFacts) -> Source:
    """Return the process of a container."""
    name = f"pod {pod.name}"
    return Source(
        name, container.state == "running", False, container.message, container.exit_code, container.finished,
        container.finished, f"log of {name}, container {container.name}", container.lines,
    )  # fmt: skip


def _groups(found: re.Match[str]) -> tuple[str, ...]:
    return tuple(group or "" for group in found.groups())
