"""The rollouts of an update: a group at each question, and again where a group taught nothing.

Every process samples its share of the questions into a file of its own; all of them read all files, and so hold the
same rollouts in the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from accelerate import PartialState

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.record_files import read_log
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.phase import Phase
from platform_sdk.training.advantages import varied
from platform_sdk.training.online.task import OnlineTask

logger = logging.getLogger(__name__)
Attempts = dict[int, Rollout]


@dataclass(frozen=True)
class Group:
    """The rollouts at one question, in waves of equal size: every wave but the last had equal rewards throughout."""

    waves: tuple[tuple[Rollout, ...], ...]

    @property
    def first(self) -> tuple[Rollout, ...]:
        """What the policy did when it was first asked: the mean of these is its mean reward."""
        return self.waves[0]

    @property
    def learned(self) -> tuple[Rollout, ...]:
        return self.waves[-1]

    def varied(self, reward: str) -> bool:
        """Whether there is something to compare in what is learned from."""
        return varied([rollout.rewards[reward] for rollout in self.learned])

    @property
    def sampled(self) -> tuple[Rollout, ...]:
        return tuple(rollout for wave in self.waves for rollout in wave)


class GroupSampler:
    """Samples the groups of an update into ``folder``, and none of their rollouts twice.

    Args:
        folder: for ``0001.jsonl``, …; under several processes ``0001.rank0.jsonl``, …
        phase: prefix of the names that the agents' draws depend on.
    """

    def __init__(self, spec: OnlineSpec, task: OnlineTask, engine: SamplingEngine, folder: Path, phase: str) -> None:
        self._spec, self._task, self._engine = spec, task, engine
        self._folder, self._phase = folder, phase
        self._state = PartialState()

    def sample(self, update: int, questions: Sequence[Question], version: str) -> float:
        """Sample this process's share of an update's groups; return the seconds that it took.

        Rollouts that an earlier process left are used where they are of the same weights, and set aside otherwise.
        """
        path = self._path(update, self._state.process_index)
        self._set_aside_unless(path, version)
        agent = self._task.make_agent(self._engine.tokenizer, version, f"{self._phase}-{update:04d}")
        mine = self._share(questions)
        with Phase(path, agent, self._engine, self._task.search, self._task.live) as phase:
            for wave in range(1 + self._spec.resamples):
                missing = [
                    partial(phase.attempt, question, number)
                    for question in mine
                    for number in self._missing(phase.done.get(question.id, {}), wave)
                ]
                if missing:
                    phase.play(missing, f"update {update}: sampling")
            return phase.seconds

    def whole(self, update: int, questions: Sequence[Question]) -> bool:
        """Whether this process's share of an update was sampled to its end before, with one policy's weights."""
        path = self._path(update, self._state.process_index)
        if not path.exists():
            return False
        done = _by_question(read_log(path, Rollout))
        versions = {rollout.weights for attempts in done.values() for rollout in attempts.values()}
        return len(versions) == 1 and not any(
            self._missing(done.get(question.id, {}), wave)
            for question in self._share(questions)
            for wave in range(1 + self._spec.resamples)
        )

    def gather(self, update: int, questions: Sequence[Question]) -> list[Group]:
        """The groups of an update, of all processes, in the questions' order; called when all have sampled."""
        self._state.wait_for_everyone()
        done: dict[str, Attempts] = {}
        for process in range(self._state.num_processes):
            path = self._path(update, process)
            if not path.exists():
                raise UserError(f"{path}: written by another process, but not visible here; use a shared directory")
            done |= _by_question(read_log(path, Rollout))
        return [self._group(done[question.id]) for question in questions]

    def _share(self, questions: Sequence[Question]) -> Sequence[Question]:
        return questions[self._state.process_index :: self._state.num_processes]

    def _path(self, update: int, process: int) -> Path:
        infix = f".rank{process}" if self._state.num_processes > 1 else ""
        return self._folder / f"{update:04d}{infix}.jsonl"

    def _numbers(self, wave: int) -> range:
        return range(wave * self._spec.group, (wave + 1) * self._spec.group)

    def _missing(self, attempts: Attempts, wave: int) -> list[int]:
        """The attempts of a wave that are to be made: all of the first, of others where no wave before varied."""
        if wave and any(self._varies(attempts, before) for before in range(wave)):
            return []
        return [number for number in self._numbers(wave) if number not in attempts]

    def _varies(self, attempts: Attempts, wave: int) -> bool:
        return varied([self._reward(attempts[number]) for number in self._numbers(wave) if number in attempts])

    def _reward(self, rollout: Rollout) -> float:
        try:
            return rollout.rewards[self._spec.reward]
        except KeyError:
            known = ", ".join(sorted(rollout.rewards)) or "none"
            raise UserError(f"reward: there is no {self._spec.reward!r}; the agent gives {known}") from None

    def _group(self, attempts: Attempts) -> Group:
        waves = [0]
        while len(waves) <= self._spec.resamples and not self._varies(attempts, waves[-1]):
            waves.append(len(waves))
        return Group(tuple(tuple(attempts[number] for number in self._numbers(wave)) for wave in waves))

    def _set_aside_unless(self, path: Path, version: str) -> None:
        if not path.exists():
            return
        others = {rollout.weights for rollout in read_log(path, Rollout)} - {version}
        if not others:
            return
        number = 1
        while (aside := path.with_name(f"{path.name}.stale{number}")).exists():
            number += 1
        path.rename(aside)
        path.with_suffix(".seconds.json").unlink(missing_ok=True)
        logger.warning(
            "%s: sampled with other weights (%s, now %s) before the run was stopped; set aside as %s and sampled again",
            path, ", ".join(sorted(name[:12] for name in others)), version[:12], aside.name,
        )  # fmt: skip


def _by_question(rollouts: Iterable[Rollout]) -> dict[str, Attempts]:
    done: dict[str, Attempts] = {}
    for rollout in rollouts:
        done.setdefault(rollout.question.id, {})[rollout.attempt] = rollout
    return done
