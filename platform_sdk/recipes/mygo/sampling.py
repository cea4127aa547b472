"""Sampling rollouts of a phase: warm-up, an iteration of MyGO, or an evaluation.

Every finished rollout is appended to the phase's ``rollouts.jsonl`` at once and never sampled again. What is
sampled follows from seeds and rewards alone, so a phase that was killed and started again ends with the same
rollouts as one that was not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tqdm import tqdm

from platform_sdk.config.errors import UserError
from platform_sdk.recipes.mygo.agent import Mujica
from platform_sdk.recipes.mygo.selection import next_attempts, raised_threshold
from platform_sdk.recipes.mygo.settings import SelectionSpec, WarmupSpec
from platform_sdk.records import AppendLog, Question, Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.rollout import Agent, SearchFunction, Together, run

WARMUP_CHUNK = 64
"""Questions between two looks at how many warm-up trajectories there are: fixed, so that where the sampling
stops does not depend on which rollout happens to finish first."""


@dataclass
class Phase:
    """The rollouts of one phase, on disk and in memory, and what is needed to make more of them."""

    path: Path
    agent: Mujica
    engine: SamplingEngine
    search: SearchFunction
    live: int
    done: dict[str, dict[int, Rollout]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._log = AppendLog(self.path, Rollout)
        for rollout in self._log.records:
            self._check(rollout)
            self.done.setdefault(rollout.question.id, {})[rollout.attempt] = rollout
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def _check(self, rollout: Rollout) -> None:
        for what, found, wanted in (
            ("weights", rollout.weights, self.agent.weights),
            ("corpus", rollout.corpus, self.agent.corpus),
        ):
            if found != wanted:
                raise UserError(
                    f"{self.path}: holds rollouts of other {what} ({found[:12]}…, now {wanted[:12]}…); "
                    "they cannot be mixed: use another --workdir"
                )

    def rewards(self, question: Question, name: str) -> dict[int, float]:
        return {attempt: r.rewards[name] for attempt, r in self.done.get(question.id, {}).items()}

    def attempt(self, question: Question, number: int) -> Agent[Rollout]:
        """One attempt, written down the moment it is finished."""
        rollout = yield from self.agent.rollout(question, number)
        self._log.append(rollout)
        self.done.setdefault(question.id, {})[number] = rollout
        return rollout

    def once(self, questions: Iterable[Question], number: int, description: str) -> None:
        """Make attempt ``number`` at every question that lacks it."""
        missing = [q for q in questions if number not in self.done.get(q.id, {})]
        if not missing:
            return
        starts = (partial(self.attempt, question, number) for question in missing)
        with tqdm(total=len(missing), desc=description, unit="rollout") as bar:
            for _ in run(starts, self.engine, self.search, live=self.live):
                bar.update()

    def ordered(self, questions: Sequence[Question]) -> list[Rollout]:
        """All rollouts: in the questions' order, and by attempt."""
        return [self.done[q.id][a] for q in questions if q.id in self.done for a in sorted(self.done[q.id])]


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
    with tqdm(total=len(unfinished), desc="more attempts", unit="question") as bar:
        for _ in run((partial(more, q) for q in unfinished), phase.engine, phase.search, live=phase.live):
            bar.update()
    return mean_reward, threshold


def sample_warmup(phase: Phase, questions: Sequence[Question], spec: WarmupSpec) -> None:
    """Sample few-shot rollouts until enough of them have EM = 1, or every question has had its attempts."""
    got = 0
    for number in range(spec.attempts):
        for start in range(0, len(questions), WARMUP_CHUNK):
            chunk = questions[start : start + WARMUP_CHUNK]
            phase.once(chunk, number, f"warm-up: {got} of {spec.trajectories} trajectories")
            # Counted chunk by chunk, since a killed run may hold a part of the chunk that comes next.
            got += sum(phase.done[q.id][number].rewards["em"] == 1 for q in chunk)
            if got >= spec.trajectories:
                return
