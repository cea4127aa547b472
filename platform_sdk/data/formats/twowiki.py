"""2WikiMultihopQA's files: HotpotQA's with evidence triples.

``dataset.labels`` is ``id_aliases.json``: aliases of the answer's entity are accepted too; without it only the answer
is accepted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.aliases import read_aliases
from platform_sdk.data.formats.base import (
    BadField,
    DatasetFormat,
    Labels,
    answered,
    joined_sentences,
    numbered_passages,
    write_object,
)
from platform_sdk.data.formats.hotpotqa import HotpotRecord, hotpot_question
from platform_sdk.records import Question, Rollout, Triple

_ENTITY_ID = re.compile(r"Q\d+")
NameTriple = tuple[str, str, str]


class TwoWikiRecord(HotpotRecord, kw_only=True):
    """2WikiMultihopQA's record; ``evidences_id`` is empty if the dataset gives no ids."""

    evidences: list[NameTriple]
    answer_id: str | None = None
    evidences_id: list[NameTriple] = msgspec.field(default_factory=list)


def question(record: TwoWikiRecord, labels: Labels) -> Question:
    """Return the question of a record; its entry points are heads of evidences that are not tails of others."""
    triples = [
        Triple(head=head, relation=relation, tail=tail, head_id=_entity(head_id), tail_id=_entity(tail_id))
        for (head, relation, tail), (head_id, _, tail_id) in zip(record.evidences, _evidence_ids(record), strict=True)
    ]
    tails: set[str] = set()
    entry_points: dict[str, str] = {}
    for triple in triples:
        if triple.head not in tails:
            entry_points.setdefault(triple.head, triple.head_id)
        tails.add(triple.tail)
    paragraphs = [(title, *joined_sentences(sentences, " ")) for title, sentences in record.context]
    return hotpot_question(record, labels).model_copy(
        update={
            "dataset": "2wikimultihopqa",
            "answers": tuple(dict.fromkeys([record.answer, *sorted(labels.get(record.answer_id or "", ()))])),
            "gold_triples": tuple(triples),
            "topic_entities": tuple(entry_points),
            "topic_ids": tuple(entry_points.values()) if any(entry_points.values()) else (),
            "context": numbered_passages(record.id, [(title, text) for title, text, _ in paragraphs]),
            "context_sentences": tuple(starts for _, _, starts in paragraphs),
        }
    )


def _evidence_ids(record: TwoWikiRecord) -> list[NameTriple]:
    """Return the ids of each evidence; empty if missing or ambiguous.

    Some records list evidences entity by entity (A, A, B), but their ids alternately (A, B, A): by position, two
    entities would share an id. So a relation's n-th entity gets its n-th id; the facts of both are in the same order.
    """
    names, ids = record.evidences, record.evidences_id
    if ids and len(ids) != len(names):
        raise BadField(f"evidences_id: {len(ids)} entries, but evidences has {len(names)}")
    places, found = list(_places(names)), dict(zip(_places(ids), ids, strict=True))
    return [found[place] for place in places] if set(places) == set(found) else [("", "", "")] * len(names)


def _places(triples: Iterable[NameTriple]) -> Iterator[tuple[str, int, int]]:
    """Yield each triple's relation, its head's index within the relation, and its index among the head's facts."""
    heads: defaultdict[str, dict[str, int]] = defaultdict(dict)
    facts: Counter[tuple[str, str]] = Counter()
    for head, relation, _ in triples:
        yield relation, heads[relation].setdefault(head, len(heads[relation])), facts[relation, head]
        facts[relation, head] += 1


def _entity(identifier: str) -> str:
    """Return a Wikidata id, or an empty text for the dataset's placeholders (``date_information``)."""
    return identifier if _ENTITY_ID.fullmatch(identifier) else ""


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write HotpotQA's format plus ``evidence``; agents give no sentences or triples, so both are empty."""
    answers = {question.id: answer for question, answer in answered(rollouts)}
    return write_object(stem, {"answer": answers, "sp": {}, "evidence": {}})


FORMAT = DatasetFormat(TwoWikiRecord, question, labels=read_aliases, write=write)
