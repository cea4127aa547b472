"""Probability of the gold answer after each turn of a dialogue, under the sampling policy.

It is the geometric mean of the probabilities of the answer's tokens. (The mean logarithm would give wrong answers an
unbounded penalty, so the policy would learn not to answer.) IGPO (Wang et al., 2025, arXiv 2510.14967) and
ProGraph-R1's estimator ``likelihood`` use it as P(y*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp
from statistics import fmean

from platform_sdk.records import Rollout, Turn
from platform_sdk.sampling.rollout import Agent, Gather
from platform_sdk.sampling.special_tokens import as_text, encode
from platform_sdk.training.credit import CreditProbe

Tokens = tuple[int, ...]
CERTAINTY = "certainty"


def answer_likelihoods(
    prompts: Sequence[Sequence[Tokens | None]], gold: str, probe: CreditProbe
) -> Agent[list[list[float]]]:
    """Return the probability of the gold answer after each prompt of each rollout; equal prompts are scored once.

    Without a prompt, or without room for the answer in the context, the previous probability is repeated.
    """
    answer = encode(probe.tokenizer, as_text(probe.tokenizer, gold))
    room = probe.engine.max_model_len - len(answer)
    fitting = [prompt for own in prompts for prompt in own if prompt is not None and len(prompt) <= room]
    asked = list(dict.fromkeys(fitting))
    scores: list[tuple[float, ...]] = yield Gather(tuple(probe.score(prompt, answer) for prompt in asked))
    values = {prompt: exp(fmean(score)) for prompt, score in zip(asked, scores, strict=True)}
    return [_known(own, values) for own in prompts]


def with_changes(rollout: Rollout, certainties: Sequence[float], name: str) -> Rollout:
    """Return the rollout with the change of P in each of the agent's turns as the reward ``name``.

    The rollout's reward ``name`` is the mean over its turns, and its ``certainty`` is P at the start.

    Args:
        certainties: P before each of the agent's turns, and after the last one.
    """
    changes = iter(pairwise(certainties))
    mean = (certainties[-1] - certainties[0]) / max(1, len(certainties) - 1)

    def changed(turn: Turn) -> Turn:
        if turn.speaker != "agent":
            return turn
        before, after = next(changes)
        return turn.model_copy(update={"rewards": {**turn.rewards, CERTAINTY: after, name: after - before}})

    main = rollout.main.model_copy(update={"turns": tuple(map(changed, rollout.main.turns))})
    rewards = {**rollout.rewards, CERTAINTY: certainties[0], name: mean}
    return rollout.model_copy(update={"main": main, "rewards": rewards})


def _known(prompts: Sequence[Tokens | None], values: Mapping[Tokens, float]) -> list[float]:
    """Return the value of each prompt, or the previous value for a missing prompt."""
    known: list[float] = []
    for prompt in prompts:
        before = known[-1] if known else 0.0
        known.append(before if prompt is None else values.get(prompt, before))
    return known
