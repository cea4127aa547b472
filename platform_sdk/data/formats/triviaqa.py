"""TriviaQA's files: an object whose ``Data`` lists questions (Joshi et al., 2017), of any of its domains.

Evidence documents are not read: the open-domain test sets of search agents give questions and answers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, answered, write_object
from platform_sdk.records import Question, Rollout


class TriviaAnswer(msgspec.Struct, rename="pascal"):
    """Accepted answers; ``HumanAnswers`` are in the verified sets only."""

    value: str
    aliases: list[str]
    normalized_aliases: list[str] = msgspec.field(default_factory=list)
    human_answers: list[str] = msgspec.field(default_factory=list)


class TriviaRecord(msgspec.Struct, rename="pascal"):
    """A question of the list ``Data``."""

    question: str
    question_id: str
    answer: TriviaAnswer


def question(record: TriviaRecord, labels: Labels) -> Question:
    """Return the question of a record; answers that differ in case alone are listed once.

    Raises:
        BadField: the question has no answer.
    """
    answer = record.answer
    texts = [answer.value, *answer.aliases, *answer.human_answers, *answer.normalized_aliases]
    distinct = {text.lower(): text for text in reversed(texts) if text.strip()}
    if not distinct:
        raise BadField("Answer: has no text; the test set without answers cannot be scored")
    return Question(
        id=record.question_id,
        text=record.question,
        answers=tuple(distinct[key] for key in dict.fromkeys(text.lower() for text in texts if text.strip())),
        dataset="triviaqa",
        hops=1,
    )


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write a JSON object of answers by question id."""
    return write_object(stem, {question.id: answer for question, answer in answered(rollouts)})


FORMAT = DatasetFormat(TriviaRecord, question, key="Data", write=write)
