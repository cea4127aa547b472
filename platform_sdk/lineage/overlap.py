"""Overlap of training and evaluation questions: equal texts, near texts, and shared gold evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from platform_sdk.config.struct import Struct
from platform_sdk.evaluation.answers import normalize_squad
from platform_sdk.records import Question

if TYPE_CHECKING:
    import numpy as np

Encode = Callable[[Sequence[str]], "np.ndarray"]
"""Sentence encoder: texts in, one unit vector for each out."""
EQUAL, NORMALISED, BY_CHARACTERS, BY_ENCODER = KINDS = (
    "equal", "equal after normalisation", "near by characters", "near by encoder",
)  # fmt: skip
NEAR = {BY_CHARACTERS: 0.78, BY_ENCODER: 0.84}
"""Smallest similarities of near questions; chosen by benchmarks/overlap.py, see docs/audit.md."""
NGRAMS = (3, 5)
ROWS = 256
"""Evaluation questions that are compared at a time."""

Nearest = list[tuple[int, float]]
"""Position of the most similar training text, and the similarity, for each evaluation text."""


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

    ``thresholds`` has the minimum similarities of the kinds of near questions that were searched. ``gold_known``
    counts the evaluation questions with gold evidence; ``gold_all`` and ``gold_any`` count the questions whose gold
    evidence is, completely or partly, gold evidence in training.
    """

    training: int
    evaluation: int
    thresholds: dict[str, float]
    pairs: tuple[Pair, ...]
    gold_known: int
    gold_all: int
    gold_any: int

    def count(self, kind: str) -> int:
        """Return the number of evaluation questions in pairs of a kind."""
        return sum(pair.kind == kind for pair in self.pairs)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of pairs that were searched."""
        return (EQUAL, NORMALISED, *self.thresholds)


def overlap_of(
    training: Sequence[Question],
    evaluation: Sequence[Question],
    *,
    encode: Encode | None = None,
    thresholds: dict[str, float] = NEAR,
) -> Overlap:
    """Compare each evaluation question with all training questions.

    Near questions have a cosine of at least the kind's threshold between the TF-IDF vectors of their character
    n-grams, or between their vectors of ``encode``.
    """
    texts = [one.text for one in training], [one.text for one in evaluation]
    searched = {BY_CHARACTERS: similarities(*texts)}
    if encode is not None:
        searched[BY_ENCODER] = encoder_similarities(*texts, encode)
    equal = {one.text: one for one in reversed(training)}
    normalised = {normalize_squad(one.text): one for one in reversed(training)}
    pairs = []
    for number, question in enumerate(evaluation):
        if question.text in equal:
            kind, similarity, other = EQUAL, 1.0, equal[question.text]
        elif (text := normalize_squad(question.text)) in normalised:
            kind, other = NORMALISED, normalised[text]
            similarity = 1.0  # of the normalised texts; the nearest question by characters may be another one
        else:
            near = (name for name in searched if searched[name][number][1] >= thresholds[name])
            kind = next(near, "")
            if not kind:
                continue
            place, similarity = searched[kind][number]
            other = training[place]
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
        training=len(training), evaluation=len(evaluation), thresholds={name: thresholds[name] for name in searched},
        pairs=tuple(pairs), gold_known=len(known), gold_all=sum(own <= gold for own in known),
        gold_any=sum(bool(own & gold) for own in known),
    )  # fmt: skip


def similarities(training: Sequence[str], evaluation: Sequence[str]) -> Nearest:
    """Return the nearest training text of each evaluation text by character n-grams."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not training or not any(text.strip() for text in training):
        return [(0, 0.0)] * len(evaluation)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=NGRAMS, sublinear_tf=True, dtype=np.float32)
    columns = vectorizer.fit_transform(training).T.tocsr()
    found: Nearest = []
    for start in range(0, len(evaluation), ROWS):
        products = vectorizer.transform(evaluation[start : start + ROWS]) @ columns
        best = np.asarray(products.argmax(axis=1)).ravel().tolist()
        found += [(place, min(float(products[row, place]), 1.0)) for row, place in enumerate(best)]
    return found


def encoder_similarities(training: Sequence[str], evaluation: Sequence[str], encode: Encode) -> Nearest:
    """Return the nearest training text of each evaluation text by a sentence encoder."""
    if not training or not evaluation:
        return [(0, 0.0)] * len(evaluation)
    columns, rows = encode(training).T, encode(evaluation)
    found: Nearest = []
    for start in range(0, len(rows), ROWS):
        products = rows[start : start + ROWS] @ columns
        best = products.argmax(axis=1).tolist()
        found += [(place, min(float(products[row, place]), 1.0)) for row, place in enumerate(best)]
    return found
