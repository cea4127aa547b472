"""Rules for failed and stuck processes, of local steps and of pods, from their errors, exit codes and logs."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from platform_sdk.diagnosis.facts import Facts, Line
from platform_sdk.diagnosis.findings import Evidence, Finding
from platform_sdk.diagnosis.sources import Match, Source, clipped, failed, running

RESUME = "then start the run again; it resumes"
FULL = re.compile(
    r"(?:(?<![^\s:])([^\s:]++): cannot be written: )?"  # tried where a word begins only: a log has long words
    r"(?:No space left on device|Disk quota exceeded|database or disk is full|File too large|ENOSPC)"
)


def disk_full(facts: Facts) -> Iterator[Finding]:
    """Find processes that could not write for lack of space."""
    for source in failed(facts):
        if match := source.find(FULL):
            evidence = [match.evidence]
            if facts.disk is not None:
                free = f"{facts.disk.free_bytes / 2**20:,.0f} MiB free now"
                evidence.append(Evidence(object="file system of the run directory", time=facts.collected, text=free))
            yield Finding(
                rule="disk_full", kind="failure", where=source.name, evidence=tuple(evidence),
                cause=f"the disk is full: {source.name} could not write {match.groups[0] or 'its files'}",
                remedy=f"free space on the volume or enlarge it, {RESUME}",
            )  # fmt: skip


MEMORY = re.compile(
    r"(?:^|\W)(?:MemoryError|CUDA out of memory|OutOfMemoryError|std::bad_alloc|Cannot allocate memory|"
    r"can't allocate memory|can't start new thread|unable to mmap \d+ bytes|failed to map segment)"
)
GPU_MEMORY = re.compile(r"CUDA out of memory|HIP out of memory")
SMALLER = "lower micro_batch_tokens, max_length or sampling.engine.live"


def out_of_memory(facts: Facts) -> Iterator[Finding]:
    """Find processes that could not allocate memory, or that the kernel killed for lack of it."""
    for source in failed(facts):
        if match := source.find(MEMORY):
            gpu = GPU_MEMORY.search(match.evidence.text) is not None
            larger = "use a GPU with more memory" if gpu else "raise its memory limit (ulimit -v, the container's)"
            yield Finding(
                rule="out_of_memory", kind="failure", where=source.name, evidence=(match.evidence,),
                cause=f"{source.name} ran out of {'GPU memory' if gpu else 'memory'}",
                remedy=f"{SMALLER}, or {larger}, {RESUME}",
            )  # fmt: skip
        elif facts.oom_kills and (source.exit_code == -signal.SIGKILL or _ended_by(source, "SIGKILL")):
            text = f"oom_kill grew by {facts.oom_kills} during the run"
            yield Finding(
                rule="out_of_memory", kind="failure", where=source.name,
                cause=f"the kernel killed {source.name} for lack of memory"
                + (f", peak {source.peak.groups[0]}" if source.peak.groups else ""),
                evidence=(_end(source), Evidence(object="memory cgroup of the run", time=facts.ended, text=text),
                          source.peak.evidence),
                remedy=f"{SMALLER}, or raise the memory limit of the machine or container, {RESUME}",
            )  # fmt: skip


UNREADABLE = re.compile(
    r"(?:(?<![^\s:])([^\s:]++): cannot be (?:read|written): (?:[^:]*: )*?)?"
    r"(Permission denied|Input/output error|Stale file handle|Read-only file system)(?:: '([^']+)')?"
)


def unreadable_file(facts: Facts) -> Iterator[Finding]:
    """Find processes that may not read or write a file, or whose volume fails."""
    for source in failed(facts):
        if match := source.find(UNREADABLE):
            yield Finding(
                rule="unreadable_file", kind="failure", where=source.name, evidence=(match.evidence,),
                cause=f"{source.name} could not open {match.groups[0] or match.groups[2] or 'a file'}: "
                f"{match.groups[1]}",
                remedy=f"correct the owner and mode of the file (chown, chmod), or mount its volume again, {RESUME}",
            )  # fmt: skip


NOT_FINITE = re.compile(r"the loss of step (\d+) is (nan|-?inf)")
WEIGHTS = re.compile(r"does not sample from these weights: .* but a plain forward pass gives (nan|-?inf)")


def loss_not_finite(facts: Facts) -> Iterator[Finding]:
    """Find trainings whose loss or gradients became infinite or not a number."""
    remedy = (
        "lower learning_rate and weight_decay, check that the initial model's weights are finite, and start the run in "
        "a new --workdir"
    )
    found = False
    for source in failed(facts):
        if match := source.find(NOT_FINITE):
            found = True
            yield Finding(
                rule="loss_not_finite", kind="failure", where=source.name, evidence=(match.evidence,), remedy=remedy,
                cause=f"the loss of {source.name} is {match.groups[1]} at optimizer step {match.groups[0]}",
            )  # fmt: skip
        elif match := source.find(WEIGHTS):
            found = True
            yield Finding(
                rule="loss_not_finite", kind="failure", where=source.name, evidence=(match.evidence,), remedy=remedy,
                cause=f"the weights trained by {source.name} give {match.groups[0]} for every token",
            )  # fmt: skip
    first = {} if found else {point.phase: point for point in reversed(facts.training) if point.not_finite}
    stored = " in MLflow" if facts.place == "cluster" else ""
    for phase, point in first.items():
        names = ", ".join(point.not_finite)
        yield Finding(
            rule="loss_not_finite", kind="worthless", where=phase, remedy=remedy,
            cause=f"the training of {phase} is not finite from step {point.number} on",
            evidence=(Evidence(object=f"curve of {phase}{stored}, step {point.number}", text=f"{names}: not finite"),),
        )  # fmt: skip


SERVICE = r"(https?://\S+|Milvus): (.*?)"
GAVE_UP = re.compile(SERVICE + r"; waited [\d.]+ s for it \(retrieval\.patience_seconds\)")
WAITING = re.compile(SERVICE + r"; waiting up to [\d.]+ s for it")


def retriever_down(facts: Facts) -> Iterator[Finding]:
    """Find processes that wait, or waited in vain, for a retriever or Milvus that does not answer."""
    for source in failed(facts):
        if match := source.find(GAVE_UP) or (source.find(WAITING) if source.killed else None):
            yield Finding(
                rule="retriever_down", kind="failure", where=source.name, evidence=(match.evidence,),
                cause=f"the retriever {match.groups[0]} does not answer {source.name}: {match.groups[1]}",
                remedy=f"start or restart the service (its log has the reason), {RESUME}",
            )  # fmt: skip
    for source in running(facts):
        # A later line shows that the service answered again.
        last = source.lines[-1] if source.lines else None
        if last is not None and (waiting := WAITING.search(last.text)):
            yield Finding(
                rule="retriever_down", kind="waiting", where=source.name, evidence=(source.quote(last),),
                cause=f"the retriever {waiting[1]} does not answer {source.name}: {waiting[2]}",
                remedy="start or restart the service (its log has the reason); the step continues once it answers",
            )  # fmt: skip


WORKER = re.compile(r"the run's worker process ended unexpectedly")
ONE_OF_SEVERAL = re.compile(r"(process \d+ of \d+): ended by (SIG\w+)")
BY_KERNEL = ", which the kernel also sends when memory is short (see dmesg)"


def process_killed(facts: Facts) -> Iterator[Finding]:
    """Find steps whose process, or the worker process that starts them, a signal ended."""
    for source in failed(facts):
        if match := source.find(WORKER):
            yield Finding(
                rule="process_killed", kind="failure", where=source.name, evidence=(match.evidence,),
                cause=f"the run's worker process was killed in {source.name}",
                remedy=f"find out who killed it (dmesg shows if memory was short), {RESUME}",
            )  # fmt: skip
        if match := source.find(ONE_OF_SEVERAL):
            process, name = match.groups
            yield Finding(
                rule="process_killed", kind="failure", where=source.name, evidence=(match.evidence,),
                cause=f"signal {name} ended {process} of {source.name}" + BY_KERNEL * (name == "SIGKILL"),
                remedy=f"find out who sent the signal, {RESUME}",
            )  # fmt: skip
        elif source.exit_code is not None and source.exit_code < 0:
            yield Finding(
                rule="process_killed", kind="failure", where=source.name, evidence=(_exit(source),),
                cause=f"{_signal(source)} ended the process of {source.name}"
                + BY_KERNEL * (source.exit_code == -signal.SIGKILL),
                remedy=f"find out who sent the signal, {RESUME}",
            )  # fmt: skip


def _ended_by(source: Source, name: str) -> Match | None:
    """Return the report that a signal ended one of the processes of a source."""
    match = source.find(ONE_OF_SEVERAL)
    return match if match is not None and match.groups[1] == name else None


def _end(source: Source) -> Evidence:
    match = _ended_by(source, "SIGKILL")
    return _exit(source) if match is None else match.evidence


def _exit(source: Source) -> Evidence:
    return Evidence(object=f"process of {source.name}", time=source.ended, text=f"ended by {_signal(source)}")


def _signal(source: Source) -> str:
    assert source.exit_code is not None
    number = -source.exit_code
    return f"signal {signal.Signals(number).name if number in set(signal.Signals) else number}"


PYTHON_ERROR = re.compile(
    r"^(?:\[?[a-z_]*\d{1,6}\]?: ?)*((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Fault|Mismatch|Finite)(?:: .*)?)$"
)
"""Last line of a traceback, possibly after the ranks that torchrun and torch write before it."""
MESSAGE = re.compile(r"(?:^|: ?)error: (.+)")  # torchrun writes the rank before a process's line
CONSEQUENCE = re.compile(
    r"NCCL|ProcessGroup(?:NCCL|Gloo)|Rendezvous|DistNetworkError|DistStoreError|Connection (?:reset|closed) by peer|"
    r"Broken pipe|ChildFailedError|the connection to the job's first node was lost"
)
"""Errors of a process that lost the others: their error is the cause."""


def first_error(facts: Facts) -> Iterator[Finding]:
    """Report the error of the process that failed first; errors from the loss of another process come last."""
    sources = sorted(failed(facts), key=lambda source: _is_consequence(source))
    for source in [source for source in sources if not source.killed][:1]:
        line = _error_line(source)
        evidence = Evidence(object=source.name, time=source.ended, text=clipped(source.error))
        text = source.error.removeprefix("UserError: ")
        if line is not None:
            evidence = source.quote(line)
            text = text or _text(line.text)
        ended = f"exit code {source.exit_code}" if source.exit_code else ""
        known = ": ".join(part for part in (ended, clipped(text)) if part) or "it recorded no error"
        yield Finding(
            rule="first_error", kind="failure", where=source.name, cause=f"{source.name}: {known}",
            evidence=(evidence if evidence.text else Evidence(object=source.name, time=source.ended, text=known),),
            remedy=f"correct what the error names (whole log: {source.log}), {RESUME}",
        )  # fmt: skip


def _error_line(source: Source) -> Line | None:
    """Return the line of the first error that is no consequence of another process's end."""
    errors = [line for line in source.lines if PYTHON_ERROR.search(line.text) or MESSAGE.search(line.text)]
    return next((line for line in errors if not CONSEQUENCE.search(line.text)), errors[0] if errors else None)


def _is_consequence(source: Source) -> bool:
    line = _error_line(source)
    return CONSEQUENCE.search(line.text if line is not None else source.error) is not None


def _text(line: str) -> str:
    found = PYTHON_ERROR.search(line) or MESSAGE.search(line)
    return found[1] if found else line
