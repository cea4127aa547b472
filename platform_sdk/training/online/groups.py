"""Rollouts of an update: a group for each question, sampled again if the credit requires it, then prepared.

Every process samples its share of the questions into separate files; all processes read all files, so they have the
same rollouts in the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.processes.shares import wait_for_all
from platform_sdk.record_files import read_log, write_log
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.rollout import SearchFunction
from platform_sdk.sampling.sampler import RolloutAgent, RolloutSampler
from platform_sdk.tracking.credit import RolloutCredit, credit_file
from platform_sdk.tracking.outcomes import rename_stale
from platform_sdk.training.credit import Credit, CreditProbe
from platform_sdk.training.online.preparation import PreparedGroup, prepare_groups, read_prepared

logger = logging.getLogger(__name__)
Attempts = dict[int, Rollout]


@dataclass(frozen=True)
class OnlineTask:
    """A method's side of the online loop.

    Attributes:
        questions: the training questions, in any order.
        search: the search of the agents, for credits that continue dialogues.
        make_agent: returns the agent of an update, from the tokenizer, the digest of the sampling weights, and the
            update's unique name, on which all random draws of the agent must depend.
        live: concurrent rollouts in each process; ``searching`` more may be in flight while as many wait for searches.
        credit: the advantages of tokens, and the groups to sample again.
        temperature: the sampling temperature.
        stops: strings that end a turn of the agent, in addition to end tokens.
        turn_tokens: maximum tokens of a turn, if its stop strings are unknown; else None.
    """

    questions: Sequence[Question]
    search: SearchFunction
    make_agent: Callable[[Any, str, str], RolloutAgent]
    live: int
    credit: Credit
    searching: int = 0
    temperature: float = 1.0
    stops: Sequence[str] = ()
    turn_tokens: int | None = None


@dataclass(frozen=True)
class Group:
    """The rollouts at one question, in waves of equal size; each wave except the last had to be sampled again.

    ``prepared`` is the last wave after the credit's preparation, with its cost; None if the credit prepares nothing.
    ``replaced`` marks a group that is replaced by another question's.
    """

    waves: tuple[tuple[Rollout, ...], ...]
    prepared: PreparedGroup | None = None
    replaced: bool = False

    @property
    def first(self) -> tuple[Rollout, ...]:
        """Return the first wave, over which the mean reward is computed."""
        return self.waves[0]

    @property
    def learned(self) -> tuple[Rollout, ...]:
        return self.waves[-1] if self.prepared is None else self.prepared.rollouts

    @property
    def sampled(self) -> tuple[Rollout, ...]:
        return tuple(rollout for wave in self.waves for rollout in wave)


class GroupSampler:
    """Sampler of the groups of an update into ``folder``; no rollout is sampled twice.

    Args:
        folder: directory of ``0001.jsonl``, …; with several processes ``0001.rank0.jsonl``, …. Prepared groups are in
            files of the same names in ``prepared``, and the credit of all processes' rollouts in ``credit``.
        phase: prefix of the names that seed the agents' draws.
        seed: seed of the credit's draws.
    """

    def __init__(
        self, spec: OnlineSpec, task: OnlineTask, engine: SamplingEngine, folder: Path, phase: str, seed: int
    ) -> None:
        self._spec, self._task, self._engine = spec, task, engine
        self._folder, self._phase, self._seed = folder, phase, seed
        self._state = PartialState()

    def sample(self, update: int, questions: Sequence[Question], version: str) -> float:
        """Sample and prepare this process's share of an update's groups; return the seconds of sampling.

        Rollouts of a killed process are reused if they have the same weights, and set aside otherwise.

        Args:
            questions: the update's questions, followed by replacements for groups without a training signal.
        """
        path, prepared = self._paths(update, self._state.process_index)
        self._set_aside_unless(path, version)
        agent = self._task.make_agent(self._engine.tokenizer, version, f"{self._phase}-{update:04d}")
        asked: list[Question] = []
        with RolloutSampler(
            path, agent, self._engine, self._task.live,
            searching=self._task.searching,
        ) as phase:  # fmt: skip
            for mine in self._rounds(questions, self._state.process_index, phase.done):
                asked += mine
                for wave in range(1 + self._spec.resamples):
                    missing = [
                        partial(phase.attempt, question, number)
                        for question in mine
                        for number in self._missing(phase.done.get(question.id, {}), wave)
                    ]
                    if missing:
                        phase.play(missing, f"update {update}: sampling")
        if self._task.credit.prepares:
            prepare_groups(
                prepared, self._prepared_waves([phase.done[question.id] for question in asked]), self._task.credit,
                CreditProbe(self._engine, f"{self._seed} {self._phase}-{update:04d}", self._task.search),
                live=max(1, self._task.live // self._spec.group), description=f"update {update}: preparing",
            )  # fmt: skip
        return phase.seconds

    def whole(self, update: int, questions: Sequence[Question]) -> bool:
        """Return True if this process's share is already sampled and prepared, with one policy's weights."""
        path, prepared = self._paths(update, self._state.process_index)
        if not path.exists():
            return False
        done = _by_question(read_log(path, Rollout))
        versions = {rollout.weights for attempts in done.values() for rollout in attempts.values()}
        if len(versions) != 1:
            return False
        asked: list[Question] = []
        for mine in self._rounds(questions, self._state.process_index, done):
            asked += mine
            if any(
                self._missing(done.get(question.id, {}), wave)
                for question in mine
                for wave in range(1 + self._spec.resamples)
            ):
                return False
        groups = self._prepared_waves([done[question.id] for question in asked])
        return not self._task.credit.prepares or len(read_prepared(prepared, groups)) == len(groups)

    def gather(self, update: int, questions: Sequence[Question]) -> list[Group]:
        """Return the groups of all processes in the order of the questions; call it after all have sampled."""
        wait_for_all()
        done: dict[str, Attempts] = {}
        paths = [self._paths(update, process) for process in range(self._state.num_processes)]
        for path, _ in paths:
            if not path.exists():
                raise UserError(f"{path}: written by another process, but not visible here; use a shared directory")
            done |= _by_question(read_log(path, Rollout))
        asked = {
            question.id
            for process in range(self._state.num_processes)
            for mine in self._rounds(questions, process, done)
            for question in mine
        }
        attempts = {question.id: done[question.id] for question in questions if question.id in asked}
        found: dict[str, PreparedGroup] = {}
        if self._task.credit.prepares:
            waves = self._prepared_waves(list(attempts.values()))
            for _, prepared in paths:
                found |= read_prepared(prepared, waves)
        return [Group(self._waves(own), found.get(id), self._is_replaced(own)) for id, own in attempts.items()]

    def record_credit(self, update: int, credits: Sequence[RolloutCredit]) -> None:
        """Write the credit of an update's turns; the main process does it for all processes."""
        if self._state.is_main_process:
            path = credit_file(self._paths(update, 0)[0])
            path.parent.mkdir(exist_ok=True)
            write_log(path, RolloutCredit, credits)

    def _rounds(
        self, questions: Sequence[Question], process: int, done: Mapping[str, Attempts]
    ) -> Iterator[Sequence[Question]]:
        """Yield a process's questions in rounds; a round is finished before the next is requested.

        The first round is its share of the update's questions; a further round has a question for each replaced group,
        while replacements are left.
        """
        size, process_count = self._spec.questions, self._state.num_processes
        asked, rest = questions[:size][process::process_count], questions[size:][process::process_count]
        while asked:
            yield asked
            missing = sum(self._is_replaced(done[question.id]) for question in asked)
            asked, rest = rest[:missing], rest[missing:]

    def _is_replaced(self, attempts: Attempts) -> bool:
        return self._spec.refills > 0 and self._task.credit.repeats(self._waves(attempts)[-1])

    def _prepared_waves(self, groups: Sequence[Attempts]) -> list[tuple[Rollout, ...]]:
        """Return the last waves of the groups that are not replaced."""
        return [self._waves(attempts)[-1] for attempts in groups if not self._is_replaced(attempts)]

    def _paths(self, update: int, process: int) -> tuple[Path, Path]:
        """Return a process's files of sampled rollouts and of prepared groups."""
        infix = f".rank{process}" if self._state.num_processes > 1 else ""
        name = f"{update:04d}{infix}.jsonl"
        return self._folder / name, self._folder / PhaseDir.prepared / name

    def _numbers(self, wave: int) -> range:
        return range(wave * self._spec.group, (wave + 1) * self._spec.group)

    def _missing(self, attempts: Attempts, wave: int) -> list[int]:
        """Return the missing attempts of a wave; none if a previous wave need not be repeated.

        All previous waves must be complete.
        """
        if not all(self._task.credit.repeats(self._wave(attempts, before)) for before in range(wave)):
            return []
        return [number for number in self._numbers(wave) if number not in attempts]

    def _wave(self, attempts: Attempts, wave: int) -> tuple[Rollout, ...]:
        return tuple(attempts[number] for number in self._numbers(wave))

    def _waves(self, attempts: Attempts) -> tuple[tuple[Rollout, ...], ...]:
        waves = [self._wave(attempts, 0)]
        while len(waves) <= self._spec.resamples and self._task.credit.repeats(waves[-1]):
            waves.append(self._wave(attempts, len(waves)))
        return tuple(waves)

    def _set_aside_unless(self, path: Path, version: str) -> None:
        if not path.exists():
            return
        others = {rollout.weights for rollout in read_log(path, Rollout)} - {version}
        if not others:
            return
        aside = rename_stale(path)
        path.with_suffix(".seconds.json").unlink(missing_ok=True)
        logger.warning(
            "%s: sampled with other weights (%s, now %s) before the run was stopped; set aside as %s and sampled again",
            path, ", ".join(sorted(name[:12] for name in others)), version[:12], aside,
        )  # fmt: skip


def _by_question(rollouts: Iterable[Rollout]) -> dict[str, Attempts]:
    done: dict[str, Attempts] = {}
    for rollout in rollouts:
        done.setdefault(rollout.question.id, {})[rollout.attempt] = rollout
    return done
