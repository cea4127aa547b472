"""QALD-10's files: questions in several languages, answers as SPARQL results (entities, literals, booleans).

``dataset.labels`` is ``topic_entities.json``: without it an entity answer is its Wikidata id, and there are no topic
entities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from platform_sdk.data.files import read_json
from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, answered, write_object
from platform_sdk.records import Question, Rollout

ENTITY = "/entity/"
_DATE = "dateTime"


class Wording(msgspec.Struct):
    """The question in one language."""

    language: str
    string: str


class Binding(msgspec.Struct):
    """One value of a SPARQL result."""

    type: str
    value: str
    datatype: str = ""


class Results(msgspec.Struct):
    """The rows of a SPARQL result."""

    bindings: list[dict[str, Binding]]


class Answer(msgspec.Struct):
    """A SPARQL answer: rows, or the boolean of an ASK query."""

    results: Results | None = None
    boolean: bool | None = None


class QaldQuestion(msgspec.Struct):
    """A question of the official file."""

    id: int | str
    question: list[Wording]
    answers: list[Answer]
    query: dict[str, Any] = msgspec.field(default_factory=dict)


class EntityNames(msgspec.Struct):
    """The names of a question's entities by Wikidata id: topic entities and answers."""

    id: int | str
    topic_entity: dict[str, str] = msgspec.field(default_factory=dict)
    answer_labels: dict[str, str] = msgspec.field(default_factory=dict)


def read_entity_names(path: Path) -> dict[str, EntityNames]:
    """Return the entity names in ``path`` (a list of :class:`EntityNames`) by question id."""
    return {str(entry.id): entry for entry in read_json(path, list[EntityNames])}


def english(question: QaldQuestion) -> str | None:
    """Return the English wording, or None."""
    return next((wording.string for wording in question.question if wording.language == "en"), None)


def accepted_answers(question: QaldQuestion, labels: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the accepted texts of each of the question's answers, the canonical one first.

    A boolean is ``yes`` or ``no``. An entity has its label, its id, and its URI; a literal its value without a leading
    ``+``; a date and time also the date alone.
    """
    answers: list[tuple[str, ...]] = []
    for answer in question.answers:
        if answer.boolean is not None:
            answers.append(("yes" if answer.boolean else "no",))
        for row in answer.results.bindings if answer.results else ():
            answers.extend(_texts(value, labels) for value in row.values())
    return answers


def _texts(value: Binding, labels: Mapping[str, str]) -> tuple[str, ...]:
    if value.type == "uri":
        identifier = value.value.rsplit("/", 1)[-1] if ENTITY in value.value else value.value
        texts: tuple[str, ...] = (labels.get(identifier, identifier), identifier, value.value)
    else:
        plain = value.value.removeprefix("+")
        texts = (plain.partition("T")[0], plain) if value.datatype.endswith(_DATE) else (plain,)
    return tuple(dict.fromkeys(texts))


def question(record: QaldQuestion, labels: Labels) -> Question:
    """Return the question of a record, in English.

    Raises:
        BadField: the record has no English wording, or no answer.
    """
    text = english(record)
    if text is None:
        raise BadField("question: has no English wording")
    entities = labels.get(str(record.id))
    answers = accepted_answers(record, entities.answer_labels if entities else {})
    if not answers:
        raise BadField("answers: empty")
    # An entity's id and URI are for scoring; agents answer with labels.
    literal = [name for answer in answers for name in (answer[:1] if answer[-1].startswith("http") else answer)]
    return Question(
        id=str(record.id),
        text=text,
        answers=tuple(dict.fromkeys(literal)),
        dataset="qald10",
        topic_entities=tuple(entities.topic_entity.values()) if entities else (),
        topic_ids=tuple(entities.topic_entity) if entities else (),
    )


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write a JSON object of lists of answers by id."""
    return write_object(stem, {question.id: [answer] for question, answer in answered(rollouts)})


FORMAT = DatasetFormat(QaldQuestion, question, key="questions", labels=read_entity_names, write=write)
