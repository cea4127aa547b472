"""Advantages from rewards: pure functions of the groups of an update, without torch.

A group is the attempts at one question. ``docs/grpo.md`` has the formulae.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean, stdev
from typing import Any

from platform_sdk.config.credit import AdvantageSpec, GdpoCreditSpec, GroupCreditSpec

EPSILON = 1e-4
GRPO = GroupCreditSpec()

Groups = Sequence[Sequence[float]]


def group_advantages(rewards: Sequence[float], spec: GroupCreditSpec = GRPO) -> list[float]:
    """Return the advantages of an update of one group.

    By default (r - mean) / (std + 1e-4). Equal rewards give exactly zero with every baseline except ``none``.
    """
    return update_advantages([rewards], spec)[0]


def update_advantages(groups: Groups, spec: GroupCreditSpec) -> list[list[float]]:
    """Return the advantages of the rewards of an update's groups."""
    together = [reward for rewards in groups for reward in rewards]
    overall = stdev(together) if len(together) > 1 else 0.0
    found = []
    for rewards in groups:
        if spec.baseline != "none" and not varied(rewards):
            found.append([0.0] * len(rewards))
            continue
        centred = _compared(rewards, spec.baseline)
        if spec.scale != "none":
            deviation = overall if spec.scale == "batch" else stdev(rewards)
            centred = [value / (deviation + EPSILON) for value in centred]
        found.append(weighed(centred, spec))
    return found


def gdpo_advantages(groups: Sequence[Mapping[str, Sequence[float]]], spec: GdpoCreditSpec) -> list[list[float]]:
    """Return GDPO's advantages: A = whiten(Σ_k w_k (r_k - mean_k) / (std_k + 1e-4)).

    Source: Liu et al., 2026, arXiv 2601.05242. Means and deviations are per group, the whitening is over all values of
    the update, as in TRL's ``multi_objective_aggregation="normalize_then_sum"``.

    Args:
        groups: the attempts' values of every reward in ``spec.weights``, by its name.
    """
    sums = [
        weighted_sum([(weight, group_advantages(rewards[name])) for name, weight in spec.weights.items()])
        for rewards in groups
    ]
    return [weighed(values, spec) for values in whitened(sums)]


def weighted_sum(parts: Sequence[tuple[float, Sequence[float]]]) -> list[float]:
    """Return the weighted sum of equally long sequences."""
    return [
        fsum(terms) for terms in zip(*([weight * value for value in values] for weight, values in parts), strict=True)
    ]


def whitened(groups: Groups) -> list[list[float]]:
    """Return the values minus their mean over all groups, divided by their deviation; zeros stay zeros.

    Normalised values of a group sum to 0, so the mean is 0 up to rounding. A group of zeros stays without effect.
    """
    together = [value for values in groups for value in values]
    if not varied(together):
        return [[0.0] * len(values) for values in groups]
    mean, deviation = fmean(together), stdev(together)
    return [
        [(value - mean) / (deviation + EPSILON) for value in values] if any(values) else [0.0] * len(values)
        for values in groups
    ]


def weighed(values: Sequence[float], spec: AdvantageSpec) -> list[float]:
    """Return the values, the negative ones multiplied by ``spec.negative_weight``."""
    if spec.negative_weight == 1:
        return list(values)
    return [value if value > 0 else spec.negative_weight * value or 0.0 for value in values]


def varied(rewards: Sequence[Any]) -> bool:
    """Return True if the rewards differ."""
    return any(reward != rewards[0] for reward in rewards)


def _compared(rewards: Sequence[float], baseline: str) -> list[float]:
    if baseline == "none":
        return list(rewards)
    mean = fmean(rewards)
    if baseline == "leave_one_out":  # r - (n mean - r) / (n - 1)
        return [(reward - mean) * len(rewards) / (len(rewards) - 1) for reward in rewards]
    return [reward - mean for reward in rewards]
