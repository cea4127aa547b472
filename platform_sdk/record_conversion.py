"""Rollouts of schema 1 as rollouts of schema 2.

Schema 1 kept a trajectory's evidence in one list, and named what was called by ids alone. What it did not record (the
queries of a turn) stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, ValidationError

from platform_sdk.errors import UserError
from platform_sdk.record_files import RecordError, header, read_jsonl, write_jsonl
from platform_sdk.records import Evidence, Question, Record, Rollout, Trajectory, Turn, given_evidence

# Who called a trajectory: its id holds the number of the calling turn (from 0), or it is one of a strategy of one turn.
_BY_TURN = re.compile(r"(\d{1,6})\.\d{1,6}|follow-up-(\d{1,6})")
_BY_FIRST = re.compile(r"summary-\d+|valid-\d+|better-\d+-\d+")


class ConversionError(ValueError):
    """A rollout of schema 1 that does not say what schema 2 records."""


class OldTurn(Record):
    speaker: Literal["agent", "environment"]
    text: str
    start: int
    end: int
    malformed: str | None = None


class OldTrajectory(Record):
    role: Literal["planner", "worker", "agent"]
    id: str
    token_ids: tuple[int, ...]
    agent_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[OldTurn, ...]
    evidence: tuple[Evidence, ...] = ()
    selected: tuple[int, ...] = ()
    answer: str | None = None


class OldRollout(Record):
    """A rollout as schema 1 had it."""

    KIND: ClassVar[str] = Rollout.KIND
    question: Question
    attempt: int
    seed: int
    planner: OldTrajectory
    workers: tuple[OldTrajectory, ...] = ()
    outcome: Literal["answered", "iteration_limit", "context_limit"]
    rewards: dict[str, float] = Field(default_factory=dict)
    weights: str
    corpus: str


def convert(old: OldRollout) -> Rollout:
    """Return a rollout of schema 1 as one of schema 2.

    Raises:
        ConversionError: it is not said which turn called a trajectory, or which message showed a piece of evidence.
    """
    given = given_evidence(old.question.context)
    main = _converted(old.planner, given)
    places = [place for place, turn in enumerate(main.turns) if turn.speaker == "agent"]
    turns = list(main.turns)
    for worker in old.workers:
        number = _caller(worker.id)
        if number is None or number >= len(places) or turns[places[number]].malformed is not None:
            raise ConversionError(f"workers: no turn of the planner called {worker.id}")
        turn = turns[places[number]]
        turns[places[number]] = turn.model_copy(update={"calls": (*turn.calls, worker.id)})
    return Rollout(
        **old.model_dump(exclude={"question", "planner", "workers"}),
        question=old.question,
        main=main.model_copy(update={"turns": tuple(turns)}),
        others=tuple(_converted(worker, given) for worker in old.workers),
    )


def convert_file(source: Path, target: Path) -> int:
    """Write the rollouts of a file of schema 1 to ``target``; return how many.

    Raises:
        RecordError: a line is not a rollout of schema 1, or cannot be converted; the message names file and line.
        UserError: ``target`` is there already.
    """
    if target.exists():
        raise UserError(f"{target}: already exists; name a new file")
    if source.is_file():
        with source.open("rb") as stream:
            if stream.readline().strip() == header(Rollout).encode():
                raise RecordError(f"{source}:1: is of schema {Rollout.SCHEMA} already; there is nothing to convert")

    def converted() -> Iterator[Rollout]:
        for number, old in enumerate(read_jsonl(source, OldRollout), start=2):
            try:
                yield convert(old)
            except ValidationError as error:
                raise RecordError(f"{source}:{number}: {error.errors()[0]['msg']}") from error
            except ConversionError as error:
                raise RecordError(f"{source}:{number}: {error}") from error

    return write_jsonl(target, Rollout, converted())


def _caller(id: str) -> int | None:
    """Return which turn of the agent, counted from 0, called the trajectory of this id."""
    if found := _BY_TURN.fullmatch(id):
        return int(found[1] or found[2])
    return 0 if _BY_FIRST.fullmatch(id) else None


def _converted(old: OldTrajectory, given: tuple[Evidence, ...]) -> Trajectory:
    """Return the trajectory with its evidence where it was shown; ``given`` are the question's own passages.

    Schema 1 left out the passages that the strategies of several calls were given: their openings show them all.
    """
    opening = old.turns[0].text if old.turns else ""
    shows_given = not old.evidence and _count(opening, given, 1) == len(given)
    shown = _placed(old.turns, given if shows_given else old.evidence)
    turns = [Turn(**turn.model_dump(), evidence=items) for turn, items in zip(old.turns, shown, strict=True)]
    return Trajectory(**old.model_dump(exclude={"turns", "evidence"}), turns=tuple(turns))


def _placed(turns: Sequence[OldTurn], evidence: Sequence[Evidence]) -> list[tuple[Evidence, ...]]:
    """Return what each turn shows: numbered lines of the environment's messages, from 0 or from 1."""
    for first in (0, 1):
        rest, shown = list(evidence), []
        for turn in turns:
            count = _count(turn.text, rest, first) if turn.speaker == "environment" else 0
            shown.append(tuple(rest[:count]))
            rest = rest[count:]
        if not rest:
            return shown
    raise ConversionError(f"evidence: no message of the environment shows {rest[0].id}")


def _count(text: str, evidence: Sequence[Evidence], first: int) -> int:
    """Return how many pieces of evidence, from the first on, a message shows in their order."""
    end = 0
    for number, item in enumerate(evidence):
        line = f"[{number + first}] {item.text if item.kind == 'triple' else f'{item.title} : {item.text}'}\n"
        end = f"{text}\n".find(line, end) + len(line)
        if end < len(line):
            return number
    return len(evidence)
