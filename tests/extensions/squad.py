"""A dataset format of one's own with its environment, in one file: SQuAD's articles flattened to a record each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.config.environment import Environment
from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, answered, numbered_passages, write_object
from platform_sdk.records import Question, Rollout


class Answer(msgspec.Struct):
    text: str
    answer_start: int


class Record(msgspec.Struct):
    id: str
    title: str
    context: str
    question: str
    answers: list[Answer]


def question(record: Record, labels: Labels) -> Question:
    if not record.answers:
        raise BadField("answers: is empty; questions that cannot be answered are not supported")
    return Question(
        id=record.id,
        text=record.question,
        answers=tuple(dict.fromkeys(answer.text for answer in record.answers)),
        dataset="squad",
        hops=1,
        gold_passages=(record.title,),
        context=numbered_passages(record.id, [(record.title, record.context)]),
    )


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write answers by id, as the official script reads them."""
    return write_object(stem, {question.id: answer for question, answer in answered(rollouts)})


ENVIRONMENT = Environment(method="lexical")
FORMAT = DatasetFormat(Record, question, key="data", write=write)
