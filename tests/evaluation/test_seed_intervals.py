"""Intervals over seeds and questions, worked out by hand; their coverage is in ``test_interval_coverage.py``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap
from platform_sdk.evaluation.seed_intervals import Estimator, difference_over_seeds, mean_over_seeds


def critical(share: float, seeds: int, questions: int) -> float:
    """Return the critical value of 95 % for a share of the seeds in the variance."""
    weight = share**2 * (2 - share)
    return float(weight * t.ppf(0.975, seeds) + (1 - weight) * t.ppf(0.975, questions))


def test_mean_over_seeds_by_hand() -> None:
    # Seeds' means 1/2 and 1: variance 1/8, of their mean 1/16. Questions' means 1, 1, 1, 0: variance 1/4, of their mean
    # 1/16, of which the residual is 1/48: deviations from both means are ±1/4, squares add up to 8/16, with 3 degrees
    # of freedom 1/6, of 8 values 1/48.
    found = mean_over_seeds([[1, 1, 0, 0], [1, 1, 1, 1]], share=False)
    questions = np.array([1.0, 1.0, 0.5, 0.5]).var(ddof=1) / 4
    residual = 0.5 / 3 / 8
    variance = 1 / 16 + (questions - residual)
    reach = critical(1 / 16 / variance, 1, 3) * variance**0.5
    assert found.mean == 0.75
    assert (found.low, found.high) == pytest.approx((0.75 - reach, 0.75 + reach), abs=1e-9)
    clipped = mean_over_seeds([[1, 1, 0, 0], [1, 1, 1, 1]], share=True)
    assert (clipped.low, clipped.high) == (0, 1)


def test_interval_of_seeds_that_differ_alone_is_students() -> None:
    # Mean 0.3, deviation 0.1: 4.303 · 0.1 / √3 to either side.
    found = mean_over_seeds([[0.2] * 5, [0.3] * 5, [0.4] * 5], share=True)
    assert (found.low, found.high) == pytest.approx((0.3 - 0.248414, 0.3 + 0.248414), abs=1e-5)


def test_interval_of_equal_seeds_is_students_over_questions() -> None:
    found = mean_over_seeds([[0, 1, 1, 0, 1]] * 3, share=False)
    reach = float(t.ppf(0.975, 4)) * (0.3 / 5) ** 0.5
    assert (found.low, found.high) == pytest.approx((0.6 - reach, 0.6 + reach), abs=1e-9)


def test_p_value_is_the_level_at_which_the_interval_ends_at_zero() -> None:
    rows = np.random.default_rng(0).normal(0.2, 1, size=(2, 3, 40))
    names = ("0", "1", "2")
    a, b = (dict(zip(names, group, strict=True)) for group in rows)
    found = difference_over_seeds(a, b)
    shift = found.low if found.difference > 0 else found.high
    moved = {name: scores - shift for name, scores in a.items()}
    assert difference_over_seeds(moved, b).p_value == pytest.approx(0.05, abs=1e-9)
    assert 0 < found.p_value < 1


def test_shared_seeds_are_paired_and_others_left_out() -> None:
    warm_up = {"0": 0.1, "1": 0.5, "2": 0.9, "3": 0.3}
    a = {seed: [start + 0.05, start + 0.05, start + 0.15] for seed, start in warm_up.items() if seed != "3"}
    b = {seed: [start, start, start] for seed, start in warm_up.items()}
    found = difference_over_seeds(a, b)
    assert (found.estimator, found.paired_seeds) == (Estimator.PAIRED, ("0", "1", "2"))
    # The warm-up cancels, so the differences of questions alone vary: 0.05, 0.05, 0.15.
    reach = float(t.ppf(0.975, 2)) * (1 / 300 / 3) ** 0.5
    assert found.difference == pytest.approx(0.25 / 3)
    assert (found.low, found.high) == pytest.approx((0.25 / 3 - reach, 0.25 / 3 + reach), abs=1e-9)
    unpaired = difference_over_seeds({f"other {seed}": scores for seed, scores in a.items()}, b)
    assert (unpaired.estimator, unpaired.paired_seeds) == (Estimator.UNPAIRED, ())
    assert unpaired.high - unpaired.low > 3 * (found.high - found.low)


def test_single_seed_is_compared_with_the_run_of_its_seed_over_questions_alone() -> None:
    one, first, second = [1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 1.0, 0.5], [0.5, 0.5, 0.5, 0.5]
    assert mean_over_seeds([one], share=True)[1:] == (*bootstrap_interval(one), Estimator.ONE_SEED)
    found = difference_over_seeds({"1": one}, {"0": first, "1": second})
    assert found == (*paired_bootstrap(one, second), Estimator.ONE_SEED, ("1",))
    means = [0.25, 0.25, 0.75, 0.5]
    assert difference_over_seeds({"7": one}, {"0": first, "1": second})[:4] == paired_bootstrap(one, means)


def test_equal_runs_differ_by_nothing_with_certainty() -> None:
    same = {"0": [1.0, 0.0], "1": [0.0, 1.0]}
    assert difference_over_seeds(same, same)[:4] == (0, 0, 0, 1)
    better = {seed: [score + 1 for score in scores] for seed, scores in same.items()}
    assert difference_over_seeds(better, same)[:4] == (1, 1, 1, 0)


def test_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="same questions, not 1 and 2"):
        difference_over_seeds({"0": [1.0, 0.0]}, {"0": [1.0]})


def test_single_question_has_an_interval_over_seeds() -> None:
    found = mean_over_seeds([[0.2], [0.3], [0.4]], share=True)
    assert (found.low, found.high) == pytest.approx((0.3 - 0.248414, 0.3 + 0.248414), abs=1e-5)
