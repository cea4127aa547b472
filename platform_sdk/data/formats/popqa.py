"""PopQA's file: a TSV of questions about entities of Wikidata (Mallen et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, answered, write_lines
from platform_sdk.records import Question, Rollout


class PopRecord(msgspec.Struct):
    """A row; ``possible_answers`` is a JSON list of texts, ``prop`` the relation of the question."""

    id: str
    question: str
    possible_answers: str
    prop: str = ""


def question(record: PopRecord, labels: Labels) -> Question:
    """Return the question of a row.

    Raises:
        BadField: a value is empty, or ``possible_answers`` is not a JSON list of texts.
    """
    if not record.id.strip() or not record.question.strip():
        raise BadField(f"{'question' if record.id.strip() else 'id'}: is empty")
    return Question(
        id=f"popqa-{record.id}",
        text=record.question,
        answers=possible_answers(record.possible_answers),
        dataset="popqa",
        type=record.prop,
        hops=1,
    )


def possible_answers(text: str) -> tuple[str, ...]:
    """Return the distinct accepted answers of a row.

    Raises:
        BadField: the text is not a JSON list of texts, or lists none.
    """
    try:
        answers = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadField(f"possible_answers: not a JSON list of texts ({error})") from error
    distinct = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    if not distinct:
        raise BadField("possible_answers: lists no answer")
    return distinct


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write JSONL of ``id`` and ``prediction``."""
    return write_lines(
        stem, [{"id": one.id.removeprefix("popqa-"), "prediction": answer} for one, answer in answered(rollouts)]
    )


FORMAT = DatasetFormat(PopRecord, question, table="\t", unit="line", write=write)
