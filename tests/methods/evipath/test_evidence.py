"""Evidence by τ, compared with similarities computed by hand."""

from __future__ import annotations

import pytest

from platform_sdk.methods.evipath.evidence import Comparison, Similarity, select
from tests.methods.evipath.paths import LetterEncoder


def test_similarities_are_cosines() -> None:
    # aab is (2, 1, 0); its cosine with ab (1, 1, 0) is 3 / (√5 · √2), with a 2 / √5, with c 0.
    [found] = Similarity(LetterEncoder())([Comparison("aab", ("ab", "a", "c"))])
    assert found == (pytest.approx(0.9487, abs=1e-4), pytest.approx(0.8944, abs=1e-4), 0.0)


@pytest.mark.parametrize(
    ("tau", "chosen"),
    [(0.8, (0, 1)), (0.9, (0,)), (0.9487, (0,)), (0.99, (0,)), (-0.5, (0, 1, 2))],
)
def test_evidence_above_tau_is_selected_else_the_best(tau: float, chosen: tuple[int, ...]) -> None:
    assert select((0.9487, 0.8944, 0.0), tau) == chosen


def test_similarity_equal_to_tau_is_not_above_it() -> None:
    assert select((0.2, 0.9), 0.9) == (1,)
    assert select((0.95, 0.9), 0.9) == (0,)


def test_best_selection_takes_the_first_of_equal_similarities() -> None:
    assert select((0.1, 0.3, 0.3), 0.9) == (1,)


def test_selection_from_empty_evidence_is_an_error() -> None:
    with pytest.raises(ValueError, match="no evidence"):
        select((), 0.9)
