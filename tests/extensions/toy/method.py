"""The toy: an agent that searches with whatever it says, turn by turn; its last turn is the answer.

Each turn is credited by itself: by the share of the gold passages that its search found, and by how much likelier the
gold answer became by it, which the engine is asked after sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.agents.speaker import Decoding, Policy, Speaker
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.methods.method import (
    Method,
    Resources,
    RunContext,
    Sampling,
    SamplingOutcome,
    SamplingStep,
    SelectionOutcome,
    open_search,
)
from platform_sdk.methods.selection import open_phase
from platform_sdk.records import Evidence, Question, Rollout, Trajectory
from platform_sdk.sampling.rollout import Agent, Gather, SearchFunction, SearchRequest, look_up
from platform_sdk.sampling.seeds import seed_of
from platform_sdk.training.advantages import group_advantages, varied
from platform_sdk.training.credit import Advantages, Credit, CreditProbe, TrajectoryKey


class ToySettings(BaseModel):
    """The toy's limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns: int = Field(2, ge=1, le=9, description="searches before the answer")
    max_tokens: int = Field(12, ge=1, le=100, description="of a turn")
    top_k: int = Field(2, ge=1, le=10, description="passages shown after a search")


@dataclass(frozen=True)
class ToyAgent:
    """Says something, is shown what that finds, and in the end says its answer."""

    run: RunContext[ToySettings]
    policy: Policy
    decoding: Decoding
    seed_name: str
    search: SearchFunction

    @property
    def weights(self) -> str:
        return self.policy.weights

    @property
    def corpus(self) -> str:
        return self.run.searched_digest

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        seed = seed_of(self.run.seed, self.seed_name, question.id, attempt)
        name, limits = f"{question.id}#{attempt}", self.run.agent
        speaker = Speaker(self.policy.tokenizer, self.decoding, name, seed, limits.max_tokens)
        dialogue = speaker.dialogue("Search, then answer .", f"Question : {question.text}")
        answer = None
        for turn in range(limits.turns + 1):
            reply = yield from speaker.reply(dialogue, turn, thread="")
            if reply is None:
                break
            if turn == limits.turns:
                answer = reply.text.strip() or None
                break
            found: list[list[Evidence]] = yield look_up(self.search, [SearchRequest(reply.text)], limits.top_k)
            dialogue.note_asked([reply.text])
            dialogue.note_rewards({"found": share_of_gold(question, found[0])})
            dialogue.tell("\n".join(item.text for item in found[0]) or "nothing", found[0])
        rollout = Rollout(
            question=question, attempt=attempt, seed=seed, outcome="context_limit" if answer is None else "answered",
            main=dialogue.trajectory("searcher", "searcher", answer=answer), weights=self.weights, corpus=self.corpus,
        )  # fmt: skip
        return rollout.model_copy(update={"rewards": toy_rewards(rollout)})


def share_of_gold(question: Question, found: Sequence[Evidence]) -> float:
    gold = set(question.gold_passages)
    return len(gold & {item.title for item in found}) / len(gold) if gold else 0.0


def toy_rewards(rollout: Rollout) -> dict[str, float]:
    question, answer = rollout.question, rollout.main.answer
    searched = [turn.rewards["found"] for turn in rollout.main.turns if "found" in turn.rewards]
    values = {
        "em": exact_match(answer, question.answers, question.dataset),  # type: ignore[arg-type]
        "f1": f1_score(answer, question.answers, question.dataset).f1,  # type: ignore[arg-type]
        "found": max(searched, default=0.0),
    }
    return values | {"reward": values["f1"] + values["found"]}


@dataclass(frozen=True)
class TurnCredit(Credit):
    """Every turn's advantage is that of its own worth among the turns at the same place."""

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        gold = probe.tokenizer(group[0].question.answers[0], add_special_tokens=False)["input_ids"]
        # The likelihood of the gold answer at the beginning and after each of the agent's turns.
        asked = [(rollout, place) for rollout in group for place in self._places(rollout)]
        scores: list[tuple[float, ...]] = yield Gather(
            tuple(probe.score(rollout.main.token_ids[:place], gold) for rollout, place in asked)
        )
        means = iter([sum(score) / len(score) for score in scores])
        return [self._with_progress(rollout, [next(means) for _ in self._places(rollout)], gold) for rollout in group]

    def _places(self, rollout: Rollout) -> list[int]:
        turns = [turn for turn in rollout.main.turns if turn.speaker == "agent"]
        return [turns[0].start, *(turn.end for turn in turns)]

    def _with_progress(self, rollout: Rollout, means: Sequence[float], gold: Sequence[int]) -> Rollout:
        gains = iter([after - before for before, after in pairwise(means)])
        turns = tuple(
            turn.model_copy(update={"rewards": {**turn.rewards, "progress": next(gains)}})
            if turn.speaker == "agent"
            else turn
            for turn in rollout.main.turns
        )
        # Kept for the audit; what it says nobody sampled, and it is never trained on.
        scored = Trajectory(
            role="probe", id="probe", token_ids=tuple(gold), agent_mask=(1,) * len(gold), logprobs=(0.0,) * len(gold),
            turns=(), use="scoring",
        )  # fmt: skip
        main = rollout.main.model_copy(update={"turns": turns})
        return rollout.model_copy(update={"main": main, "others": (*rollout.others, scored)})

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        worths = [self._worth(rollout) for rollout in group]
        at = [
            iter(group_advantages([worth[place] for worth in worths if len(worth) > place]))
            for place in range(max(map(len, worths)))
        ]
        return {TrajectoryKey(rollout.id, rollout.main.id): self._spread(rollout, at) for rollout in group}

    def _spread(self, rollout: Rollout, at: Sequence[Iterator[float]]) -> list[float]:
        values = [0.0] * len(rollout.main.token_ids)
        turns = [turn for turn in rollout.main.turns if turn.speaker == "agent"]
        for turn, advantages in zip(turns, at, strict=False):
            values[turn.start : turn.end] = [next(advantages)] * (turn.end - turn.start)
        return values

    def _worth(self, rollout: Rollout) -> list[float]:
        """Return what each turn of the agent is worth; before the group is prepared its progress is 0."""
        turns = [turn.rewards for turn in rollout.main.turns if turn.speaker == "agent"]
        return [rewards.get("found", rollout.rewards["f1"]) + rewards.get("progress", 0.0) for rewards in turns]

    def informative(self, group: Sequence[Rollout]) -> bool:
        return any(varied(list(worth)) for worth in zip(*map(self._worth, group), strict=False))


class BestSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: int = Field(2, ge=1, le=9)


class BestCarry(BaseModel):
    """The best reward so far."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    best: float = 0.0


class Best(SamplingStep[ToySettings, BestSettings, BestCarry]):
    """Some attempts at every question; the best of each is learned from."""

    settings = BestSettings
    carry = BestCarry

    def sample(self, round: Sampling[ToySettings, BestSettings, BestCarry]) -> SamplingOutcome[BestCarry]:
        questions = round.run.questions("train")
        with open_phase(round, ToyAgent) as phase:
            for number in range(round.settings.attempts):
                phase.once(questions, number, f"attempt {number}")
            rollouts = phase.ordered(questions)
        best = max(rollout.rewards["reward"] for rollout in rollouts)
        carry = BestCarry(best=max(best, round.carry.best))
        return SamplingOutcome(rollouts, [question.id for question in questions], carry, seconds=phase.seconds)

    def select(
        self, settings: BestSettings, carry: BestCarry, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        best: dict[str, Rollout] = {}
        for rollout in candidates:
            kept = best.setdefault(rollout.question.id, rollout)
            if rollout.rewards["reward"] > kept.rewards["reward"]:
                best[rollout.question.id] = rollout
        return SelectionOutcome(list(best.values()), {"best_reward": carry.best})


class Toy(Method[ToySettings, EvaluationSpec, Resources]):
    """A searcher that learns turn by turn."""

    name = "toy"
    agent_settings = ToySettings
    evaluation_settings = EvaluationSpec
    roles = ("searcher",)
    steps: ClassVar = {"best": Best()}
    shown_metrics = ("f1", "found")

    @contextmanager
    def resources(self, run: RunContext[ToySettings]) -> Iterator[Resources]:
        with open_search(run) as search:
            yield Resources(search)

    def agent(
        self,
        run: RunContext[ToySettings],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSpec | None = None,
    ) -> ToyAgent:
        decoding = run.decoding if evaluation is None else Decoding(evaluation.temperature, evaluation.top_p)
        return ToyAgent(run, policy, decoding, seed_name, resources.search)

    def rewards(self, run: RunContext[ToySettings], rollout: Rollout) -> Mapping[str, float]:
        return toy_rewards(rollout)

    def measure(
        self, run: RunContext[ToySettings], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [{name: rollout.rewards[name] for name in ("em", "f1", "found")} for rollout in rollouts]

    def credit(self, run: RunContext[ToySettings], online: OnlineSpec) -> Credit:
        return TurnCredit()


METHOD = Toy()
