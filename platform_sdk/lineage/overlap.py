"""Overlap of training and evaluation questions: equal texts, near texts, and shared gold evidence."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.config.struct import Struct
from platform_sdk.evaluation.answers import normalize_squad
from platform_sdk.records import Question

KINDS = ("equal", "equal after normalisation", "near")
NEAR = 0.78
"""Smallest similarity of near questions; chosen by benchmarks/overlap.py, see docs/lineage.md."""
NGRAMS = (3, 5)
ROWS = 256
"""Evaluation questions that are compared at a time."""


class Pair(Struct):
    """An evaluation question and its most similar training question."""

    kind: str
    similarity: float
    evaluation_id: str
    evaluation: str
    training_id: str
    training: str


class Overlap(Struct):
    """Overlap of two sets of questions. Each evaluation question is in at most one pair, of the first kind that fits.

    ``gold_known`` counts the evaluation questions with gold evidence, ``gold_all`` and ``gold_any`` those of which all,
    or some, gold evidence is gold in training.
    """

    training: int
    evaluation: int
    threshold: float
    pairs: tuple[Pair, ...]
    gold_known: int
    gold_all: int
    gold_any: int

    def count(self, kind: str) -> int:
        """Return the number of evaluation questions in pairs of a kind."""
        return sum(pair.kind == kind for pair in self.pairs)


def overlap_of(training: Sequence[Question], evaluation: Sequence[Question], threshold: float = NEAR) -> Overlap:
    """Compare each evaluation question with all training questions.

    Near questions have a cosine of at least ``threshold`` between their TF-IDF vectors of character n-grams.
    """
    nearest = similarities([one.text for one in training], [one.text for one in evaluation])
    texts = {one.text: one for one in reversed(training)}
    normalised = {normalize_squad(one.text): one for one in reversed(training)}
    pairs = []
    for question, (place, similarity) in zip(evaluation, nearest, strict=True):
        if question.text in texts:
            kind, other, similarity = KINDS[0], texts[question.text], 1.0
        elif (text := normalize_squad(question.text)) in normalised:
            kind, other = KINDS[1], normalised[text]
        elif similarity >= threshold:
            kind, other = KINDS[2], training[place]
        else:
            continue
        pairs.append(
            Pair(
                kind=kind, similarity=round(similarity, 3), evaluation_id=question.id, evaluation=question.text,
                training_id=other.id, training=other.text,
            )
        )  # fmt: skip
    pairs.sort(key=lambda pair: (KINDS.index(pair.kind), -pair.similarity, pair.evaluation_id))
    gold = {title for one in training for title in one.gold_passages}
    known = [set(one.gold_passages) for one in evaluation if one.gold_passages]
    return Overlap(
        training=len(training), evaluation=len(evaluation), threshold=threshold, pairs=tuple(pairs),
        gold_known=len(known), gold_all=sum(own <= gold for own in known),
        gold_any=sum(bool(own & gold) for own in known),
    )  # fmt: skip


def similarities(training: Sequence[str], evaluation: Sequence[str]) -> list[tuple[int, float]]:
    """Return the position of the most similar training text, and the similarity, for each evaluation text."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not training or not any(text.strip() for text in training):
        return [(0, 0.0)] * len(evaluation)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=NGRAMS, sublinear_tf=True, dtype=np.float32)
    columns = vectorizer.fit_transform(training).T.tocsr()
    found: list[tuple[int, float]] = []
    for start in range(0, len(evaluation), ROWS):
        products = vectorizer.transform(evaluation[start : start + ROWS]) @ columns
        best = np.asarray(products.argmax(axis=1)).ravel().tolist()
        found += [(place, min(float(products[row, place]), 1.0)) for row, place in enumerate(best)]
    return found
