"""Explanations by rule: the sentences of a question's gold passages that its annotations point to.

ARENA's demonstrations are explanations by a strong model (appendix D). For a model too small to write explanations, a
rule builds them from the gold passages and the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from platform_sdk.data.sentences import sentences, split_sentences
from platform_sdk.records import Passage, Question


def quoted(question: Question) -> str | None:
    """Return sentences of the gold passages, each followed by its passage's number in brackets; None without any.

    These are the supporting sentences if the dataset annotates them; otherwise, for each gold passage, the first
    sentence that contains the passage's contribution: the object of a gold triple about it, the answer of its hop, or
    the answer. They are in the order of the hops if there are any, or of the triples, or of the gold passages if a
    passage's title is not the head of its triple; without either, passages that contain the answer come last.
    """
    annotated = _annotated(question)
    quotes = [
        f"{sentence} [{place + 1}]"
        for place in sorted(question.gold_positions, key=lambda place: _step(question, place))
        for sentence in annotated.get(question.context[place].id) or _supporting(question, question.context[place])
    ]
    return " ".join(quotes) or None


def _step(question: Question, place: int) -> int:
    """Return which step of the reasoning needs the passage at ``place``."""
    passage = question.context[place]
    if question.decomposition:
        steps: Iterable[bool] = (hop.passage == passage.id for hop in question.decomposition)
    elif question.gold_triples:
        heads = [triple.head for triple in question.gold_triples]
        named = all(question.context[gold].title in heads for gold in question.gold_positions)
        steps = (title == passage.title for title in (heads if named else question.gold_passages))
    else:
        return int(_holds(passage.text, question.answers))
    return next((number for number, needed in enumerate(steps) if needed), 0)


def _annotated(question: Question) -> dict[str, list[str]]:
    """Return the annotated supporting sentences by the ids of their passages."""
    found: dict[str, list[str]] = {}
    pool, gold = sentences(question) if question.context_sentences else ((), ())
    for sentence in (pool[number] for number in gold):
        found.setdefault(sentence.id.rpartition("#")[0], []).append(sentence.text)
    return found


def _supporting(question: Question, passage: Passage) -> list[str]:
    """Return the first sentence with the passage's contribution, else its first sentence."""
    parts = split_sentences(passage.text)
    return [next((part for part in parts if _holds(part, _needed(question, passage))), parts[0])] if parts else []


def _needed(question: Question, passage: Passage) -> tuple[str, ...]:
    """Return the possible contributions of a passage: a sentence with any of these texts is quoted."""
    hops = [hop.answer for hop in question.decomposition if hop.passage == passage.id]
    triples = [triple.tail for triple in question.gold_triples if triple.head == passage.title]
    needed = hops or triples
    is_last = question.answers[0] in needed
    return (*needed, *question.answers) if is_last or not needed else tuple(needed)


def _holds(text: str, wanted: Iterable[str]) -> bool:
    """Return True if one of the texts occurs in ``text`` as whole words, in any case."""
    return any(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) for words in wanted)
