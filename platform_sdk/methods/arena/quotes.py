"""Explanations by rule: the sentences of a question's gold passages that its annotations point to.

ARENA's demonstrations are explanations by a strong model (appendix D). For a model too small to write explanations, a
rule builds them from the gold passages and the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from platform_sdk.data.sentences import sentences
from platform_sdk.records import Passage, Question

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def quoted(question: Question) -> str | None:
    """Return sentences of the gold passages, each followed by its passage's number in brackets; None without any.

    These are the supporting sentences if the dataset annotates them; otherwise, for each gold passage, the first
    sentence that contains the passage's contribution: the object of a gold triple about it, the answer of its hop, or
    the answer. They are in the order of the hops or triples if there are any; otherwise passages that contain the
    answer come last.
    """
    quotes = [
        f"{sentence} [{place + 1}]"
        for place in sorted(question.gold_positions, key=lambda place: _step(question, place))
        for sentence in _supporting(question, place)
    ]
    return " ".join(quotes) or None


def _step(question: Question, place: int) -> int:
    """Return which step of the reasoning needs the passage at ``place``."""
    passage = question.context[place]
    if question.decomposition:
        steps: Iterable[bool] = (hop.passage == passage.id for hop in question.decomposition)
    elif question.gold_triples:
        steps = (triple.head == passage.title for triple in question.gold_triples)
    else:
        return int(_holds(passage.text, question.answers))
    return next((number for number, needed in enumerate(steps) if needed), 0)


def _supporting(question: Question, place: int) -> list[str]:
    passage = question.context[place]
    if question.context_sentences:
        pool, gold = sentences(question)
        if own := [pool[number].text for number in gold if pool[number].id.rpartition("#")[0] == passage.id]:
            return own
    parts = [part for part in _SENTENCE_END.split(passage.text.strip()) if part]
    return [next((part for part in parts if _holds(part, _needed(question, passage))), parts[0])] if parts else []


def _needed(question: Question, passage: Passage) -> tuple[str, ...]:
    """Return the possible contributions of a passage: a sentence with any of these texts is quoted."""
    hops = [hop.answer for hop in question.decomposition if hop.passage == passage.id]
    triples = [triple.tail for triple in question.gold_triples if triple.head == passage.title]
    return tuple(hops or triples) or question.answers


def _holds(text: str, wanted: Iterable[str]) -> bool:
    return any(word.lower() in text.lower() for word in wanted)
