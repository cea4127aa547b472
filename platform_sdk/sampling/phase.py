"""The rollouts of one phase: written down as they finish, and never sampled twice.

What is sampled follows from seeds and rewards alone, so a phase that was killed and started again ends with the
same rollouts as one that was not. Knows no method: any agent that leaves rollouts will do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tqdm import tqdm

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.records import AppendLog, Question, Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.rollout import Agent, SearchFunction, run
from platform_sdk.tracking.outcomes import read_json, write_json


class RolloutAgent(Protocol):
    """A method's agent, with everything that a rollout depends on besides the question and the attempt."""

    @property
    def weights(self) -> str:
        """The digest of the policy's weights."""

    @property
    def corpus(self) -> str:
        """The digest of what is searched."""

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One attempt at a question; returns the scored rollout."""


@dataclass
class Phase:
    """The rollouts of one phase, on disk and in memory, and what is needed to make more of them.

    A context manager over the file at ``path``; engine and retriever belong to whoever opened them.
    """

    path: Path
    agent: RolloutAgent
    engine: SamplingEngine
    search: SearchFunction
    live: int
    done: dict[str, dict[int, Rollout]] = field(default_factory=dict)
    seconds: float = 0.0
    """Wall time spent sampling, over all processes that worked on this phase; starting the engine is not in it. Of
    a process that was killed the time up to its last finished rollout counts."""

    def __enter__(self) -> Self:
        self._log = AppendLog(self.path, Rollout)
        for rollout in self._log.records:
            self._check(rollout)
            self.done.setdefault(rollout.question.id, {})[rollout.attempt] = rollout
        self._clock = self.path.with_suffix(".seconds.json")
        self.seconds = read_json(self._clock)["seconds"] if self._clock.exists() else 0.0
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
        """The rewards of the attempts at a question so far, by attempt."""
        return {attempt: r.rewards[name] for attempt, r in self.done.get(question.id, {}).items()}

    def attempt(self, question: Question, number: int) -> Agent[Rollout]:
        """One attempt, written down the moment it is finished."""
        rollout = yield from self.agent.rollout(question, number)
        self._log.append(rollout)
        self.done.setdefault(question.id, {})[number] = rollout
        self._tick()
        return rollout

    def play(self, starts: Sequence[Callable[[], Agent[Any]]], description: str, unit: str = "rollout") -> None:
        """Run agents that make attempts, ``live`` at a time, to their end."""
        self._began, self._before = time.monotonic(), self.seconds
        with tqdm(total=len(starts), desc=description, unit=unit) as bar:
            for _ in run(starts, self.engine, self.search, live=self.live):
                bar.update()
        self._tick()

    def once(self, questions: Iterable[Question], number: int, description: str) -> None:
        """Make attempt ``number`` at every question that lacks it."""
        missing = [q for q in questions if number not in self.done.get(q.id, {})]
        if missing:
            self.play([partial(self.attempt, question, number) for question in missing], description)

    def ordered(self, questions: Sequence[Question]) -> list[Rollout]:
        """All rollouts: in the questions' order, and by attempt."""
        return [self.done[q.id][a] for q in questions if q.id in self.done for a in sorted(self.done[q.id])]

    def _tick(self) -> None:
        self.seconds = self._before + time.monotonic() - self._began
        write_json(self._clock, {"seconds": round(self.seconds, 3)})


@contextmanager
def open_phase(
    path: Path, spec: EngineSpec, model: str, search: SearchFunction, make_agent: Callable[[Any, str], RolloutAgent]
) -> Iterator[Phase]:
    """A phase with an engine of its own, which is closed behind it.

    Args:
        make_agent: the agent, from the engine's tokenizer and the digest of its weights.
    """
    from platform_sdk.sampling.load import load_engine

    engine = load_engine(spec, model)
    try:
        with Phase(path, make_agent(engine.tokenizer, engine.weight_version), engine, search, spec.live) as phase:
            yield phase
    finally:
        engine.close()
