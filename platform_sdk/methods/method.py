"""Interface of a method: the one thing that everything which runs a method knows of it.

A room exports ``METHOD`` from its module ``method``. Components, processes and the command line find it by name with
``load_method``, the only import of a method by string, and know nothing else of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.code import import_definition
from platform_sdk.config.credit import InformationGainSpec, no_information_gain
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import PLACING, EvaluationSpec, SamplingSpec
from platform_sdk.config.source import suggestion
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.methods.context import Context
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.pairs import models_of
from platform_sdk.sampling.rollout import SearchFunction
from platform_sdk.sampling.sampler import RolloutAgent
from platform_sdk.tracking.assessments import RewardSources
from platform_sdk.tracking.outcomes import digest_of
from platform_sdk.training.credit import Credit, GroupAdvantage
from platform_sdk.training.information_gain import InformationGain

A = TypeVar("A", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)
E = TypeVar("E", bound=EvaluationSpec)
C = TypeVar("C", bound=BaseModel)
Res = TypeVar("Res", bound="Resources")
Part = Literal["train", "eval"]


@dataclass(frozen=True)
class RunContext(Generic[A]):
    """``Context`` with the method's own settings validated."""

    run_dir: Path
    environment: str
    agent: A
    sampling: SamplingSpec
    retrieval: RetrievalSpec
    searched_digest: str
    seed: int

    def inputs_digest(self, *parts: Any) -> str:
        """Digest everything that affects a step's result; excludes the run's path and where and how it samples."""
        sampling = self.sampling.model_dump(mode="json", exclude={"engine": set(PLACING)})
        shared = {name: value for name, value in vars(self).items() if name != "run_dir"} | {"sampling": sampling}
        shared["corpus_digest"] = shared.pop("searched_digest")  # its name in the digests of earlier versions
        return digest_of(shared, *parts)

    def questions(self, part: Part) -> list[Question]:
        """Read the questions of the run's corpus.

        Raises:
            UserError: there are none.
        """
        path = self.run_dir / "corpus" / f"questions.{part}.jsonl"
        questions = list(read_jsonl(path, Question))
        if not questions:
            raise UserError(f"{path}: there are no questions for {part}; see dataset in the recipe")
        return questions

    @property
    def decoding(self) -> Decoding:
        """The distribution that rollouts are sampled from."""
        return Decoding(self.sampling.temperature, self.sampling.top_p, self.sampling.top_k)


@dataclass(frozen=True)
class Resources:
    """Resources that a process opens once to run agents; a method adds whatever else its agents ask."""

    search: SearchFunction


class NoCarry(Struct):
    """Carry of a step that hands nothing to its next round."""


@dataclass(frozen=True)
class Sampling(Generic[A, S, C]):
    """A round of a sampling step with everything it is given."""

    run: RunContext[A]
    phase: str
    iteration: int
    model: str
    settings: S
    carry: C

    @property
    def folder(self) -> Path:
        return self.run.run_dir / self.phase


@dataclass(frozen=True)
class SamplingOutcome(Generic[C]):
    """Outcome of sampling a round.

    Attributes:
        rollouts: of the phase's file, ordered by question and attempt.
        order: the questions' ids in the order in which they were taken up.
        carry: for the next round.
        candidates: what is learned from, where that is not the rollouts as they were sampled.
        figures: of the round, for its report.
        seconds: wall time spent sampling.
    """

    rollouts: Sequence[Rollout]
    order: Sequence[str]
    carry: C
    candidates: Sequence[Rollout] | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class SelectionOutcome:
    """Rollouts of a round that are learned from, and figures about the choice."""

    rollouts: Sequence[Rollout]
    figures: Mapping[str, Any] = field(default_factory=dict)


class SamplingStep(ABC, Generic[A, S, C]):
    """A step of a method's own that samples or writes rollouts, and the choice of what is learned from them.

    ``settings`` is the recipe's struct that it is given; ``carry`` what one round of it hands to the next.
    """

    settings: type[S]
    carry: type[C]

    def asks_model(self, run: RunContext[A]) -> bool:
        """Return False if the step runs where it is called, since it needs the policy's tokenizer alone."""
        return True

    @abstractmethod
    def sample(self, round: Sampling[A, S, C]) -> SamplingOutcome[C]:
        """Sample a round; a killed round resumes and samples no attempt twice.

        Raises:
            UserError: the settings do not fit the agent, the model or the data.
        """

    def select(
        self, settings: S, carry: C, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        """Choose what is learned from ``candidates`` (the rollouts, unless ``sample`` gave others); by default all.

        Args:
            carry: what the round handed on.
        """
        return SelectionOutcome(candidates)


class Method(ABC, Generic[A, E, Res]):
    """A method: its agent, what its rollouts are worth, and the steps that are its own."""

    name: ClassVar[str]
    agent_settings: type[A]
    evaluation_settings: type[E]
    sampling_settings: type[SamplingSpec] = SamplingSpec
    roles: ClassVar[tuple[str, ...]] = ("agent",)
    searches: ClassVar[bool] = True
    steps: ClassVar[Mapping[str, SamplingStep[Any, Any, Any]]] = {}
    shown_metrics: ClassVar[tuple[str, ...]] = ("em", "f1")
    answer_opening: ClassVar[str | None] = None
    """The text with which an agent of several turns begins an answer, for credit by information gain."""

    def context(self, given: Context) -> RunContext[A]:
        """Return the run's context from a recipe's plain structs, validated and checked (see ``check``)."""
        run = self.unchecked_context(given)
        self.check(run)
        return run

    def unchecked_context(self, given: Context) -> RunContext[A]:
        """Return the run's context from a recipe's plain structs, validated; the run directory may not exist."""
        return RunContext(
            given.run_dir,
            given.environment,
            self.agent_settings.model_validate(given.agent),
            self.sampling_settings.model_validate(given.sampling),
            RetrievalSpec.model_validate(given.retrieval),
            given.searched_digest,
            given.seed,
        )

    def check(self, run: RunContext[A]) -> None:
        """Raise a UserError where the environment, the settings or the data do not fit the method."""

    def check_policy(self, run: RunContext[A], model: str) -> None:
        """Raise a UserError where a pair of models does not fit the agent's roles."""
        if missing := models_of(model).keys() - set(self.roles):
            raise UserError(
                f"{self.name}'s agent is one model and has no {' or '.join(sorted(missing))}; leave worker_model out"
            )

    def questions(self, run: RunContext[A], part: Part) -> list[Question]:
        """Read the questions that are learned from or evaluated.

        Raises:
            UserError: there are none, or one lacks what the method needs.
        """
        return run.questions(part)

    def single_process_reason(self, retrieval: RetrievalSpec) -> str | None:
        """Return why only one process can do the run's sampling, or None."""
        return retrieval.single_process_reason if self.searches else None

    @contextmanager
    def resources(self, run: RunContext[A]) -> Iterator[Res]:
        """Open what the agents ask, once per process: by default the search of the run's environment."""
        with open_search(run) as search:
            opened: Any = Resources(search)  # a method with resources of its own opens them itself
            yield opened

    @abstractmethod
    def agent(
        self, run: RunContext[A], policy: Policy, seed_name: str, resources: Res, evaluation: E | None = None
    ) -> RolloutAgent:
        """Return the run's agent, sampling as it trains, or as it is evaluated.

        Args:
            seed_name: names what is sampled for: what the agent draws must depend on it.
        """

    @abstractmethod
    def rewards(self, run: RunContext[A], rollout: Rollout) -> Mapping[str, float] | None:
        """Compute a rollout's named rewards from what it records; None where an expert must be asked."""

    def rescore(self, run: RunContext[A], rollouts: Sequence[Rollout], resources: Res) -> list[Mapping[str, float]]:
        """Compute all rewards of rollouts again, asking whom the agent asked."""
        found = [self.rewards(run, rollout) for rollout in rollouts]
        return [rewards for rewards in found if rewards is not None]

    def reward_sources(self, run: RunContext[A]) -> RewardSources:
        """Return the sources of the rewards, as MLflow shows them; by default the method's code."""
        return RewardSources(method=self.name)

    @abstractmethod
    def measure(self, run: RunContext[A], rollouts: Sequence[Rollout], evaluation: E) -> Sequence[Mapping[str, float]]:
        """Return the metrics of each rollout of an evaluation."""

    def score_responses(self, agent: A, gold: Path, responses: Path) -> list[dict[str, str | float]]:
        """Compute the rewards of responses that were made elsewhere, one by one.

        Args:
            gold: an official question file.
            responses: JSONL of ``id`` and ``response``.

        Raises:
            UserError: a file is malformed, or a single response is not what the method rewards.
        """
        raise UserError(f"method {self.name} has no rewards for single responses")

    def credit(self, run: RunContext[A], online: OnlineSpec) -> Credit:
        """Return how an online run's rollouts are credited, by default as ``online.credit`` says.

        Raises:
            UserError: the method's agent does not have what the credit needs.
        """
        if isinstance(online.credit, InformationGainSpec):
            if self.answer_opening is None:
                raise UserError(f"online.credit.type {no_information_gain(self.name)}")
            return InformationGain(online.credit, online.reward, self.answer_opening)
        if online.credit.others == "own" and type(self).called_reward is Method.called_reward:
            raise UserError(
                f"method {self.name} has no rewards for called trajectories; set online.credit.others to shared or none"
            )
        return GroupAdvantage(online.reward, online.credit, partial(self.called_reward, run))

    def called_reward(self, run: RunContext[A], rollout: Rollout, trajectory: Trajectory) -> float | None:
        """Return what a trajectory that the main one called is worth by itself; None where nothing can be said."""
        return None


AnyMethod = Method[Any, Any, Any]


def load_method(name: str) -> AnyMethod:
    """Return the method of a pipeline: a shipped one by its name, another by its module's dotted name.

    Raises:
        UserError: there is no such method, or its module has no ``METHOD``.
    """
    module = name if "." in name else f"{__package__}.{name}.method"
    shipped = [path.parent.name for path in Path(__file__).parent.glob("*/method.py")]
    if "." not in name and name not in shipped:
        raise UserError(f"method {name}: there is no such method; {suggestion(name, shipped)}")
    found = import_definition(f"{module}:METHOD")
    if not isinstance(found, Method):
        raise UserError(
            f"method {name}: METHOD of {module} is of type {type(found).__name__}; make it an instance of a subclass "
            f"of {__name__}.Method"
        )
    return found


@contextmanager
def open_search(run: RunContext[Any]) -> Iterator[SearchFunction]:
    """Open the search of the run's environment.

    Raises:
        UserError: the index is of another corpus than the run's.
    """
    from platform_sdk.retrieval.environments import build_retriever

    with build_retriever(run.environment, run.run_dir, run.retrieval) as retriever:
        if retriever.corpus_digest != run.searched_digest:
            raise UserError(
                f"{run.run_dir}: the retriever searches corpus {retriever.corpus_digest[:12]}…, but this run's is "
                f"{run.searched_digest[:12]}…; build the index again"
            )
        yield retriever.search
