"""Rollouts shown in a report: a random sample of each phase, with the same questions in every phase."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from platform_sdk.files import open_regular
from platform_sdk.record_files import check_header, parse_line, read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.tracking.credit import RolloutCredit, TurnCredit, credit_file

PHASE_FILE = PhaseDir.rollouts
UPDATES_FOLDER = PhaseDir.update_rollouts
SELECTED_FILE = PhaseDir.selected
UPDATES_SHOWN = 8


@dataclass
class Sample:
    """Some of the ``total`` rollouts of a phase, or of an update of an online phase; ``accepted`` holds ids.

    ``credit`` is the credit of the agent's turns by rollout, if an update learned from them.
    """

    name: str
    rollouts: list[Rollout]
    total: int
    accepted: set[str] = field(default_factory=set)
    credit: dict[str, tuple[TurnCredit, ...]] = field(default_factory=dict)


def sources(folder: Path) -> list[tuple[str, list[Path]]]:
    """Return the sources of rollouts in a phase's folder by name and files: one source for the whole phase.

    An online phase has a source for each update; the first, the last and some evenly spaced between them are returned.
    The rollouts of an update are in one file per process.
    """
    if (folder / PHASE_FILE).is_file():
        return [(folder.name, [folder / PHASE_FILE])]
    updates: dict[int, list[Path]] = {}
    for path in sorted((folder / UPDATES_FOLDER).glob("*.jsonl")):
        number = path.name.partition(".")[0]
        if number.isdigit():  # files of discarded rollouts have another name
            updates.setdefault(int(number), []).append(path)
    return [(f"{folder.name} · update {number}", updates[number]) for number in _spread(sorted(updates))]


def share(sizes: list[int], limit: int) -> int:
    """Return the most rollouts that each source may show, so that all sources show at most ``limit``.

    The unused part of small sources goes to the larger ones.
    """
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(size, middle) for size in sizes) <= limit else (low, middle - 1)
    return low


def size(paths: list[Path]) -> int:
    """Return the number of rollouts in the files: complete lines without the headers."""
    found = 0
    for path in paths:
        with open_regular(path) as stream:
            found += max(0, sum(line.endswith(b"\n") for line in stream) - 1)
    return found


def draw(name: str, paths: list[Path], total: int, limit: int, selected: Path) -> Sample:
    """Return at most ``limit`` of the ``total`` rollouts of the files.

    Questions are taken in the order of a hash of their ids: random, but the same in every phase.

    Raises:
        RecordError: a file cannot be read.
    """

    def order(rollout: Rollout) -> tuple[str, int]:
        return hashlib.sha256(rollout.question.id.encode()).hexdigest(), rollout.attempt

    chosen = heapq.nsmallest(limit, (rollout for path in paths for rollout in _complete_rollouts(path)), key=order)
    chosen.sort(key=lambda rollout: (rollout.question.id, rollout.attempt))
    accepted = {rollout.id for rollout in _complete_rollouts(selected)} if selected.is_file() else set()
    learned = credit_file(paths[0])
    credit = {one.rollout: one.turns for one in read_jsonl(learned, RolloutCredit)} if learned.is_file() else {}
    return Sample(name, chosen, total, accepted, credit)


def _spread(numbers: list[int]) -> list[int]:
    if len(numbers) <= UPDATES_SHOWN:
        return numbers
    last = len(numbers) - 1
    return [numbers[round(place * last / (UPDATES_SHOWN - 1))] for place in range(UPDATES_SHOWN)]


def _complete_rollouts(path: Path) -> Iterator[Rollout]:
    """Yield the complete rollouts of a file that a running step may still be writing."""
    with open_regular(path) as stream:
        check_header(path, stream.readline(), Rollout)
        for number, line in enumerate(stream, start=2):
            if line.endswith(b"\n"):
                yield parse_line(path, number, line, Rollout)
