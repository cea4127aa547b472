"""MuSiQue-Ans' files: JSONL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, write_lines
from platform_sdk.records import Hop, Passage, Question, Rollout


class MusiqueParagraph(msgspec.Struct):
    """A paragraph of a MuSiQue record."""

    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool


class MusiqueStep(msgspec.Struct):
    """A step of a MuSiQue question's decomposition."""

    question: str
    answer: str
    paragraph_support_idx: int | None = None


class MusiqueRecord(msgspec.Struct):
    """MuSiQue's record; the paragraphs are optional."""

    id: str
    question: str
    answer: str
    answer_aliases: list[str]
    question_decomposition: list[MusiqueStep]
    paragraphs: list[MusiqueParagraph] = msgspec.field(default_factory=list)
    answerable: bool = True


def question(record: MusiqueRecord, labels: Labels) -> Question:
    """Return the question of a record.

    Raises:
        BadField: the record is an unanswerable one of MuSiQue-Full.
    """
    if not record.answerable:
        raise BadField("answerable: false; only MuSiQue-Ans is supported")
    return Question(
        id=record.id,
        text=record.question,
        answers=tuple(dict.fromkeys([record.answer, *record.answer_aliases])),
        dataset="musique",
        type=record.id.partition("__")[0],
        hops=len(record.question_decomposition),
        gold_passages=tuple(dict.fromkeys(p.title for p in record.paragraphs if p.is_supporting)),
        context=tuple(
            Passage(id=f"{record.id}/{p.idx}", title=p.title, text=p.paragraph_text) for p in record.paragraphs
        ),
        gold_context=tuple(f"{record.id}/{p.idx}" for p in record.paragraphs if p.is_supporting),
        decomposition=tuple(
            Hop(question=step.question, answer=step.answer, passage=_supporting(record, step))
            for step in record.question_decomposition
        ),
    )


def _supporting(record: MusiqueRecord, step: MusiqueStep) -> str:
    found = [p.idx for p in record.paragraphs if p.idx == step.paragraph_support_idx]
    return f"{record.id}/{found[0]}" if found else ""


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write JSONL of ``id``, ``predicted_answer``, ``predicted_support_idxs`` and ``predicted_answerable``.

    A question without an answer gets an empty answer, since the script requires every line. The paragraphs are those of
    the question that the agent chose; none if the question has no passages.
    """
    return write_lines(
        stem,
        [
            {
                "id": rollout.question.id,
                "predicted_answer": rollout.main.answer or "",
                "predicted_support_idxs": _chosen_paragraphs(rollout),
                "predicted_answerable": True,
            }
            for rollout in rollouts
        ],
    )


def _chosen_paragraphs(rollout: Rollout) -> list[int]:
    """Return the ``idx`` of each chosen passage of the question's context, which is the end of the passage's id."""
    given = {passage.id for passage in rollout.question.context}
    chosen = (rollout.main.evidence[place].id for place in rollout.main.selected)
    return [int(id.rpartition("/")[2]) for id in chosen if id in given]


FORMAT = DatasetFormat(MusiqueRecord, question, lines=True, write=write)
