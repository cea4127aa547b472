"""Rules for failed and stuck steps, from their errors, exit codes and logs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from platform_sdk.diagnosis.facts import Facts, StepFacts
from platform_sdk.diagnosis.findings import Evidence, Finding

TEXT = 400


@dataclass(frozen=True)
class Match:
    """Text of a step that matches a pattern, as evidence."""

    groups: tuple[str, ...]
    evidence: Evidence


def find(step: StepFacts, pattern: re.Pattern[str]) -> Match | None:
    """Return the last log line that matches, or else the step's recorded error; None if neither matches."""
    for line in reversed(step.lines):
        if found := pattern.search(line.text):
            evidence = Evidence(object=step.log, line=line.number, time=step.changed, text=clipped(line.text))
            return Match(tuple(group or "" for group in found.groups()), evidence)
    if found := pattern.search(step.error):
        evidence = Evidence(object=f"step {step.name}", time=step.ended, text=clipped(step.error))
        return Match(tuple(group or "" for group in found.groups()), evidence)
    return None


def clipped(text: str) -> str:
    """Return a text on one line, cut to ``TEXT`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT else f"{line[:TEXT]} …"


def ended_badly(facts: Facts) -> Iterator[StepFacts]:
    """Yield the steps that failed or were killed."""
    return (step for step in facts.steps if step.state in ("FAILED", "KILLED"))


FULL = re.compile(
    r"(?:(\S+): cannot be written: )?"
    r"(?:No space left on device|Disk quota exceeded|database or disk is full|File too large|ENOSPC)"
)


def disk_full(facts: Facts) -> Iterator[Finding]:
    """Find steps that could not write for lack of space."""
    for step in ended_badly(facts):
        if match := find(step, FULL):
            file = f" {match.groups[0]}" if match.groups[0] else " its files"
            free = () if facts.disk is None else (
                Evidence(object="file system of the run directory", time=facts.collected,
                         text=f"{facts.disk.free_bytes / 2**20:,.0f} MiB free now"),
            )  # fmt: skip
            yield Finding(
                rule="disk_full", kind="failure", where=f"step {step.name}", evidence=(match.evidence, *free),
                cause=f"the disk is full: step {step.name} could not write{file}",
                remedy="free space on the volume (hopforge gc removes old runs' files on a cluster), then start the "
                "run again; it resumes",
            )  # fmt: skip


MEMORY = re.compile(
    r"(?:^|\W)(?:MemoryError|CUDA out of memory|OutOfMemoryError|std::bad_alloc|Cannot allocate memory|"
    r"can't allocate memory|unable to mmap \d+ bytes|failed to map segment)"
)
GPU_MEMORY = re.compile(r"CUDA out of memory|HIP out of memory")
SMALLER = "lower the batch size (micro_batch, batch) or max_length"


def out_of_memory(facts: Facts) -> Iterator[Finding]:
    """Find steps that could not allocate memory, or that the kernel killed for lack of it."""
    for step in ended_badly(facts):
        if match := find(step, MEMORY):
            gpu = GPU_MEMORY.search(match.evidence.text) is not None
            yield Finding(
                rule="out_of_memory", kind="failure", where=f"step {step.name}", evidence=(match.evidence,),
                cause=f"step {step.name} ran out of {'GPU memory' if gpu else 'memory'}",
                remedy=f"{SMALLER}, or give the step more {'GPU memory' if gpu else 'memory'} (ulimit -v, the "
                "container's limit), then start the run again; it resumes" if not gpu else
                f"{SMALLER}, or use a GPU with more memory, then start the run again; it resumes",
            )  # fmt: skip
        elif step.exit_code == -signal.SIGKILL and facts.oom_kills:
            text = f"oom_kill counted {facts.oom_kills} more when the run failed than when it started"
            yield Finding(
                rule="out_of_memory", kind="failure", where=f"step {step.name}",
                cause=f"the kernel killed step {step.name} for lack of memory",
                evidence=(_exit(step), Evidence(object="memory cgroup of the run", time=facts.ended, text=text)),
                remedy=f"{SMALLER}, or raise the memory limit of the container, then start the run again; it resumes",
            )  # fmt: skip


UNREADABLE = re.compile(
    r"(?:(\S+): cannot be (?:read|written): |PermissionError: \[Errno 13\] |OSError: \[Errno (?:5|116)\] )"
    r"?(Permission denied|Input/output error|Stale file handle|Read-only file system)(?:: '([^']+)')?"
)


def unreadable_file(facts: Facts) -> Iterator[Finding]:
    """Find steps that may not read or write a file, or whose volume fails."""
    for step in ended_badly(facts):
        if match := find(step, UNREADABLE):
            file = match.groups[0] or match.groups[2] or "a file"
            yield Finding(
                rule="unreadable_file", kind="failure", where=f"step {step.name}", evidence=(match.evidence,),
                cause=f"step {step.name} could not open {file}: {match.groups[1]}",
                remedy="correct the owner and mode of the file (chmod, chown), or mount the volume again, then start "
                "the run again; it resumes",
            )  # fmt: skip


NOT_FINITE = re.compile(r"the loss of step (\d+) is (nan|-?inf)")


def loss_not_finite(facts: Facts) -> Iterator[Finding]:
    """Find trainings whose loss became infinite or not a number."""
    remedy = (
        "lower learning_rate (or raise warm-up and lower max_grad_norm), check that the initial model's weights are "
        "finite, and start the run in a new --workdir"
    )
    found = set()
    for step in ended_badly(facts):
        if match := find(step, NOT_FINITE):
            found.add(step.name)
            yield Finding(
                rule="loss_not_finite", kind="failure", where=f"step {step.name}", evidence=(match.evidence,),
                cause=f"the loss of step {step.name} is {match.groups[1]} at optimizer step {match.groups[0]}",
                remedy=remedy,
            )  # fmt: skip
    first = {point.phase: point for point in reversed(facts.training) if point.not_finite}
    for phase, point in first.items():
        if not found:
            names = ", ".join(point.not_finite)
            yield Finding(
                rule="loss_not_finite", kind="worthless", where=phase, remedy=remedy,
                cause=f"the training of {phase} is no longer finite from step {point.number} on: {names}",
                evidence=(Evidence(object=f"curve of {phase}", line=point.number, text=f"{names} is not finite"),),
            )  # fmt: skip


RETRIEVER = re.compile(r"(\S+): (.*?); waited [\d.]+ s for it \(retrieval\.patience_seconds\)")
RETRYING = re.compile(r"(\S+): (.*); waiting up to [\d.]+ s for it")


def retriever_down(facts: Facts) -> Iterator[Finding]:
    """Find steps that waited for a retriever or Milvus server which does not answer."""
    for step in facts.steps:
        pattern = RETRYING if step.state == "RUNNING" else RETRIEVER
        match = find(step, pattern) if step.state in ("RUNNING", "FAILED", "KILLED") else None
        if match is None and step.state == "KILLED":
            match = find(step, RETRYING)
        if match is not None:
            ended = step.state != "RUNNING"
            yield Finding(
                rule="retriever_down", kind="failure" if ended else "waiting", where=f"step {step.name}",
                cause=f"the retriever {match.groups[0]} does not answer step {step.name}: {match.groups[1]}",
                evidence=(match.evidence,),
                remedy="start or restart the service (its log has the reason)"
                + (", then start the run again; it resumes" if ended else "; the step goes on once it answers"),
            )  # fmt: skip


WORKERS = re.compile(r"(?:NCCL|ProcessGroup(?:NCCL|Gloo)|RendezvousTimeoutError|DistNetworkError|Connection closed by peer)")


def process_killed(facts: Facts) -> Iterator[Finding]:
    """Find steps whose process a signal ended."""
    for step in ended_badly(facts):
        if step.exit_code is not None and step.exit_code < 0:
            name = signal.Signals(-step.exit_code).name
            memory = ", which the kernel also sends when memory is short (dmesg names the process)"
            yield Finding(
                rule="process_killed", kind="failure", where=f"step {step.name}", evidence=(_exit(step),),
                cause=f"signal {name} ended the process of step {step.name}"
                + (memory if step.exit_code == -signal.SIGKILL else ""),
                remedy="find out who sent the signal, then start the run again; it resumes",
            )  # fmt: skip


def _exit(step: StepFacts) -> Evidence:
    assert step.exit_code is not None
    ended = f"signal {signal.Signals(-step.exit_code).name}" if step.exit_code < 0 else f"exit code {step.exit_code}"
    return Evidence(object=f"process of step {step.name}", time=step.ended or step.changed, text=f"ended by {ended}")


PYTHON_ERROR = re.compile(r"^(?:\[?rank\d+\]?: ?)?((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Fault))(?:: (.*))?$")


def step_failed(facts: Facts) -> Iterator[Finding]:
    """Report the first error of failed steps, whatever it is."""
    for step in ended_badly(facts):
        if step.state != "FAILED":
            continue
        error = next((line for line in step.lines if PYTHON_ERROR.search(line.text)), None)
        evidence = Evidence(object=f"step {step.name}", time=step.ended, text=clipped(step.error))
        if error is not None:
            evidence = Evidence(object=step.log, line=error.number, time=step.changed, text=clipped(error.text))
        text = clipped(step.error or (error.text if error else "it recorded no error"))
        yield Finding(
            rule="step_failed", kind="failure", where=f"step {step.name}", evidence=(evidence,),
            cause=f"step {step.name} failed: {text.removeprefix('UserError: ')}",
            remedy=f"correct what the error names (whole log: {step.log}), then start the run again; it resumes",
        )  # fmt: skip
