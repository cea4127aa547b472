"""The rollouts of one phase: written down as they finish, and never sampled twice.

What is sampled follows from seeds and rewards alone, so a phase that was killed and started again ends with the
same rollouts as one that was not, and one that several processes share with the same as one that a single process
samples. Knows no method: any agent that leaves rollouts will do.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
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
class RolloutSampler:
    """The rollouts of one phase, on disk and in memory, and what is needed to make more of them.

    A context manager over the file at ``path``; engine and retriever belong to the caller. Several processes
    that share a phase, each with a sampler of its own over the same path, ask for the same things in the same order.
    Each writes what it makes beside ``path`` (``rollouts.share0.jsonl``, …); at the end the first puts everything into
    ``path``, by question and attempt, and the others end (``processes.shares.EndOfShare``).
    """

    path: Path
    agent: RolloutAgent
    engine: SamplingEngine
    live: int
    share: Share = SINGLE_PROCESS
    searching: int = 0
    done: dict[str, dict[int, Rollout]] = field(default_factory=dict)
    seconds: float = 0.0
    """Wall time spent sampling, over all attempts at this phase; starting the engine is not in it. Of a process that
    was killed the time up to its last finished rollout counts, of several at a time the first one's."""

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
        """Return the files that several processes have written beside ``path``."""
        return sorted(self.path.parent.glob(f"{self.path.stem}.share*.jsonl"))

    def _collect(self) -> None:
        """Put into ``path`` what processes, however many there were, had made before they were stopped."""
        files = [path for path in (self.path, *self._parts()) if path.exists()]
        found = {
            (rollout.question.id, rollout.attempt): rollout for file in files for rollout in read_log(file, Rollout)
        }
        for rollout in found.values():
            self._check(rollout)
        if files:
            self._write(list(found.values()))

    def _write(self, rollouts: list[Rollout]) -> None:
        """Make ``path`` of all rollouts; only then is what they were collected from needed no more."""
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
        """The rewards of the attempts at a question so far, by attempt."""
        return {attempt: r.rewards[name] for attempt, r in self.done.get(question.id, {}).items()}

    def attempt(self, question: Question, number: int) -> Agent[Rollout]:
        """One attempt, written down the moment it is finished."""
        rollout = yield from self.agent.rollout(question, number)
        self._log.append(rollout)
        self._note(rollout)
        self._made.append(rollout)
        self._tick()
        return rollout

    def play(self, starts: Sequence[Callable[[], Agent[Any]]], description: str, unit: str = "rollout") -> None:
        """Run agents that make attempts, ``live`` at a time in each process, to their end.

        Returns when every process has done its share; then all of them have all rollouts.
        """
        self._began, self._before = time.monotonic(), self.seconds
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
        """All rollouts: in the questions' order, and by attempt."""
        return [self.done[q.id][a] for q in questions if q.id in self.done for a in sorted(self.done[q.id])]

    def _recent_reward(self) -> dict[str, float]:
        """The mean of the method's first reward over the newest rollouts, by its name, for the progress bar."""
        newest = self._made[-RECENT:]
        name = next((name for rollout in newest for name in rollout.rewards), None)
        return {} if name is None else {name: fmean(rollout.rewards[name] for rollout in newest)}

    def _speed(self) -> int:
        """The tokens that this process's policy has sampled per second, of the attempts that are finished."""
        tokens = sum(sum(trajectory.agent_mask) for rollout in self._made for trajectory in rollout.recorded)
        return round(tokens / max(time.monotonic() - self._began, 1e-3))

    def _tick(self) -> None:
        if not self.share.first:
            return
        self.seconds = self._before + time.monotonic() - self._began
        # Written after every rollout, and of no result: a power cut may take it.
        write_text(self._clock, json.dumps({"seconds": round(self.seconds, 3)}), durable=False)


@contextmanager
def open_sampler(
    path: Path, spec: EngineSpec, model: str, make_agent: Callable[[Any, str], RolloutAgent]
) -> Iterator[RolloutSampler]:
    """A phase with an engine of its own, which is closed behind it; shared by the processes of the process group.

    Args:
        make_agent: the agent, from the engine's tokenizer and the digest of its weights.
    """
    from platform_sdk.sampling.load import load_engine

    with closing(load_engine(spec, model)) as engine:
        agent = make_agent(engine.tokenizer, engine.weight_version)
        with RolloutSampler(path, agent, engine, spec.live, own_share(), spec.searching) as sampler:
            yield sampler


def seconds_of(clock: Path) -> float:
    """The sampling time so far. It is a figure, not a result: a damaged file costs no rollout."""
    if not clock.exists():
        return 0.0
    try:
        return float(read_object(clock)["seconds"])
    except (UserError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: unreadable (%s); sampling time counts from 0 again", clock, error)
        return 0.0
