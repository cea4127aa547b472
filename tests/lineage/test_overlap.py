"""Overlap of training and evaluation questions on planted pairs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.overlap import KINDS_PLANTED, plant, questions_of
from platform_sdk.lineage.overlap import BY_CHARACTERS, BY_ENCODER, NEAR, Encode, encoder_similarities, overlap_of
from platform_sdk.records import Question
from platform_sdk.retrieval.load import shipped_encoder

DATA = Path(os.environ.get("HOPFORGE_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))


def question(id: str, text: str, *gold: str) -> Question:
    return Question(id=id, text=text, answers=("x",), dataset="own", gold_passages=gold)


TRAINING = [
    question("t0", "Who directed the film Blue Harbour in 1962?", "Blue Harbour"),
    question("t1", "In which city was the composer Anna Vey born?", "Anna Vey", "Lyon"),
    question("t2", "How many people live in the smallest town of Iceland?", "Iceland"),
]


def test_each_kind_of_pair_is_found_with_its_training_question() -> None:
    evaluation = [
        question("equal", TRAINING[0].text),
        question("normalised", "in which city was composer Anna Vey born"),
        question("near", "How many people lived in the smallest towns of Iceland?"),
        question("other", "Why is the sea salt?"),
    ]
    found = overlap_of(TRAINING, evaluation)
    assert [(pair.kind, pair.evaluation_id, pair.training_id) for pair in found.pairs] == [
        ("equal", "equal", "t0"), ("equal after normalisation", "normalised", "t1"),
        ("near by characters", "near", "t2"),
    ]  # fmt: skip
    assert found.pairs[0].similarity == found.pairs[1].similarity == 1.0
    assert NEAR[BY_CHARACTERS] <= found.pairs[2].similarity < 1.0
    assert found.thresholds == {BY_CHARACTERS: NEAR[BY_CHARACTERS]}


def test_encoder_finds_a_question_in_other_words_after_all_kinds_by_characters() -> None:
    evaluation = [
        question("near", "How many people lived in the smallest towns of Iceland?"),
        question("words", "Where was Anna Vey, who wrote music, born? Name the town."),
        question("other", "Why is the sea salt?"),
    ]
    assert len(overlap_of(TRAINING, evaluation).pairs) == 1
    found = overlap_of(TRAINING, evaluation, encode=shipped_encoder(), thresholds={**NEAR, BY_ENCODER: 0.7})
    assert [(pair.kind, pair.evaluation_id, pair.training_id) for pair in found.pairs] == [
        ("near by characters", "near", "t2"), ("near by encoder", "words", "t1"),
    ]  # fmt: skip
    assert found.thresholds == {BY_CHARACTERS: NEAR[BY_CHARACTERS], BY_ENCODER: 0.7}
    assert 0.7 <= found.pairs[1].similarity < 1.0


def test_encoders_vectors_are_compared_by_their_cosine() -> None:
    """Use vectors whose products are known: 0.6 and 0.8 with the first question, 1.0 with the second one."""
    vectors = {
        "train a": [1.0, 0.0], "train b": [0.0, 1.0], "one": [0.6, 0.8], "two": [1.0, 0.0],
    }  # fmt: skip

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text] for text in texts], dtype=np.float32)

    nearest = encoder_similarities(["train a", "train b"], ["one", "two"], encode)
    assert [(place, round(similarity, 6)) for place, similarity in nearest] == [(1, 0.8), (0, 1.0)]


def test_gold_evidence_is_counted_over_questions_that_have_some() -> None:
    evaluation = [
        question("all", "a?", "Lyon", "Iceland"), question("some", "b?", "Lyon", "Paris"),
        question("none", "c?", "Paris"), question("unknown", "d?"),
    ]  # fmt: skip
    found = overlap_of(TRAINING, evaluation)
    assert (found.gold_known, found.gold_all, found.gold_any) == (3, 1, 2)


@pytest.mark.parametrize(("training", "evaluation"), [([], TRAINING), (TRAINING, []), ([], [])])
def test_empty_sets_have_no_overlap(training: list[Question], evaluation: list[Question]) -> None:
    found = overlap_of(training, evaluation)
    assert (found.training, found.evaluation, found.pairs) == (len(training), len(evaluation), ())


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data or HOPFORGE_DATA")
def test_planted_pairs_of_real_questions_are_found_by_characters() -> None:
    shares = shares_found(None)
    assert shares["paraphrase"] > 0.4


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data or HOPFORGE_DATA")
def test_encoder_finds_more_paraphrases_of_real_questions() -> None:
    shares = shares_found(shipped_encoder())
    assert shares["paraphrase"] > 0.9


def shares_found(encode: Encode | None) -> dict[str, float]:
    """Return the share of questions in a reported pair, by the kind of the planted pair."""
    training, evaluation = plant(questions_of(DATA), seed=5)
    records = [question(str(place), text) for place, (_, text) in enumerate(evaluation)]
    trained = [question(str(place), text) for place, text in enumerate(training)]
    reported = {int(pair.evaluation_id) for pair in overlap_of(trained, records, encode=encode).pairs}
    shares = {}
    for kind in (*KINDS_PLANTED, "none"):
        places = [place for place, (own, _) in enumerate(evaluation) if own == kind]
        shares[kind] = len(reported.intersection(places)) / len(places)
    assert shares["equal"] == shares["case"] == shares["punctuation"] == 1.0
    assert shares["none"] < 0.05  # natural pairs, which grow with the number of training questions
    return shares
