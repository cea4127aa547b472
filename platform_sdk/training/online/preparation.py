"""Prepared groups of an update: one line of a file each, prepared only once."""

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
    """A prepared group, and the cost of its preparation: engine requests, tokens (sampled or scored), and seconds since
    the previous group was done."""

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
    """Prepare the groups missing from ``path``, ``live`` at a time, and append each to the file.

    Raises:
        UserError: the credit changed sampled data.
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
    """Return the prepared groups in ``path`` by question id; none if the file does not exist."""
    return _of(groups, read_log(path, PreparedGroup))


def _of(groups: Sequence[Sequence[Rollout]], records: Sequence[PreparedGroup]) -> dict[str, PreparedGroup]:
    """Return the records of these groups, without records of groups sampled with other weights."""
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
            "add rewards, and trajectories with use: scoring or branch"
        )
    question = group[0].question.id
    return PreparedGroup(question=question, rollouts=tuple(rollouts), requests=cost.requests, tokens=cost.tokens)


def _sampled(group: Sequence[Rollout]) -> list[tuple[Any, ...]]:
    """Return the sampled data, which a credit must not change."""
    return [
        (rollout.id, rollout.weights, *((t.id, t.token_ids, t.agent_mask, t.logprobs) for t in rollout.trajectories))
        for rollout in group
    ]


def _counted(agent: Agent[T], probe: CreditProbe, cost: _Cost) -> Agent[T]:
    """Run an agent, counting its engine requests and those of the agents that it runs."""
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
