"""The warm-up: which questions it takes up, in what order, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.methods.method import NoCarry, Sampling, SamplingOutcome, SamplingStep, SelectionOutcome
from platform_sdk.methods.mygo.agent import MujicaLanguage, mujica
from platform_sdk.methods.mygo.settings import AgentSpec, WarmupSpec
from platform_sdk.methods.selection import acceptance, open_phase, select
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.training.online.questions import shuffled


class Warmup(SamplingStep[AgentSpec, WarmupSpec, NoCarry]):
    """The warm-up before iteration 1: few-shot successes, learned without their examples (Mujica-MyGO, 4.2 and D.3)."""

    settings = WarmupSpec
    carry = NoCarry

    def sample(self, round: Sampling[AgentSpec, WarmupSpec, NoCarry]) -> SamplingOutcome[NoCarry]:
        run = round.run
        questions = shuffled(run.questions("train"), f"warmup {run.seed}")
        with open_phase(round, partial(mujica, demonstrate=True)) as phase:
            sample_warmup(phase, questions, round.settings)
            rollouts, tokenizer = phase.ordered(questions), phase.engine.tokenizer
        language = MujicaLanguage(run.agent, medium_of(run.environment), demonstrate=True)
        # In the order they were sampled in, so that the wanted number is reached as early as possible.
        place = {question.id: number for number, question in enumerate(questions)}
        right = sorted((r for r in rollouts if r.rewards["em"] == 1), key=lambda r: (r.attempt, place[r.question.id]))
        return SamplingOutcome(
            rollouts,
            [question.id for question in questions],
            NoCarry(),
            candidates=[language.undemonstrated(tokenizer, rollout) for rollout in right],
            seconds=phase.seconds,
        )

    def select(
        self, settings: WarmupSpec, carry: NoCarry, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        chosen = select(candidates, "em", 1.0, settings.attempts)[: settings.trajectories]
        figures = {"mean_reward": None, "threshold": 1.0, "wanted": settings.trajectories}
        return SelectionOutcome(chosen, figures | acceptance(rollouts, "em", 1.0))


def sample_warmup(phase: RolloutSampler, questions: Sequence[Question], spec: WarmupSpec) -> None:
    """Sample few-shot rollouts until enough of them have EM = 1, or every question has had its attempts.

    The engine's ``live`` rollouts are started together, and counted when all of them are finished: so where the
    sampling stops does not depend on which one happens to finish first.
    """
    got = 0
    for number in range(spec.attempts):
        for start in range(0, len(questions), phase.live):
            chunk = questions[start : start + phase.live]
            phase.once(chunk, number, f"warm-up: {got} of {spec.trajectories} trajectories")
            # Counted chunk by chunk, since a killed run may hold a part of the chunk that comes next.
            got += sum(phase.done[q.id][number].rewards["em"] == 1 for q in chunk)
            if got >= spec.trajectories:
                return
