"""Normalisation, exact match and F1: by hand, and against the straightforward reading on any text."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.evaluation.answers import ONE, ZERO, Convention, exact_match, f1_score, normalize_squad

WORDS = [
    "the",
    "The",
    "a",
    "an",
    "yes",
    "no",
    "noanswer",
    "cat",
    "Cat.",
    "dog",
    "U.S.",
    "a–b",
    "thé",
    "_",
    "\x1f",
    "İ",
    "A'",
]
TEXTS = st.one_of(
    st.text(max_size=12), st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), st.sampled_from(["", " ", "the"])
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat, sat!", "cat sat"),
        ("  an  apple\ta day\n", "apple day"),
        ("U.S.A.", "usa"),
        ("a_the", "athe"),  # the underscore is punctuation and goes first, so no article is left
        ("the–end", "–end"),  # a dash beyond ASCII stays, and is a word boundary
        ("theory", "theory"),
        ("the", ""),
        ("a\x00the b", "\x00 b"),  # a control character is no space, but a word boundary
    ],
)
def test_normalisation_by_hand(text: str, normal: str) -> None:
    assert normalize_squad(text) == normal


@given(TEXTS)
@settings(max_examples=400, deadline=None)
def test_normalisation_equals_the_definition(plain: ModuleType, text: str) -> None:
    assert normalize_squad(text) == plain.plain_normalize(text)


def test_f1_by_hand() -> None:
    # "cat cat dog" against "cat dog bird": 2 shared of 3 and 3
    assert f1_score("cat cat dog", ["cat dog bird"], "nq") == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    # "cat cat" against "cat cat bird": both cats count
    assert f1_score("the cat cat", ["a cat, cat bird"], "nq") == pytest.approx((4 / 5, 1.0, 2 / 3))
    # the best gold answer counts
    assert f1_score("cat", ["dog", "cat bird", "cat"], "nq") == ONE


@pytest.mark.parametrize("convention", ["hotpotqa", "2wikimultihopqa", "world"])
def test_a_wrong_yes_or_no_is_worth_nothing(convention: Convention) -> None:
    assert f1_score("yes indeed", ["yes"], convention) == ZERO
    assert f1_score("no", ["no one"], convention) == ZERO
    assert f1_score("Yes.", ["yes"], convention) == ONE


@pytest.mark.parametrize("convention", ["musique", "nq", "qald10"])
def test_yes_is_an_ordinary_word_in_other_conventions(convention: Convention) -> None:
    assert f1_score("yes indeed", ["yes"], convention) == pytest.approx((2 / 3, 0.5, 1.0))


def test_answers_empty_after_normalisation_are_scored() -> None:
    assert f1_score("the", ["a"], "musique") == ONE
    assert f1_score("the", ["a"], "hotpotqa") == ZERO
    assert f1_score("the", ["cat"], "musique") == ZERO
    assert exact_match("the", ["a"], "hotpotqa") == 1.0


def test_no_prediction_scores_nothing() -> None:
    assert f1_score(None, ["a cat"], "hotpotqa") == ZERO
    assert exact_match(None, [""], "hotpotqa") == 0.0


@given(prediction=TEXTS, gold=TEXTS)
@settings(max_examples=400, deadline=None)
def test_f1_equals_the_definition(plain: ModuleType, prediction: str, gold: str) -> None:
    assert f1_score(prediction, [gold], "hotpotqa") == pytest.approx(plain.plain_f1(prediction, gold, "yes/no"))
    assert f1_score(prediction, [gold], "nq") == pytest.approx(plain.plain_f1(prediction, gold))
    assert f1_score(prediction, [gold], "musique").f1 == pytest.approx(
        plain.plain_f1(prediction, gold, "empty agrees")[0]
    )
    assert exact_match(prediction, [gold], "nq") == plain.plain_em(prediction, gold)
