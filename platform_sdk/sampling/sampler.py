"""Rollouts of one phase: stored as they finish, and never sampled twice.

Sampling depends only on seeds and rewards, so a killed and resumed phase gives the same rollouts as an uninterrupted
one, and several processes give the same rollouts as one process. Independent of the method: works with any agent that
returns rollouts.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Protocol, Self

from tqdm import tqdm

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.files import read_object, write_text
from platform_sdk.processes.shares import SINGLE_PROCESS, EndOfShare, Share, own_share
from platform_sdk.record_files import AppendLog, read_log, remove_log, write_log
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.background import ThreadedCalls
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.rollout import Agent, Answers, run

RECENT = 100
MAX_THREADS = 64
logger = logging.getLogger(__name__)


class RolloutAgent(Protocol):
    """A method's agent, with all inputs of a rollout except the question and the attempt."""

    @property
    def weights(self) -> str:
        """Digest of the policy's weights."""

    @property
    def corpus(self) -> str:
        """Digest of the searched corpus."""

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Make one attempt at a question; return the scored rollout."""


@dataclass
class RolloutSampler:
    """The rollouts of one phase, on disk and in memory, and the means to sample more.

    A context manager over the file at ``path``; engine and retriever belong to the caller. Several processes may share
    a phase: each has a sampler over the same path and makes the same calls in the same order. Each writes its rollouts
    to a separate file (``rollouts.share0.jsonl``, …); at the end the first process merges them into ``path``, by
    question and attempt, and the others end (``processes.shares.EndOfShare``).
    """

    path: Path
    agent: RolloutAgent
    engine: SamplingEngine
    live: int
    share: Share = SINGLE_PROCESS
    searching: int = 0
    done: dict[str, dict[int, Rollout]] = field(default_factory=dict)
    seconds: float = 0.0
    """Wall time of sampling over all runs of this phase, without engine starts. For a killed process it counts up to
    the last finished rollout, for several processes it is the first one's time."""

    def __enter__(self) -> Self:
        shared = self.share.count > 1
        if self.share.first and (shared or self._parts()):
            self._collect()
        self.share.wait()
        own = self.path.with_name(f"{self.path.stem}.share{self.share.index}.jsonl") if shared else self.path
        self._log = AppendLog(own, Rollout)
        before = self._log.records
        if shared and self.path.exists():
            before = read_log(self.path, Rollout)
        for rollout in before:
            self._check(rollout)
            self._note(rollout)
        self._made: list[Rollout] = []
        self._clock = self.path.with_suffix(".seconds.json")
        self.seconds = seconds_of(self._clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()
        if error is not None or self.share.count == 1:
            return
        if not self.share.first:
            raise EndOfShare
        self._write([rollout for attempts in self.done.values() for rollout in attempts.values()])

    def _parts(self) -> list[Path]:
        """Return the separate files of several processes."""
        return sorted(self.path.parent.glob(f"{self.path.stem}.share*.jsonl"))

    def _collect(self) -> None:
        """Merge rollouts of stopped processes, of any number, into ``path``."""
        files = [path for path in (self.path, *self._parts()) if path.exists()]
        found = {
            (rollout.question.id, rollout.attempt): rollout for file in files for rollout in read_log(file, Rollout)
        }
        for rollout in found.values():
            self._check(rollout)
        if files:
            self._write(list(found.values()))

    def _write(self, rollouts: list[Rollout]) -> None:
        """Write all rollouts to ``path``, then delete the separate files."""
        write_log(self.path, Rollout, sorted(rollouts, key=lambda rollout: (rollout.question.id, rollout.attempt)))
        for part in self._parts():
            remove_log(part)

    def _note(self, rollout: Rollout) -> None:
        self.done.setdefault(rollout.question.id, {})[rollout.attempt] = rollout

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
        """Return the rewards of the attempts at a question so far, by attempt."""
        return {attempt: r.rewards[name] for attempt, r in self.done.get(question.id, {}).items()}

    def attempt(self, question: Question, number: int) -> Agent[Rollout]:
        """Run one attempt and store it when it is finished.

        Raises:
            UserError: a reward is not a finite number, which could neither be stored nor compared.
        """
        rollout = yield from self.agent.rollout(question, number)
        if wrong := [name for name, reward in rollout.rewards.items() if not isfinite(reward)]:
            raise UserError(
                f"rollout {rollout.id}: the reward {wrong[0]} is {rollout.rewards[wrong[0]]}; correct the method or "
                "the function that computes it, so that it returns a finite number for every rollout"
            )
        self._log.append(rollout)
        self._note(rollout)
        self._made.append(rollout)
        self._tokens += sum(sum(trajectory.agent_mask) for trajectory in rollout.recorded)
        self._tick()
        return rollout

    def play(self, starts: Sequence[Callable[[], Agent[Any]]], description: str, unit: str = "rollout") -> None:
        """Run agents that make attempts, ``live`` at a time in each process.

        Returns when every process has done its share; all processes then have all rollouts.
        """
        self._began, self._before, self._tokens = time.monotonic(), self.seconds, 0
        own = self.share.of(starts)
        with tqdm(total=len(own), desc=description, unit=unit, disable=not self.share.first) as bar:
            background: ThreadedCalls[Answers] | None = None
            if self.searching:
                background = ThreadedCalls(min(self.searching, MAX_THREADS))
            for _ in run(own, self.engine, live=self.live + self.searching, background=background):
                bar.set_postfix(self._recent_reward() | {"tokens/s": self._speed()}, refresh=False)
                bar.update()
        for rollout in self.share.gather(self._made):
            self._note(rollout)
        self._made = []
        self._tick()

    def once(self, questions: Iterable[Question], number: int, description: str) -> None:
        """Make attempt ``number`` at every question that lacks it."""
        missing = [q for q in questions if number not in self.done.get(q.id, {})]
        if missing:
            self.play([partial(self.attempt, question, number) for question in missing], description)

    def ordered(self, questions: Sequence[Question]) -> list[Rollout]:
        """Return all rollouts in the order of the questions, then by attempt."""
        return [self.done[q.id][a] for q in questions if q.id in self.done for a in sorted(self.done[q.id])]

    def _recent_reward(self) -> dict[str, float]:
        """Return the method's first reward by name, as a mean over the latest rollouts, for the progress bar."""
        newest = self._made[-RECENT:]
        name = next((name for rollout in newest for name in rollout.rewards), None)
        return {} if name is None else {name: fmean(r.rewards[name] for r in newest if name in r.rewards)}

    def _speed(self) -> int:
        """Return this process's sampled tokens per second, over finished attempts."""
        return round(self._tokens / max(time.monotonic() - self._began, 1e-3))

    def _tick(self) -> None:
        if not self.share.first:
            return
        self.seconds = self._before + time.monotonic() - self._began
        # Written after every rollout without fsync: it may be lost in a power failure.
        write_text(self._clock, json.dumps({"seconds": round(self.seconds, 3)}), durable=False)


@contextmanager
def open_sampler(
    path: Path, spec: EngineSpec, model: str, make_agent: Callable[[Any, str], RolloutAgent]
) -> Iterator[RolloutSampler]:
    """Open a phase with an engine, which is closed afterwards; shared by the processes of the process group.

    Args:
        make_agent: returns the agent for the engine's tokenizer and the digest of its weights.
    """
    from platform_sdk.sampling.load import load_engine

    with closing(load_engine(spec, model)) as engine:
        agent = make_agent(engine.tokenizer, engine.weight_version)
        with RolloutSampler(path, agent, engine, spec.live, own_share(), spec.searching) as sampler:
            yield sampler


def seconds_of(clock: Path) -> float:
    """Return the sampling time so far. A damaged file is ignored, since no result depends on it."""
    if not clock.exists():
        return 0.0
    try:
        return float(read_object(clock)["seconds"])
    except (UserError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: unreadable (%s); sampling time counts from 0 again", clock, error)
        return 0.0
