"""Cost of a study's runs, read from their run directories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.evaluation.report.content import gather
from platform_sdk.evaluation.report.course import UNTRAINED, course_of
from platform_sdk.files import read_object
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import RUN, STATE_EVENTS, journals, read


@dataclass(frozen=True)
class RunCost:
    """Cost of one run with its warm-up.

    Attributes:
        seconds: wall time between starts and ends, so without the time between a kill and the resumption; None if an
            end was not recorded.
        cpu_seconds: CPU time of the steps; None if an attempt of a step was killed or failed, or ran in an older
            version, since the CPU time of such attempts is not recorded.
        hardware: processors and memory.
        rollouts: attempts at questions, for training.
        optimizer_steps: None if an older version did not record them.
        questions: number of distinct questions with rollouts for training, until each evaluation.
    """

    seconds: float | None
    cpu_seconds: float | None
    hardware: str
    rollouts: int
    optimizer_steps: int | None
    questions: Mapping[str, int]


def costs_of(printed: Sequence[dict[str, Any]]) -> dict[str, RunCost]:
    """Return the cost of each run in the JSON of ``study table``, by its run directory as printed."""
    runs = dict.fromkeys(run for row in printed[-1]["rows"] for run in row["runs"].values())
    return {run: run_cost(Path(run)) for run in runs}


def run_cost(run_dir: Path) -> RunCost:
    """Return the cost of a run.

    Raises:
        UserError: a file of the run directory is invalid or was altered.
        RecordError: a rollout cannot be read.
    """
    course = course_of(gather(run_dir, rollouts=0))
    seen: set[str] = set()
    counts = [0]
    for stage in course.stages:
        for path in _rollout_files(run_dir, stage.name):
            seen.update(rollout.question.id for rollout in read_jsonl(path, Rollout))
        counts.append(len(seen))
    return RunCost(
        seconds=_seconds(run_dir),
        cpu_seconds=cpu_seconds_of(run_dir),
        hardware=str(read_object(RunDir(run_dir).environment)["hardware"]),
        rollouts=course.spent.rollouts,
        optimizer_steps=course.spent.optimizer_steps,
        questions={
            point.phase: counts[0 if point.phase == UNTRAINED else course.preparation + point.step]
            for point in course.points
        },
    )


def _seconds(run_dir: Path) -> float | None:
    states = [event for event in read(RunDir(run_dir).run_journal)[0] if event["event"] in STATE_EVENTS]
    pairs = list(zip(states[::2], states[1::2], strict=False))
    if len(states) % 2 or any((start["event"], end["event"]) != ("started", "ended") for start, end in pairs):
        return None
    return sum(int(end["time"]) - int(start["time"]) for start, end in pairs) / 1000


def cpu_seconds_of(run_dir: Path) -> float | None:
    """Return the CPU time of a run; see ``RunCost.cpu_seconds``."""
    # A resumed run enters its finished steps again.
    steps = [entry.used for entry in manifest.read(run_dir) if entry.event.startswith(seals.STEP)]
    events = [event for key, path in journals(run_dir).items() if key != RUN for event in read(path)[0]]
    started = sum(event["event"] == "started" for event in events)
    finished = sum(event["event"] == "ended" and event["status"] == "FINISHED" for event in events)
    if started != finished or any("cpu_seconds" not in used for used in steps):
        return None
    return math.fsum(float(used["cpu_seconds"]) for used in steps)


def _rollout_files(run_dir: Path, stage: str) -> list[Path]:
    """Return the files of the rollouts of a phase, or of an update, whose name is ``uNNNN``."""
    phase = RunDir(run_dir).phase(stage)
    if phase.rollouts.is_file():
        return [phase.rollouts]
    # Each process writes one file per update; files of discarded rollouts have another name.
    files = run_dir.glob(f"*/{PhaseDir.update_rollouts}/*.jsonl")
    return sorted(path for path in files if f"u{path.name.partition('.')[0]}" == stage)
