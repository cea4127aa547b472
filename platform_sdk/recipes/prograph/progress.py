"""Step progress: how much a step raised the prospect of the gold answer (ProGraph-R1, equation 11).

r_sp(t) = P(y* | s_≤t, G_≤t) - P(y* | s_<t, G_<t). A history is a dialogue as it was before a turn of the agent; one
that several trajectories of a group begin with is estimated once. Two estimators of P:

- ``sampling``: the mean outcome reward of n completions, each played on to its end by the agent itself, with searches
  and under the same limits. Behind the last turn nothing can follow: P is the trajectory's own outcome reward there.
- ``likelihood``: the geometric mean of the probabilities of the gold answer's tokens behind the history and
  ``<answer>``. (Their mean logarithm itself would punish a wrong answer without bound, and teach never to answer.)
  Behind a turn that answers, the history is that turn's text up to its own ``<answer>``, so that its thoughts count. P
  stays as it was behind a last turn that gives no answer, and where the context leaves no room for the gold answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp
from statistics import fmean
from typing import Any

from platform_sdk.agents.speaker import Decoding, Reply
from platform_sdk.recipes.prograph.agent import converse
from platform_sdk.recipes.prograph.rewards import agent_turns, outcome
from platform_sdk.recipes.prograph.settings import AgentSpec
from platform_sdk.records import Rollout, Turn
from platform_sdk.sampling.dialogue import Dialogue, encode
from platform_sdk.sampling.engine import PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import Agent, Together
from platform_sdk.training.credit import CreditProbe, reward_of

Tokens = tuple[int, ...]
_OPENING = "<answer>"


def with_sampling(
    group: Sequence[Rollout], probe: CreditProbe, spec: AgentSpec, decoding: Decoding, reward: str, *, completions: int
) -> Agent[Sequence[Rollout]]:
    """Return the group with the step progress that completions of its histories show.

    Args:
        spec: the agent's, for its limits.
        reward: names the outcome.
    """
    owners: dict[Tokens, tuple[Rollout, int]] = {}
    for rollout in group:
        for end in _histories(rollout):
            owners.setdefault(rollout.main.token_ids[:end], (rollout, end))
    asked = [(rollout, end, number) for rollout, end in owners.values() for number in range(completions)]
    rewards: list[float] = yield Together(tuple(_complete(probe, spec, decoding, reward, *each) for each in asked))
    each = zip(*[iter(rewards)] * completions, strict=True)
    values = {history: fmean(own) for history, own in zip(owners, each, strict=True)}
    return [
        _with_progress(
            rollout,
            [*(values[rollout.main.token_ids[:end]] for end in _histories(rollout)), reward_of(rollout, reward)],
        )
        for rollout in group
    ]


def with_likelihood(group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
    """Return the group with the step progress that the likelihood of the gold answer shows."""
    opening, gold = (encode(probe.tokenizer, text) for text in (_OPENING, group[0].question.answers[0]))
    prompts = [_answering(rollout, probe.tokenizer, opening) for rollout in group]
    room = probe.engine.max_model_len - len(gold)
    fitting = [prompt for own in prompts for prompt in own if prompt is not None and len(prompt) <= room]
    asked = list(dict.fromkeys(fitting))
    scores: list[tuple[float, ...]] = yield Together(tuple(probe.score(prompt, gold) for prompt in asked))
    values = {prompt: exp(fmean(score)) for prompt, score in zip(asked, scores, strict=True)}
    return [_with_progress(rollout, _known(own, values)) for rollout, own in zip(group, prompts, strict=True)]


def _histories(rollout: Rollout) -> list[int]:
    """Return how many tokens come before each of the agent's turns."""
    return [turn.start for turn in agent_turns(rollout.main)]


def _complete(
    probe: CreditProbe, spec: AgentSpec, decoding: Decoding, reward: str, rollout: Rollout, end: int, number: int
) -> Agent[float]:
    """Play a rollout's history of ``end`` tokens on to its end; return the outcome reward."""
    params = SamplingParams(**vars(decoding), max_tokens=spec.max_tokens)

    def speak(dialogue: Dialogue, turn: int) -> Agent[Reply | None]:
        try:
            parts = (rollout.id, end, number, turn)
            thread = f"{rollout.id}/{end}/{number}"
            completion = yield from probe.sample(tuple(dialogue.token_ids), params, *parts, thread=thread)
        except PromptTooLong:
            return None
        return Reply(dialogue.hear(completion), completion.finish == "length")

    dialogue = Dialogue.reopened(probe.tokenizer, rollout.main, end)
    trajectory, _ = yield from converse(dialogue, spec, speak)
    return outcome(rollout.question, trajectory)[reward]


def _answering(rollout: Rollout, tokenizer: Any, opening: Sequence[int]) -> list[Tokens | None]:
    """Return the prompts behind which the gold answer is scored: before each turn, and behind the last one."""
    turns, tokens = agent_turns(rollout.main), rollout.main.token_ids
    prompts: list[Tokens | None] = [(*tokens[: turn.start], *opening) for turn in turns]
    if rollout.main.answer is None or not turns:
        return [*prompts, None]
    said, _, _ = turns[-1].text.rpartition(_OPENING)
    return [*prompts, (*tokens[: turns[-1].start], *encode(tokenizer, said + _OPENING))]


def _known(prompts: Sequence[Tokens | None], values: Mapping[Tokens, float]) -> list[float]:
    """Return the value of each prompt, or the one before it where there is none."""
    known: list[float] = []
    for prompt in prompts:
        before = known[-1] if known else 0.0
        known.append(before if prompt is None else values.get(prompt, before))
    return known


def _with_progress(rollout: Rollout, certainties: Sequence[float]) -> Rollout:
    """Return the rollout with what its turns changed; its ``progress`` is the mean of theirs.

    Args:
        certainties: P before each of the agent's turns, and behind the last one.
    """
    changes = iter(pairwise(certainties))
    mean = (certainties[-1] - certainties[0]) / max(1, len(certainties) - 1)

    def changed(turn: Turn) -> Turn:
        if turn.speaker != "agent":
            return turn
        before, after = next(changes)
        return turn.model_copy(update={"rewards": {**turn.rewards, "certainty": after, "progress": after - before}})

    main = rollout.main.model_copy(update={"turns": tuple(map(changed, rollout.main.turns))})
    rewards = {**rollout.rewards, "certainty": certainties[0], "progress": mean}
    return rollout.model_copy(update={"main": main, "rewards": rewards})
