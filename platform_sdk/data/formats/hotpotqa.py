"""HotpotQA's files.

Harmless irregularities are kept: a supporting fact beyond the end of its paragraph, a gold title missing from the
context, contexts of any number of paragraphs.
"""

from __future__ import annotations

import msgspec

from platform_sdk.data.formats.base import DatasetFormat, Labels, joined_sentences, numbered_passages
from platform_sdk.records import Question


class HotpotRecord(msgspec.Struct):
    """HotpotQA's record; the context is optional."""

    question: str
    answer: str
    supporting_facts: list[tuple[str, int]]
    id: str = msgspec.field(name="_id")
    type: str = ""
    context: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)


def hotpot_question(record: HotpotRecord, labels: Labels) -> Question:
    """Return the question of a record; its hops are the titles of its supporting facts."""
    titles = tuple(dict.fromkeys(title for title, _ in record.supporting_facts))
    # Sentences include their leading space.
    paragraphs = [(title, *joined_sentences(sentences, "")) for title, sentences in record.context]
    return Question(
        id=record.id,
        text=record.question,
        answers=(record.answer,),
        dataset="hotpotqa",
        type=record.type,
        hops=len(titles) or None,
        gold_passages=titles,
        supporting_facts=tuple(record.supporting_facts),
        context=numbered_passages(record.id, [(title, text) for title, text, _ in paragraphs]),
        context_sentences=tuple(starts for _, _, starts in paragraphs),
    )


FORMAT = DatasetFormat(HotpotRecord, hotpot_question)
