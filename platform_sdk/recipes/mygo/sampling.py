"""Sampling of the warm-up and of MyGO's iterations: their questions, in order, and the attempts at each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.struct import Struct
from platform_sdk.recipes.method import NoCarry, Sampled, Sampling, SamplingStep, Selected, open_search
from platform_sdk.recipes.mygo.agent import MujicaLanguage, medium_of, mujica
from platform_sdk.recipes.mygo.selection import next_attempts, raised_threshold, select
from platform_sdk.recipes.mygo.settings import AgentSpec, SelectionSpec, WarmupSpec
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.rollout import Agent, Together
from platform_sdk.sampling.sampler import RolloutAgent, RolloutSampler, open_sampler
from platform_sdk.training.online.questions import shuffled, taken_up


class Threshold(Struct):
    """K of the last iteration; None before the first one, which begins with the recipe's."""

    threshold: float | None = None


class Iteration(SamplingStep[AgentSpec, SelectionSpec, Threshold]):
    """An iteration of MyGO (Mujica-MyGO, section 3.3 and appendix D.3)."""

    settings = SelectionSpec
    carry = Threshold

    def sample(self, round: Sampling[AgentSpec, SelectionSpec, Threshold]) -> Sampled[Threshold]:
        run, spec = round.run, round.settings
        before = spec.initial_threshold if round.carry.threshold is None else round.carry.threshold
        questions = batch_of(run.questions("train"), round.iteration, spec.questions, run.seed)
        with _opened(round, demonstrate=False) as phase:
            mean_reward, threshold = sample_iteration(phase, questions, before, spec)
        return Sampled(
            phase.ordered(questions),
            [question.id for question in questions],
            Threshold(threshold=threshold),
            figures={"mean_reward": mean_reward, "threshold": threshold},
            seconds=phase.seconds,
        )

    def select(
        self, settings: SelectionSpec, carry: Threshold, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> Selected:
        assert carry.threshold is not None, "an iteration hands on the threshold that it ended with"
        chosen = select(candidates, settings.reward, carry.threshold, settings.accepted)
        return Selected(chosen, acceptance(rollouts, settings.reward, carry.threshold))


class Warmup(SamplingStep[AgentSpec, WarmupSpec, NoCarry]):
    """The warm-up before iteration 1: few-shot successes, learned without their examples (Mujica-MyGO, 4.2 and D.3)."""

    settings = WarmupSpec
    carry = NoCarry

    def sample(self, round: Sampling[AgentSpec, WarmupSpec, NoCarry]) -> Sampled[NoCarry]:
        run = round.run
        questions = shuffled(run.questions("train"), f"warmup {run.seed}")
        with _opened(round, demonstrate=True) as phase:
            sample_warmup(phase, questions, round.settings)
            rollouts, tokenizer = phase.ordered(questions), phase.engine.tokenizer
        language = MujicaLanguage(run.agent, medium_of(run.environment), demonstrate=True)
        # In the order they were sampled in, so that the number asked for is reached as early as possible.
        place = {question.id: number for number, question in enumerate(questions)}
        right = sorted((r for r in rollouts if r.rewards["em"] == 1), key=lambda r: (r.attempt, place[r.question.id]))
        return Sampled(
            rollouts,
            [question.id for question in questions],
            NoCarry(),
            candidates=[language.undemonstrated(tokenizer, rollout) for rollout in right],
            seconds=phase.seconds,
        )

    def select(
        self, settings: WarmupSpec, carry: NoCarry, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> Selected:
        chosen = select(candidates, "em", 1.0, settings.attempts)[: settings.trajectories]
        figures = {"mean_reward": None, "threshold": 1.0, "wanted": settings.trajectories}
        return Selected(chosen, figures | acceptance(rollouts, "em", 1.0))


@contextmanager
def _opened(round: Sampling[AgentSpec, Any, Any], *, demonstrate: bool) -> Iterator[RolloutSampler]:
    run = round.run

    def make_agent(tokenizer: Any, weights: str) -> RolloutAgent:
        return mujica(run, Policy(tokenizer, weights), run.decoding, round.phase, demonstrate=demonstrate)

    path = round.folder / "rollouts.jsonl"
    with open_search(run) as search, open_sampler(path, run.sampling.engine, round.model, search, make_agent) as phase:
        yield phase


def acceptance(rollouts: Sequence[Rollout], reward: str, threshold: float) -> dict[str, Any]:
    """Return how many rollouts reached the threshold, and how many attempts their questions took."""
    accepted = [rollout for rollout in rollouts if rollout.rewards[reward] >= threshold]
    tried = Counter(rollout.question.id for rollout in rollouts)
    return {
        "acceptance_rate": len(accepted) / len(rollouts),
        "attempts_histogram": {str(n): count for n, count in sorted(Counter(tried.values()).items())},
        "questions": len(tried),
        "questions_without_accepted": len(tried) - len({rollout.question.id for rollout in accepted}),
    }


def batch_of(questions: Sequence[Question], iteration: int, size: int, seed: int) -> list[Question]:
    """Return the questions of an iteration, from 1."""
    return taken_up(questions, iteration, size, lambda turn: f"iterations {turn} {seed}")


def sample_iteration(
    phase: RolloutSampler, questions: Sequence[Question], threshold: float, spec: SelectionSpec
) -> tuple[float, float]:
    """Sample an iteration of MyGO.

    Returns:
        r̄, the mean reward of the first pass, and K, the threshold that followed from it.
    """
    phase.once(questions, 0, "first pass")
    firsts = [phase.done[q.id][0].rewards[spec.reward] for q in questions]
    mean_reward = sum(firsts) / len(firsts)
    threshold = raised_threshold(threshold, mean_reward, spec)

    def more(question: Question) -> Agent[None]:
        while wave := next_attempts(phase.rewards(question, spec.reward), threshold, spec.accepted, spec.attempts):
            yield Together(tuple(phase.attempt(question, number) for number in wave))

    unfinished = [
        q for q in questions if next_attempts(phase.rewards(q, spec.reward), threshold, spec.accepted, spec.attempts)
    ]
    phase.play([partial(more, question) for question in unfinished], "more attempts", unit="question")
    return mean_reward, threshold


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
