"""User-defined questions: JSONL of ``question`` and ``answers``, and optionally what supports the answer.

For searches in texts these are ``passages`` and ``gold``, in a knowledge graph ``topic_entities`` and ``gold_triples``.
"""

from __future__ import annotations

import hashlib

import msgspec

from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, numbered_passages
from platform_sdk.records import Passage, Question, Triple


class PlainPassage(msgspec.Struct, forbid_unknown_fields=True):
    """A passage of a question."""

    text: str
    title: str = ""


class PlainRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file.

    Attributes:
        gold: titles of passages, or indices in ``passages``.
        topic_entities: entities of the knowledge graph with which the agent's search starts.
        gold_triples: head, relation and tail of the triples that support the answer.
    """

    question: str
    answers: list[str]
    id: str | None = None
    passages: list[PlainPassage] = msgspec.field(default_factory=list)
    gold: list[str | int] = msgspec.field(default_factory=list)
    topic_entities: list[str] = msgspec.field(default_factory=list)
    gold_triples: list[tuple[str, str, str]] = msgspec.field(default_factory=list)


def question(record: PlainRecord, labels: Labels) -> Question:
    """Return the question of a line; without an id, a digest of its text is the id.

    Raises:
        BadField: a field is invalid; the message begins with its name.
    """
    if not record.question.strip():
        raise BadField("question: is empty")
    if not record.answers or not all(answer.strip() for answer in record.answers):
        raise BadField("answers: needs one answer or more, none of them empty")
    id_ = record.id or f"q-{hashlib.sha256(record.question.encode(errors='surrogatepass')).hexdigest()[:12]}"
    context = numbered_passages(id_, [(one.title, one.text) for one in record.passages])
    gold = [_gold(entry, context) for entry in record.gold]
    return Question(
        id=id_,
        text=record.question,
        answers=tuple(dict.fromkeys(record.answers)),
        dataset="jsonl",
        hops=len(gold) or len(record.gold_triples) or None,
        gold_passages=tuple(dict.fromkeys(title for title, _ in gold if title)),
        gold_context=tuple(place for _, place in gold if place),
        gold_triples=tuple(
            Triple(head=head, relation=relation, tail=tail) for head, relation, tail in record.gold_triples
        ),
        topic_entities=tuple(dict.fromkeys(record.topic_entities)),
        context=context,
    )


def _gold(entry: str | int, context: tuple[Passage, ...]) -> tuple[str, str]:
    """Return the title and id of a gold passage; the id is empty for a title not in the context."""
    if isinstance(entry, int):
        if not 0 <= entry < len(context):
            raise BadField(f"gold: {entry} is not a position in passages, which has {len(context)} (from 0)")
        return context[entry].title, context[entry].id
    found = [passage.id for passage in context if passage.title == entry]
    if context and not found:
        raise BadField(f"gold: no passage has the title {entry!r}")
    return entry, found[0] if found else ""


FORMAT = DatasetFormat(PlainRecord, question, lines=True, unit="line", repeats=True)
