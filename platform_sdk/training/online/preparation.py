"""Groups of an update as their credit prepared them: each one line of a file, and never made twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tqdm import tqdm

from platform_sdk.errors import UserError
from platform_sdk.record_files import AppendLog, read_log
from platform_sdk.records import Record, Rollout
from platform_sdk.sampling.engine import PromptTooLong
from platform_sdk.sampling.rollout import Agent, Call, Gather, Generate, run
from platform_sdk.training.credit import Credit, CreditProbe

T = TypeVar("T")


class PreparedGroup(Record):
    """A prepared group, and what preparing it cost: requests to the engine, their tokens (sampled or scored), and
    seconds since the group before was done."""

    KIND: ClassVar[str] = "prepared_group"
    question: str
    rollouts: tuple[Rollout, ...]
    requests: int
    tokens: int
    seconds: float = 0.0


def prepare_groups(
    path: Path, groups: Sequence[Sequence[Rollout]], credit: Credit, probe: CreditProbe, *, live: int,
    description: str,
) -> None:  # fmt: skip
    """Have ``credit`` prepare the groups that ``path`` lacks, ``live`` at a time, and append each as it is done.

    Raises:
        UserError: the credit changed something that was sampled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with AppendLog(path, PreparedGroup) as log:
        done = _of(groups, log.records)
        starts = [partial(_prepared, credit, probe, group) for group in groups if group[0].question.id not in done]
        before = time.monotonic()
        with tqdm(total=len(starts), desc=description, unit="group", disable=not starts) as bar:
            for record in run(starts, probe.engine, live=live):
                now = time.monotonic()
                log.append(record.model_copy(update={"seconds": round(now - before, 3)}))
                before = now
                bar.update()


def read_prepared(path: Path, groups: Sequence[Sequence[Rollout]]) -> dict[str, PreparedGroup]:
    """Return what ``path`` holds of these groups, by question id; none if there is no such file."""
    return _of(groups, read_log(path, PreparedGroup))


def _of(groups: Sequence[Sequence[Rollout]], records: Sequence[PreparedGroup]) -> dict[str, PreparedGroup]:
    """Return the records of these very groups: those of groups that other weights sampled are passed over."""
    sampled = {group[0].question.id: _sampled(group) for group in groups}
    return {record.question: record for record in records if sampled.get(record.question) == _sampled(record.rollouts)}


@dataclass
class _Cost:
    requests: int = 0
    tokens: int = 0


def _prepared(credit: Credit, probe: CreditProbe, group: Sequence[Rollout]) -> Agent[PreparedGroup]:
    cost = _Cost()
    rollouts = yield from _counted(credit.prepare(group, probe), probe, cost)
    if _sampled(rollouts) != _sampled(group):
        raise UserError(
            f"{type(credit).__name__}.prepare changed what was sampled at question {group[0].question.id}; it may only "
            "add rewards and trajectories for scoring (use: scoring)"
        )
    question = group[0].question.id
    return PreparedGroup(question=question, rollouts=tuple(rollouts), requests=cost.requests, tokens=cost.tokens)


def _sampled(group: Sequence[Rollout]) -> list[tuple[Any, ...]]:
    """Return what a credit must leave as it is."""
    return [
        (rollout.id, rollout.weights, *((t.id, t.token_ids, t.agent_mask, t.logprobs) for t in rollout.trajectories))
        for rollout in group
    ]


def _counted(agent: Agent[T], probe: CreditProbe, cost: _Cost) -> Agent[T]:
    """Run an agent, counting what it, and the agents that it runs, ask the engine for."""
    answer: Any = None
    while True:
        try:
            need = agent.throw(answer) if isinstance(answer, PromptTooLong) else agent.send(answer)
        except StopIteration as stop:
            returned: T = stop.value
            return returned
        if isinstance(need, Gather):
            need = Gather(tuple(_counted(each, probe, cost) for each in need.agents))
        try:
            answer = yield need
        except PromptTooLong as error:
            answer = error
            continue
        if isinstance(need, Generate):
            cost.requests, cost.tokens = cost.requests + 1, cost.tokens + len(answer.token_ids)
        elif isinstance(need, Call) and need.function == probe.scores:
            cost.requests, cost.tokens = cost.requests + 1, cost.tokens + sum(map(len, answer))
