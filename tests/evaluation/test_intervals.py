"""Bootstrap intervals: against theory, the slow definition, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from platform_sdk.evaluation import intervals
from platform_sdk.evaluation.intervals import bootstrap_interval, bootstrap_intervals, paired_bootstrap


def test_interval_of_a_share_is_the_binomial_one() -> None:
    values = [1.0] * 120 + [0.0] * 280
    half = 1.96 * math.sqrt(0.3 * 0.7 / 400)
    low, high = bootstrap_interval(values)
    assert low == pytest.approx(0.3 - half, abs=0.006)
    assert high == pytest.approx(0.3 + half, abs=0.006)


def test_constant_values_leave_no_doubt() -> None:
    assert bootstrap_interval([0.5] * 7) == (0.5, 0.5)


def test_bootstrap_interval_equals_numpy_quantiles_of_the_same_draws() -> None:
    values = np.array([0.0, 0.25, 1.0, 0.5, 0.75])
    draws = np.random.default_rng(3).integers(5, size=(200, 5))
    expected = np.quantile(values[draws].mean(axis=1), [0.05, 0.95])
    assert bootstrap_interval(list(values), seed=3, resamples=200, level=0.9) == pytest.approx(tuple(expected))


def test_interval_does_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0.1, 0.9, 0.4, 0.0]
    whole = bootstrap_interval(values, resamples=1000)
    monkeypatch.setattr(intervals, "_DRAWS_AT_ONCE", 4 * 7)
    assert bootstrap_interval(values, resamples=1000) == whole


def test_intervals_of_columns_equal_their_single_intervals() -> None:
    columns = {"em": [0.0, 1.0, 1.0], "f1": [0.5, 1.0, 0.2]}
    together = bootstrap_intervals(columns, seed=1)
    assert together == {name: pytest.approx(bootstrap_interval(values, seed=1)) for name, values in columns.items()}


def test_pairs_see_a_difference_that_separate_intervals_miss() -> None:
    generator = np.random.default_rng(0)
    hard = generator.random(200)
    better = np.clip(hard + 0.02, 0, 1)
    found = paired_bootstrap(list(better), list(hard))
    assert found.difference == pytest.approx(float((better - hard).mean()))
    assert 0 < found.low < found.difference < found.high
    assert found.p_value == 0.0
    assert bootstrap_interval(list(better))[0] < bootstrap_interval(list(hard))[1]


def test_equal_runs_differ_by_nothing() -> None:
    assert paired_bootstrap([1.0, 0.0], [1.0, 0.0]) == (0.0, 0.0, 0.0, 1.0)


def test_invalid_bootstrap_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="same questions, not 1 and 2"):
        paired_bootstrap([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval([1.0], level=1.0)
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval([1.0], resamples=0)
