"""Intervals of means and differences of runs with several seeds: over seeds and questions together.

The score of seed s on question i is modelled by crossed random effects: mean + seed effect + question effect +
residual. All seeds answer the same questions, so the variance of the mean over S seeds and Q questions is::

    var(seeds) / S + var(questions) / Q + var(residual) / (S Q)

estimated from the two-way analysis of variance without replication, the negative part of the question variance cut at
zero (Hillis, 2007, *A comparison of denominator degrees of freedom methods for multiple observer ROC analysis*,
Statistics in Medicine 26, 596-619: few readers, many cases; here few seeds, many questions).

The half-width is the root of that variance times a critical value between Student's of the questions (Q - 1 degrees of
freedom) and of the seeds (S - 1), as Cochran weights them (1964, *Approximate significance levels of the Behrens-Fisher
test*, Biometrics 20, 191-195). Weights are w = f² (2 - f) of the seeds and 1 - w of the questions, f being the share of
the seeds in the variance. Cochran has w = f, which covers in up to 97 % of draws with 3 seeds. The critical values that
cover at the rate for every true share (Trickett and Welch, 1954, *On the comparison of two means: further discussion of
iterative methods for calculating tables*, Biometrika 41, 361-374) were solved numerically for 3 to 5 seeds; w
approximates them. Satterthwaite's degrees of freedom (Hillis, and Rubin for multiple imputation) cover in as few as
92 % of draws with 3 seeds, since the share is estimated from two degrees of freedom. A percentile bootstrap over seeds
and questions has no such correction: 82 to 98 %.

The 95 % interval covers in 94 to 96 % of draws for 3 and more seeds: ``tests/evaluation/test_interval_coverage.py``
simulates it. This does not hold

- for 2 seeds: 90 to 96.5 %;
- for seeds that are not paired: it is conservative, up to 98 %;
- for an average over three worlds: up to 97 %;
- if the seeds' effects are far from normal, e.g. one run of five collapses;
- for shares near 0 or 1 on few questions, whose means are far from normal;
- for one seed: its interval is over questions alone, and is marked so.

The rate is one over many studies: if few seeds happen to agree, an interval can be narrower than one over questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import fsum, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap

LEVEL = 0.95
SEEDS_TO_AVERAGE = 2
"""Seeds that both groups of a pair must have, for the average of several pairs."""
BISECTIONS = 40  # of the p value, to 1e-12
Matrix = NDArray[np.float64]
Scores = Sequence[float] | Matrix


class Estimator(StrEnum):
    """Estimator of an interval, as outputs name it."""

    ONE_SEED = "questions alone (one seed), percentile bootstrap"
    SEEDS = "seeds and questions, crossed random effects"
    PAIRED = "seeds and questions, paired by seed, crossed random effects"
    UNPAIRED = "seeds and questions, seeds not paired, crossed random effects"
    AVERAGE = "seeds and questions of each level, paired by seed, crossed random effects"

    @property
    def one_seed(self) -> bool:
        """True if the interval leaves out the variance between seeds."""
        return self is Estimator.ONE_SEED


class SeedMean(NamedTuple):
    """A mean over seeds and questions with its 95 % interval."""

    mean: float
    low: float
    high: float
    estimator: Estimator


class SeedDifference(NamedTuple):
    """A mean difference with its 95 % interval, its two-sided p value, and the seeds that were paired."""

    difference: float
    low: float
    high: float
    p_value: float
    estimator: Estimator
    paired_seeds: tuple[str, ...]


class _Part(NamedTuple):
    """A part of the variance of a mean with its degrees of freedom."""

    variance: float
    freedom: float


def mean_over_seeds(runs: Sequence[Scores] | Matrix, *, share: bool) -> SeedMean:
    """Return the mean of ``runs[s][i]``, the score of question ``i`` with seed ``s``, and its 95 % interval.

    For a share, the interval is clipped to 0..1. The interval of a single run is over its questions alone.
    """
    matrix = np.asarray(runs, dtype=np.float64)
    mean = float(matrix.mean())
    if len(matrix) == 1:
        return SeedMean(mean, *bootstrap_interval(matrix[0].tolist()), Estimator.ONE_SEED)
    reach, _ = _student(mean, *_parts([matrix], matrix.mean(axis=0)))
    low, high = mean - reach, mean + reach
    return SeedMean(mean, *((max(low, 0.0), min(high, 1.0)) if share else (low, high)), Estimator.SEEDS)


def difference_over_seeds(a: Mapping[str, Scores], b: Mapping[str, Scores]) -> SeedDifference:
    """Compare two groups of runs on the same questions; ``a[s][i]`` is the score of question ``i`` with seed ``s``.

    Runs with equal seeds are paired, since they begin with the same warm-up and draw the same questions; seeds that
    only one group has are left out then. Without two seeds in common, the variance between seeds is the sum over the
    two groups. If one of the groups is a single run, the other one's run with its seed, or if it has none all of them,
    are compared with it, and the interval is over questions alone.

    Raises:
        ValueError: the groups have different numbers of questions.
    """
    _require_same_questions(a, b)
    shared = tuple(seed for seed in a if seed in b)
    single = min(len(a), len(b)) == 1
    paired = shared if single or len(shared) > 1 else ()
    first, second = (
        np.asarray([group[seed] for seed in paired or group], dtype=np.float64) for group in (a, b)
    )  # fmt: skip
    changes = first.mean(axis=0) - second.mean(axis=0)
    if single:
        found = paired_bootstrap(first.mean(axis=0).tolist(), second.mean(axis=0).tolist())
        return SeedDifference(*found, Estimator.ONE_SEED, paired)
    samples = [first - second] if paired else [first, second]
    difference = float(changes.mean())
    reach, p_value = _student(difference, *_parts(samples, changes))
    return SeedDifference(
        difference,
        difference - reach,
        difference + reach,
        p_value,
        Estimator.PAIRED if paired else Estimator.UNPAIRED,
        paired,
    )


def average_difference(pairs: Sequence[tuple[Mapping[str, Scores], Mapping[str, Scores]]]) -> SeedDifference:
    """Return the mean of the differences of several pairs of groups, e.g. two methods on each of several worlds.

    Each pair has its own questions and counts equally. The interval is for these worlds, not for others: it contains
    the variances of seeds and questions in each of them, which are independent, and no variance between worlds.

    Raises:
        ValueError: a pair has fewer than two seeds in common, or different numbers of questions.
    """
    matrices = []
    for a, b in pairs:
        _require_same_questions(a, b)
        shared = [seed for seed in a if seed in b]
        if len(shared) < SEEDS_TO_AVERAGE:
            raise ValueError("an average difference needs two seeds that both groups of a pair have")
        matrices.append(np.asarray([np.subtract(a[seed], b[seed]) for seed in shared], dtype=np.float64))
    difference = fsum(float(matrix.mean()) for matrix in matrices) / len(matrices)
    of_seeds, of_questions = zip(*(_parts([matrix], matrix.mean(axis=0)) for matrix in matrices), strict=True)
    totals = [_sum(of_seeds), _sum(of_questions)]
    reach, p_value = _student(
        difference, *(_Part(total.variance / len(matrices) ** 2, total.freedom) for total in totals)
    )
    common = tuple(seed for seed in pairs[0][0] if all(seed in group for pair in pairs for group in pair))
    return SeedDifference(difference, difference - reach, difference + reach, p_value, Estimator.AVERAGE, common)


def _require_same_questions(a: Mapping[str, Scores], b: Mapping[str, Scores]) -> None:
    sizes = {len(scores) for group in (a, b) for scores in group.values()}
    if len(sizes) > 1:
        raise ValueError(f"a paired comparison needs the same questions, not {' and '.join(map(str, sorted(sizes)))}")


def _sum(parts: Sequence[_Part]) -> _Part:
    """Return the sum of independent variances, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in parts)
    squares = sum(part.variance**2 / part.freedom for part in parts)
    return _Part(variance, variance**2 / squares if squares else float(min(part.freedom for part in parts)))


def _parts(samples: Sequence[Matrix], changes: Matrix) -> tuple[_Part, _Part]:
    """Return the parts of seeds and of questions in the variance of the mean of ``changes``.

    Args:
        samples: matrices of seeds by questions; the difference is between their means.
        changes: the value of each question, a mean over its seeds.
    """
    seeds = _sum([_Part(float(m.mean(axis=1).var(ddof=1)) / len(m), len(m) - 1) for m in samples])
    if len(changes) == 1:
        return seeds, _Part(0.0, 1.0)
    # The seeds' means vary by the residual too, so it is taken out of the variance over questions.
    residual = sum(_residual(matrix) for matrix in samples)
    questions = float(changes.var(ddof=1)) / len(changes) - residual
    return seeds, _Part(max(questions, 0.0), len(changes) - 1)


def _residual(matrix: Matrix) -> float:
    """Return the residual's part in the variance of a matrix's mean."""
    seeds, questions = matrix.shape
    rest = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
    return float(np.square(rest).sum() / ((seeds - 1) * (questions - 1) * seeds * questions))


def _student(mean: float, seeds: _Part, questions: _Part) -> tuple[float, float]:
    """Return the half-width of the interval of a mean, and the p value of the mean being zero."""
    variance = seeds.variance + questions.variance
    if variance <= 0:
        return 0.0, float(mean == 0)
    share = seeds.variance / variance
    weight = share**2 * (2 - share)
    error = sqrt(variance)

    def reach(p_value: float) -> float:
        of_questions, of_seeds = (float(-stdtrit(part.freedom, p_value / 2)) for part in (questions, seeds))
        return error * ((1 - weight) * of_questions + weight * of_seeds)

    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if reach(middle) < abs(mean) else (middle, high)
    return reach(1 - LEVEL), high
