"""Sentences of a question's passages, for datasets that annotate them, and sentences of any text."""

from __future__ import annotations

import re
from itertools import pairwise

from platform_sdk.records import Evidence, Question, Source

_SENTENCE_END = re.compile(
    r"(?<=[.!?])"
    r"(?<!\b[A-Za-z]\.)"  # an initial, or the last letter of an acronym
    r"(?<!\b(?:Dr|Ft|Lt|Mr|Ms|Mt|St|vs)\.)"
    r"(?<!\b(?:Col|Gen|Gov|Hon|Mrs|Rep|Rev|Sen|Sgt|Vol|Jan|Feb|Aug|Oct|Nov|Dec)\.)"
    r"(?<!\b(?:Capt|Prof|Sept)\.)"
    r"\s++(?![a-z])"
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text; a full stop after an initial or a common abbreviation ends none."""
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def sentences(question: Question) -> tuple[tuple[Evidence, ...], tuple[int, ...]]:
    """Return the sentences of a question's passages, and the indices of the annotated supporting ones.

    An annotated sentence that its passage does not have is left out, as in ``gold_positions``.
    """
    pool: list[Evidence] = []
    gold: list[int] = []
    supporting = set(question.supporting_facts)
    for passage, starts in zip(question.context, question.context_sentences, strict=True):
        for number, (start, end) in enumerate(pairwise((*starts, len(passage.text)))):
            text = passage.text[start:end].strip()
            if not text:
                continue
            if (passage.title, number) in supporting:
                gold.append(len(pool))
            source = Source(passage=passage.id, start=start, end=end)
            pool.append(
                Evidence(
                    kind="passage",
                    id=f"{passage.id}#{number}",
                    title=passage.title,
                    text=text,
                    score=0.0,
                    source=source,
                )
            )
    return tuple(pool), tuple(gold)
