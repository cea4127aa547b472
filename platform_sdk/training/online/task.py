"""Task of an online run: the questions, the agent that tries them, and what it searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.records import Question
from platform_sdk.sampling.rollout import SearchFunction
from platform_sdk.sampling.sampler import RolloutAgent
from platform_sdk.training.credit import Credit


@dataclass(frozen=True)
class OnlineTask:
    """A method's side of the online loop.

    Attributes:
        questions: to be learned from, in any order.
        search: the retriever's ``search``.
        make_agent: the agent of an update, from the tokenizer, the digest of the weights that its rollouts are
            sampled with, and a name that is the update's own: what the agent draws must depend on it.
        live: rollouts at a time, in each process.
        credit: what the tokens of a group's rollouts are worth, and which groups are sampled again.
    """

    questions: Sequence[Question]
    search: SearchFunction
    make_agent: Callable[[Any, str, str], RolloutAgent]
    live: int
    credit: Credit
