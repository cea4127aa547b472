"""Exact match and token F1 of an answer, as each dataset's official script computes them.

The datasets differ in the score of a wrong yes/no answer and of an empty answer to an empty gold answer, and in
TriviaQA's normaliser.

There are three normalisers. ``squad`` (:func:`normalize_squad`) deletes punctuation; the official scripts and all
metrics but TriviaQA's use it. TriviaQA's (:func:`trivia_bag`) replaces punctuation by spaces. ``spaced``
(:func:`spaced_bag`) does so too, with some other characters; only ARENA's reward, in the functions named ``spaced_…``,
uses it.

Normalised texts and their token bags are cached, since golds and predictions repeat (attempts at one question,
aliases).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from platform_sdk.records import Question

Convention = str
"""The dataset whose official scoring applies, as in ``Question.dataset``; user-defined datasets are scored like NQ."""

YES_NO_IS_ALL_OR_NOTHING = frozenset({"hotpotqa", "2wikimultihopqa", "world"})
EMPTY_AGREES_WITH_EMPTY = frozenset({"musique"})
_YES_NO = frozenset({"yes", "no", "noanswer"})

_TRIVIA_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´", " "))
_SPACED_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’“”´", " "))
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE_WORDS = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class Prf(NamedTuple):
    """Token F1 with its precision and recall, each in 0..1."""

    f1: float
    precision: float
    recall: float


ZERO = Prf(0.0, 0.0, 0.0)
ONE = Prf(1.0, 1.0, 1.0)


class Bag(msgspec.Struct, frozen=True, gc=False):
    """A normalised text and its tokens; ``words`` are the distinct ones."""

    text: str
    tokens: list[str]
    words: frozenset[str]


@lru_cache(maxsize=1 << 17)
def bag(text: str) -> Bag:
    """Return the SQuAD-normalised tokens of ``text``."""
    bare = text.lower().translate(_DROP_PUNCTUATION)
    if bare.isascii() and bare.isprintable():
        # Only letters, digits and spaces remain, so an article is a whole token. In other texts ("the–end")
        # a word boundary may lie within a token, so the scripts' regular expression decides.
        tokens = [token for token in bare.split() if token not in _ARTICLE_WORDS]
    else:
        tokens = _ARTICLE.sub(" ", bare).split()
    return Bag(" ".join(tokens), tokens, frozenset(tokens))


def normalize_squad(text: str) -> str:
    """Lowercase, drop ASCII punctuation and the articles a, an, the, and collapse whitespace."""
    return bag(text).text


@lru_cache(maxsize=1 << 17)
def trivia_bag(text: str) -> Bag:
    """Return the tokens of ``text`` under TriviaQA's normaliser.

    It lowercases, turns ASCII punctuation, ``‘``, ``’`` and ``´`` into spaces, drops the articles a, an, the, and
    collapses whitespace (``triviaqa_evaluation.py`` of Joshi et al., 2017).
    """
    tokens = _ARTICLE.sub(" ", text.lower().translate(_TRIVIA_PUNCTUATION)).split()
    return Bag(" ".join(tokens), tokens, frozenset(tokens))


def bag_of(convention: Convention) -> Callable[[str], Bag]:
    """Return the normaliser of a dataset's official script."""
    return trivia_bag if convention == "triviaqa" else bag


@lru_cache(maxsize=1 << 17)
def spaced_bag(text: str) -> Bag:
    """Return the tokens of ``text`` under ARENA's normaliser.

    It lowercases, turns punctuation into spaces, drops the articles a, an, the, and collapses whitespace. Punctuation
    is ASCII punctuation, curly quotes and the acute accent. So ``U.S.`` is ``u s`` here and ``us`` under
    :func:`normalize_squad`.
    """
    tokens = _ARTICLE.sub(" ", text.lower().translate(_SPACED_PUNCTUATION)).split()
    return Bag(" ".join(tokens), tokens, frozenset(tokens))


def spaced_exact_match(prediction: str | None, golds: Iterable[str]) -> float:
    """Return 1.0 if the prediction equals a gold answer under ARENA's normaliser, else 0.0 (no prediction: 0.0)."""
    if prediction is None:
        return 0.0
    text = spaced_bag(prediction).text
    return float(any(spaced_bag(gold).text == text for gold in golds))


def spaced_f1(prediction: str | None, golds: Iterable[str]) -> float:
    """Return the greatest token F1 of the prediction with a gold answer under ARENA's normaliser (ARENA, section C.2).

    Equal texts score 1, even if empty, so an exact match always scores 1. No prediction scores 0.
    """
    if prediction is None:
        return 0.0
    predicted = spaced_bag(prediction)
    expected = [spaced_bag(gold) for gold in golds]
    return max((1.0 if gold.text == predicted.text else overlap(predicted, gold).f1 for gold in expected), default=0.0)


def overlap(prediction: Bag, gold: Bag) -> Prf:
    """Return the F1, precision and recall of the multiset of predicted tokens against the gold ones."""
    shared = prediction.words & gold.words
    if not shared:
        return ZERO
    predicted, expected = prediction.tokens, gold.tokens
    if len(prediction.words) == len(predicted) or len(gold.words) == len(expected):
        same = len(shared)  # one side has no repeated word, so each shared word counts once
    else:
        same = sum(min(predicted.count(word), expected.count(word)) for word in shared)
    precision = same / len(predicted)
    recall = same / len(expected)
    return Prf(2 * precision * recall / (precision + recall), precision, recall)


def pair_f1(prediction: Bag, gold: Bag, convention: Convention) -> Prf:
    """Score one prediction against one gold answer."""
    if prediction.text == gold.text:
        return ONE if gold.text or convention in EMPTY_AGREES_WITH_EMPTY else ZERO
    if convention in YES_NO_IS_ALL_OR_NOTHING and (prediction.text in _YES_NO or gold.text in _YES_NO):
        return ZERO
    return overlap(prediction, gold)


def exact_match(prediction: str | None, golds: Iterable[str], convention: Convention) -> float:
    """Return 1.0 if the normalised prediction equals a normalised gold answer, else 0.0. No prediction scores 0."""
    if prediction is None:
        return 0.0
    normalised = bag_of(convention)
    text = normalised(prediction).text
    return float(any(normalised(gold).text == text for gold in golds))


def f1_score(prediction: str | None, golds: Iterable[str], convention: Convention) -> Prf:
    """Return the token F1 of the gold answer that fits the prediction best, with its precision and recall.

    2WikiMultihopQA's script maximises each of the three separately. No prediction or no gold answer scores 0.
    """
    if prediction is None:
        return ZERO
    normalised = bag_of(convention)
    predicted = normalised(prediction)
    found = [pair_f1(predicted, normalised(gold), convention) for gold in golds]
    if convention == "2wikimultihopqa" and found:
        return Prf(*map(max, zip(*found, strict=True)))
    return max(found, default=ZERO)


def answer_rewards(answer: str | None, question: Question) -> dict[str, float]:
    """Return the rewards ``em`` and ``f1`` of an answer under the convention of the question's dataset."""
    return {
        "em": exact_match(answer, question.answers, question.dataset),
        "f1": f1_score(answer, question.answers, question.dataset).f1,
    }
