"""Step progress: the increase in the probability of the gold answer by a step (ProGraph-R1, equation 11).

r_sp(t) = P(y* | s_≤t, G_≤t) - P(y* | s_<t, G_<t). A history is a dialogue before a turn of the agent; a history shared
by several trajectories of a group is estimated once. Two estimators of P:

- ``sampling``: the mean outcome reward of n completions, each continued to its end by the agent, with searches and the
  same limits. After the last turn, P is the trajectory's outcome reward. Completions can be kept as branches to train
  on.
- ``likelihood``: the probability of the gold answer after the history and ``<answer>``, see ``training.likelihood``.
  After a turn with an answer, the history includes this turn up to its ``<answer>``, so that its thoughts count. P is
  unchanged after a last turn without an answer, and if the context has no room for the gold answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from platform_sdk.agents.speaker import Decoding, Reply
from platform_sdk.errors import UserError
from platform_sdk.methods.prograph.agent import converse
from platform_sdk.methods.prograph.rewards import outcome
from platform_sdk.methods.prograph.settings import AgentSpec
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import Agent, Gather
from platform_sdk.sampling.special_tokens import encode
from platform_sdk.training.credit import CreditProbe, reward_of
from platform_sdk.training.likelihood import Tokens, answer_likelihoods, with_changes

OPENING = "<answer>"
PROGRESS = "progress"


def with_sampling(
    group: Sequence[Rollout], probe: CreditProbe, spec: AgentSpec, decoding: Decoding, reward: str, *,
    completions: int, keep: bool,
) -> Agent[Sequence[Rollout]]:  # fmt: skip
    """Return the group with step progress estimated by completions of its histories.

    Args:
        spec: the agent's settings, for its limits.
        reward: name of the outcome reward.
        completions: number of completions of each history.
        keep: add the completions to the rollouts as branches, one rollout to each distinct history.

    Raises:
        UserError: the reward is not of the outcome, so completions do not have it.
    """
    _check_is_outcome(group[0], reward)
    owners: dict[Tokens, tuple[Rollout, int]] = {}
    for rollout in group:
        for end in _histories(rollout):
            owners.setdefault(rollout.main.token_ids[:end], (rollout, end))
    asked = [(rollout, end, number) for rollout, end in owners.values() for number in range(completions)]
    completed: list[Trajectory] = yield Gather(tuple(_complete(probe, spec, decoding, *each) for each in asked))
    rewards = [outcome(group[0].question, each)[reward] for each in completed]
    siblings = zip(*[iter(rewards)] * completions, strict=True)
    values = {history: fmean(own) for history, own in zip(owners, siblings, strict=True)}
    branches: dict[str, list[Trajectory]] = {}
    if keep:
        for (rollout, end, number), trajectory in zip(asked, completed, strict=True):
            branches.setdefault(rollout.id, []).append(_branch(trajectory, end, number))
    return [
        with_changes(
            rollout.model_copy(update={"others": (*rollout.others, *branches.get(rollout.id, ()))}),
            [*(values[rollout.main.token_ids[:end]] for end in _histories(rollout)), reward_of(rollout, reward)],
            PROGRESS,
        )
        for rollout in group
    ]


def with_likelihood(group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
    """Return the group with step progress estimated by the likelihood of the gold answer."""
    opening = encode(probe.tokenizer, OPENING)
    prompts = [_answering(rollout, probe.tokenizer, opening) for rollout in group]
    certainties = yield from answer_likelihoods(prompts, group[0].question.answers[0], probe)
    return [with_changes(rollout, own, PROGRESS) for rollout, own in zip(group, certainties, strict=True)]


def _histories(rollout: Rollout) -> list[int]:
    """Return the number of tokens before each of the agent's turns."""
    return [turn.start for turn in rollout.main.agent_turns]


def _complete(
    probe: CreditProbe, spec: AgentSpec, decoding: Decoding, rollout: Rollout, end: int, number: int
) -> Agent[Trajectory]:
    """Continue a rollout's history of ``end`` tokens to its end."""
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
    trajectory, _ = yield from converse(dialogue, spec, speak, probe.search)
    return trajectory


def branch_history(branch: Trajectory) -> Tokens:
    """Return the tokens of the history that a branch continues: those before the first that it samples."""
    sampled = branch.agent_mask.index(1) if 1 in branch.agent_mask else len(branch.token_ids)
    return branch.token_ids[:sampled]


def _branch(completed: Trajectory, end: int, number: int) -> Trajectory:
    """Return a completion of a history of ``end`` tokens; the history's own turns are not trained on again."""
    return completed.model_copy(
        update={
            "id": f"branch-{end}-{number}",
            "use": "branch",
            "agent_mask": (0,) * end + completed.agent_mask[end:],
            "logprobs": (0.0,) * end + completed.logprobs[end:],
        }
    )


def _check_is_outcome(rollout: Rollout, reward: str) -> None:
    known = outcome(rollout.question, rollout.main)
    if reward not in known:
        raise UserError(
            f"online.reward {reward}: the estimator sampling needs a reward of the answer; set online.reward to "
            f"{', '.join(known)}, or agent.credit.estimator to likelihood"
        )


def _answering(rollout: Rollout, tokenizer: Any, opening: Sequence[int]) -> list[Tokens | None]:
    """Return the prompts after which the gold answer is scored: before each turn, and after the last one."""
    turns, tokens = rollout.main.agent_turns, rollout.main.token_ids
    prompts: list[Tokens | None] = [(*tokens[: turn.start], *opening) for turn in turns]
    if rollout.main.answer is None or not turns:
        return [*prompts, None]
    said, _, _ = turns[-1].text.rpartition(OPENING)
    return [*prompts, (*tokens[: turns[-1].start], *encode(tokenizer, said + OPENING))]
