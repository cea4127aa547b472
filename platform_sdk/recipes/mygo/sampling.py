"""Which questions a phase takes up, in what order, and how often: the warm-up, and an iteration of MyGO."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from platform_sdk.recipes.mygo.selection import next_attempts, raised_threshold
from platform_sdk.recipes.mygo.settings import SelectionSpec, WarmupSpec
from platform_sdk.records import Question
from platform_sdk.sampling.phase import Phase
from platform_sdk.sampling.rollout import Agent, Together


def shuffled(questions: Sequence[Question], seed: int, purpose: str) -> list[Question]:
    """The order in which a run takes up its questions; ``purpose`` tells independent orders apart."""
    order = list(questions)
    random.Random(f"{purpose} {seed}").shuffle(order)
    return order


def batch_of(questions: Sequence[Question], iteration: int, size: int, seed: int) -> list[Question]:
    """The questions of an iteration (from 1): the next ``size`` of the order, beginning again at its end.

    Each pass through the questions has an order of its own.
    """
    size = min(size, len(questions))
    first = (iteration - 1) * size
    orders: dict[int, list[Question]] = {}
    batch = []
    for place in range(first, first + size):
        turn, index = divmod(place, len(questions))
        if turn not in orders:
            orders[turn] = shuffled(questions, seed, f"iterations {turn}")
        batch.append(orders[turn][index])
    # A batch that spans two passes could meet a question twice; it is tried once and the batch is smaller.
    return list(dict.fromkeys(batch))


def sample_iteration(
    phase: Phase, questions: Sequence[Question], threshold: float, spec: SelectionSpec
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


def sample_warmup(phase: Phase, questions: Sequence[Question], spec: WarmupSpec) -> None:
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
