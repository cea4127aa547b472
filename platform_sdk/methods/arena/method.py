"""ARENA as a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.judge import NO_VERDICT, JudgeSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.errors import UserError
from platform_sdk.files import read_object
from platform_sdk.methods.arena.agent import Generator, generator, questions_of
from platform_sdk.methods.arena.demonstrations import Demonstrations
from platform_sdk.methods.arena.measures import measures
from platform_sdk.methods.arena.rewards import judged, recorded_verdict, rewards
from platform_sdk.methods.arena.scoring import score_file
from platform_sdk.methods.arena.settings import AgentSpec, EvaluationSettings, SamplingSettings
from platform_sdk.methods.method import Method, Part, Resources, RunContext
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.rollout import no_search
from platform_sdk.tracking.assessments import RewardSources

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge


@dataclass(frozen=True)
class ArenaResources(Resources):
    """Resources of the agent; ``judge`` is the LLM judge used by the rewards, if the recipe has one."""

    judge: Judge | None


class Arena(Method[AgentSpec, EvaluationSettings, ArenaResources]):
    """A generator that names the given passages it used, trained online with adaptive rewards."""

    name = "arena"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSettings
    sampling_settings = SamplingSettings
    searches = False
    steps: ClassVar = {"demonstrations": Demonstrations()}
    shown_metrics = ("em", "f1", "judge", "format", "relevance")

    def check(self, run: RunContext[AgentSpec]) -> None:
        if run.retrieval != RetrievalSpec.model_validate({}):
            raise UserError("retrieval: ARENA searches nothing; leave it empty")
        found = read_object(RunDir(run.run_dir).corpus_digests).get("passages", "none")
        if found != run.searched_digest:
            raise UserError(
                f"{run.run_dir}/corpus: holds passages {found[:12]}…, but this run's are {run.searched_digest[:12]}…; "
                "run the step corpus again"
            )

    def questions(self, run: RunContext[AgentSpec], part: Part) -> list[Question]:
        return questions_of(run, part)

    def score_responses(self, agent: AgentSpec, gold: Path, responses: Path) -> list[dict[str, str | float]]:
        return score_file(agent, gold, responses)

    @contextmanager
    def resources(self, run: RunContext[AgentSpec]) -> Iterator[ArenaResources]:
        with _opened(run.agent.rewards.judge) as judge:
            yield ArenaResources(no_search, judge)

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: ArenaResources,
        evaluation: EvaluationSettings | None = None,
    ) -> Generator:
        return generator(run, policy, seed_name, resources.judge, evaluation)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout, run.agent, recorded_verdict(rollout))

    def rescore(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], resources: ArenaResources
    ) -> list[Mapping[str, float]]:
        if resources.judge is None:
            return super().rescore(run, rollouts, resources)
        return [rollout.rewards for rollout in judged(rollouts, run.agent, resources.judge)]

    def reward_sources(self, run: RunContext[AgentSpec]) -> RewardSources:
        settings = run.agent.rewards
        judge = settings.judge
        return RewardSources(
            method=self.name,
            judges={} if judge is None else dict.fromkeys(("accuracy", NO_VERDICT), judge.model),
            functions={name: extra.function for name, extra in settings.extra.items()},
        )

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSettings
    ) -> list[dict[str, float]]:
        return measures(run.agent, evaluation.judge, rollouts)


@contextmanager
def _opened(spec: JudgeSpec | None) -> Iterator[Judge | None]:
    if spec is None:
        yield None
        return
    from platform_sdk.evaluation.judge import Judge

    with Judge(spec) as judge:
        yield judge


METHOD = Arena()
