"""Coverage of intervals over seeds and questions: 2,000 simulated comparisons with known effect and variances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from platform_sdk.evaluation.seed_intervals import (
    Estimator,
    average_difference,
    difference_over_seeds,
    mean_over_seeds,
)

DRAWS = 2_000
QUESTIONS = 150
EFFECT = 0.08
Array = NDArray[np.float64]


class Deviations(NamedTuple):
    """Standard deviations: of the seeds' warm-up, which both methods share, and of what differs between methods."""

    seeds: float
    questions: float
    warm_up: float = 0.06
    residual: float = 0.5


# The seeds' part in the variance of the mean is a tenth, about half, and most of the questions' part.
SMALL, EVEN, LARGE = Deviations(0.02, 0.3), Deviations(0.04, 0.3), Deviations(0.12, 0.3)


def simulated(deviations: Deviations, seeds: int, *, draw: int = 0) -> tuple[Array, Array]:
    """Return the scores of a better and a worse method, each draws by seeds by questions."""
    generator = np.random.default_rng([draw, seeds])

    def effect(deviation: float, *shape: int) -> Array:
        return generator.normal(0, deviation, size=(DRAWS, *shape))

    shared = effect(deviations.warm_up, seeds, 1) + effect(0.4, 1, QUESTIONS)
    better, worse = (
        shared
        + sign * EFFECT / 2
        + effect(deviations.seeds / 2**0.5, seeds, 1)
        + effect(deviations.questions / 2**0.5, 1, QUESTIONS)
        + effect(deviations.residual / 2**0.5, seeds, QUESTIONS)
        for sign in (1, -1)
    )
    return better, worse


def answered(deviation: float, seeds: int) -> tuple[Array, Array]:
    """Return right and wrong answers, 1 and 0, of two methods; no sum of effects leaves a probability outside 0..1."""
    generator = np.random.default_rng(seeds)

    def effect(deviation: float, *shape: int) -> Array:
        return generator.uniform(-1, 1, size=(DRAWS, *shape)) * 3**0.5 * deviation

    warm_up = effect(0.05, seeds, 1)
    better, worse = (
        0.5 + sign * EFFECT / 2 + warm_up + effect(deviation, seeds, 1) + effect(0.15, 1, QUESTIONS) for sign in (1, -1)
    )
    shape = (DRAWS, seeds, QUESTIONS)
    return (generator.random(shape) < better).astype(float), (generator.random(shape) < worse).astype(float)


def coverage(better: Array, worse: Array, *, shift: int = 0) -> float:
    """Return the share of draws whose interval holds the effect; ``shift`` is between the seeds of the two methods."""
    names = [str(seed) for seed in range(better.shape[1] + shift)]
    hits = 0
    for a, b in zip(better, worse, strict=True):
        found = difference_over_seeds(dict(zip(names, a, strict=False)), dict(zip(names[shift:], b, strict=False)))
        assert found.estimator is (Estimator.UNPAIRED if shift else Estimator.PAIRED)
        hits += found.low <= EFFECT <= found.high
    return hits / DRAWS


def former_coverage(better: Array, worse: Array) -> float:
    """Return the coverage of the former interval: seeds taken as independent, Welch-Satterthwaite."""
    changes = (better - worse).mean(axis=1)
    parts = [(changes.var(axis=1, ddof=1) / QUESTIONS, QUESTIONS - 1)]
    for group in (better, worse):
        parts.append((group.mean(axis=2).var(axis=1, ddof=1) / group.shape[1], group.shape[1] - 1))
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    reach = stdtrit(freedom, 0.975) * variance**0.5
    return float(np.mean(abs(changes.mean(axis=1) - EFFECT) <= reach))


def bootstrap_coverage(better: Array, worse: Array, *, resamples: int = 1_000) -> float:
    """Return the coverage of the percentile bootstrap that resamples seeds and questions together."""
    generator = np.random.default_rng(0)
    seeds = better.shape[1]
    of_questions = generator.multinomial(QUESTIONS, np.full(QUESTIONS, 1 / QUESTIONS), size=resamples) / QUESTIONS
    of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    means = np.einsum("dsr,rs->dr", (better - worse) @ of_questions.T, of_seeds)
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    return float(np.mean((low <= EFFECT) & (high >= EFFECT)))


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("deviations", [SMALL, EVEN, LARGE], ids=["small", "even", "large"])
def test_paired_interval_covers_at_its_rate_and_the_former_does_not(deviations: Deviations, seeds: int) -> None:
    runs = simulated(deviations, seeds)
    assert 0.94 <= coverage(*runs) <= 0.96
    assert former_coverage(*runs) > 0.965


@pytest.mark.parametrize("seeds", [3, 5])
def test_paired_interval_of_right_and_wrong_answers_covers_at_its_rate(seeds: int) -> None:
    runs = answered(0.03, seeds)
    assert 0.94 <= coverage(*runs) <= 0.96
    assert former_coverage(*runs) > 0.985


def test_interval_of_a_mean_covers_at_its_rate() -> None:
    runs, _ = simulated(LARGE, 3)
    found = [mean_over_seeds(scores, share=False) for scores in runs]
    assert {each.estimator for each in found} == {Estimator.SEEDS}
    assert 0.94 <= np.mean([each.low <= EFFECT / 2 <= each.high for each in found]) <= 0.96


@pytest.mark.parametrize(
    "deviations", [[SMALL] * 3, [LARGE] * 3, [SMALL, EVEN, LARGE]], ids=["small", "large", "mixed"]
)
def test_interval_of_an_average_over_worlds_covers_at_least_at_its_rate(deviations: list[Deviations]) -> None:
    worlds = [simulated(each, 5, draw=draw) for draw, each in enumerate(deviations, start=1)]
    hits = 0
    for draw in range(DRAWS):
        found = average_difference(
            [
                (
                    {str(s): row for s, row in enumerate(better[draw])},
                    {str(s): row for s, row in enumerate(worse[draw])},
                )
                for better, worse in worlds
            ]
        )
        hits += found.low <= EFFECT <= found.high
    assert 0.94 <= hits / DRAWS <= 0.97


def test_unpaired_interval_of_independent_seeds_is_conservative() -> None:
    for deviations in (SMALL, LARGE):
        assert 0.945 <= coverage(*simulated(deviations._replace(warm_up=0.0), 3), shift=3) <= 0.98


def test_bootstrap_over_seeds_and_questions_misses_its_rate_with_three_seeds() -> None:
    assert bootstrap_coverage(*simulated(SMALL, 3)) > 0.97
    assert bootstrap_coverage(*simulated(LARGE, 3)) < 0.9


def test_interval_of_two_seeds_covers_less_than_its_rate() -> None:
    assert 0.9 <= coverage(*simulated(LARGE, 2)) <= 0.935


def test_interval_of_one_seed_leaves_out_the_variance_between_seeds() -> None:
    better, worse = (runs[:150, :1] for runs in simulated(LARGE, 3))
    found = [difference_over_seeds({"0": a[0]}, {"0": b[0]}) for a, b in zip(better, worse, strict=True)]
    assert {each.estimator for each in found} == {Estimator.ONE_SEED}
    assert np.mean([each.low <= EFFECT <= each.high for each in found]) < 0.65
