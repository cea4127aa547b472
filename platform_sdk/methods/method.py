"""Interface of a method: everything that steps, processes and commands use of it.

A method's package exports ``METHOD`` from its module ``method``. ``load_method`` finds it by name and is the only
import of a method by string.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.code import import_definition
from platform_sdk.config.credit import InformationGainSpec, no_called_rewards, no_information_gain
from platform_sdk.config.document import field_path, readable
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.retrieval import RetrievalSpec, Searched
from platform_sdk.config.sampling import PLACING, EvaluationSpec, SamplingSpec
from platform_sdk.config.source import Fault, suggestion
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.methods.context import Context
from platform_sdk.processes.launch import ProgramImage
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.run_dir import RunDir
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
        shared["corpus_digest"] = shared.pop("searched_digest")  # the field's name in older digests
        return digest_of(shared, *parts)

    def questions(self, part: Part) -> list[Question]:
        """Read the questions of the run's corpus.

        Raises:
            UserError: there are none.
        """
        path = RunDir(self.run_dir).questions(part)
        questions = list(read_jsonl(path, Question))
        if not questions:
            raise UserError(f"{path}: there are no questions for {part}; see dataset in the recipe")
        return questions

    @property
    def decoding(self) -> Decoding:
        """Return the settings of the distribution that rollouts are sampled from."""
        return Decoding(self.sampling.temperature, self.sampling.top_p, self.sampling.top_k)

    def decoding_of(self, evaluation: EvaluationSpec | None) -> Decoding:
        """Return the settings of the distribution of an evaluation's answers; None for rollouts."""
        return self.decoding if evaluation is None else Decoding(evaluation.temperature, evaluation.top_p)


@dataclass(frozen=True)
class Resources:
    """Resources that a process opens once to run agents; a method extends it with its own resources."""

    search: SearchFunction


class NoCarry(Struct):
    """Carry of a step whose rounds are independent."""


@dataclass(frozen=True)
class Sampling(Generic[A, S, C]):
    """Input of one round of a sampling step."""

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
        rollouts: the phase's rollouts, ordered by question and attempt.
        order: ids of the questions in sampling order.
        carry: input of the next round.
        candidates: the rollouts to choose training data from, if they differ from the sampled rollouts.
        figures: statistics of the round for its report.
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
    """Training rollouts of a round, and statistics of their selection."""

    rollouts: Sequence[Rollout]
    figures: Mapping[str, Any] = field(default_factory=dict)


class SamplingStep(ABC, Generic[A, S, C]):
    """A method's own step that samples or writes rollouts, and the selection of training data from them.

    ``settings`` is the type of its struct in the recipe, ``carry`` the type of the state passed between rounds.
    """

    settings: type[S]
    carry: type[C]

    def asks_model(self, run: RunContext[A], settings: S) -> bool:
        """Return False if the step only needs the policy's tokenizer and therefore runs in the calling process."""
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
        """Select training data from ``candidates`` (by default the rollouts); the default selects all.

        Args:
            carry: the round's carry.
        """
        return SelectionOutcome(candidates)


class Method(ABC, Generic[A, E, Res]):
    """A method: its agent, its rewards, and its own steps."""

    name: ClassVar[str]
    agent_settings: type[A]
    evaluation_settings: type[E]
    sampling_settings: type[SamplingSpec] = SamplingSpec
    roles: ClassVar[tuple[str, ...]] = ("agent",)
    searches: ClassVar[bool] = True
    steps: ClassVar[Mapping[str, SamplingStep[Any, Any, Any]]] = {}
    shown_metrics: ClassVar[tuple[str, ...]] = ("em", "f1")
    answer_opening: ClassVar[str | None] = None
    """Opening of a multi-turn agent's answer, for credit by information gain."""

    def context(self, given: Context) -> RunContext[A]:
        """Return the run's context from a recipe's plain structs, validated and checked.

        Raises:
            UserError: the agent's settings do not fit the environment or the retrieval method (their ``misfit``, which
                ``validate`` calls too), or see ``check``.
        """
        run = self.unchecked_context(given)
        if rule := getattr(run.agent, "misfit", None):
            from platform_sdk.retrieval.index import method_of

            retrieval = method_of(run.environment, run.retrieval) if self.searches else None
            searched = Searched(retrieval.name, retrieval.scope) if retrieval else Searched("none")
            if fault := rule(run.environment, searched):
                raise UserError(str(fault))
        self.check(run)
        return run

    def unchecked_context(self, given: Context) -> RunContext[A]:
        """Return the run's context from a recipe's plain structs, validated; the run directory may not exist.

        Raises:
            UserError: the settings are invalid here, e.g. because a module that they name is not on the Python path.
        """
        return RunContext(
            given.run_dir,
            given.environment,
            _settings("agent", self.agent_settings, given.agent),
            _settings("sampling", self.sampling_settings, given.sampling),
            _settings("retrieval", RetrievalSpec, given.retrieval),
            given.searched_digest,
            given.seed,
        )

    def check(self, run: RunContext[A]) -> None:
        """Raise a UserError if the environment or the data do not fit the method."""

    def check_policy(self, run: RunContext[A], model: str) -> None:
        """Raise a UserError if a pair of models does not fit the agent's roles."""
        if missing := models_of(model).keys() - set(self.roles):
            raise UserError(
                f"{self.name}'s agent is one model and has no {' or '.join(sorted(missing))}; leave worker_model out"
            )

    def questions(self, run: RunContext[A], part: Part) -> list[Question]:
        """Read the questions for training or evaluation.

        Raises:
            UserError: there are no questions, or a question lacks a field that the method needs.
        """
        return run.questions(part)

    def single_process_reason(self, retrieval: RetrievalSpec) -> str | None:
        """Return why only one process can do the run's sampling, or None."""
        return retrieval.single_process_reason if self.searches else None

    def program_image(self, agent: Mapping[str, Any]) -> ProgramImage | None:
        """Return the image of a user's program that runs alongside the sampling processes on a cluster, or None.

        ``agent``: the recipe's settings of the agent.
        """
        return None

    @contextmanager
    def resources(self, run: RunContext[A]) -> Iterator[Res]:
        """Open the agents' resources once per process; by default the search of the run's environment."""
        with open_search(run) as search:
            opened: Any = Resources(search)  # a method with resources of its own opens them itself
            yield opened

    @abstractmethod
    def agent(
        self, run: RunContext[A], policy: Policy, seed_name: str, resources: Res, evaluation: E | None = None
    ) -> RolloutAgent:
        """Return the run's agent with its sampling settings for training or for evaluation.

        Args:
            seed_name: purpose of the sampling; all random draws of the agent depend on it.
        """

    @abstractmethod
    def rewards(self, run: RunContext[A], rollout: Rollout) -> Mapping[str, float]:
        """Compute a rollout's named rewards from its record; a judge's verdict is the recorded one."""

    def rescore(self, run: RunContext[A], rollouts: Sequence[Rollout], resources: Res) -> list[Mapping[str, float]]:
        """Compute all rewards of rollouts again, with the agent's judge if it has one."""
        return [self.rewards(run, rollout) for rollout in rollouts]

    def reward_sources(self, run: RunContext[A]) -> RewardSources:
        """Return the sources of the rewards for MLflow, by default the method's code, and ``agent.reward`` for own."""
        own = getattr(run.agent, "reward", None)  # not every agent has this setting
        return RewardSources(method=self.name, functions={"own": own} if own else {})

    @abstractmethod
    def measure(self, run: RunContext[A], rollouts: Sequence[Rollout], evaluation: E) -> Sequence[Mapping[str, float]]:
        """Return the metrics of each rollout of an evaluation."""

    def score_responses(self, agent: A, gold: Path, responses: Path) -> list[dict[str, str | float]]:
        """Compute the rewards of responses of another system, one by one.

        Args:
            gold: an official question file.
            responses: JSONL of ``id`` and ``response``.

        Raises:
            UserError: a file is malformed, or the method does not reward single responses.
        """
        raise UserError(f"method {self.name} has no rewards for single responses")

    def credit(self, run: RunContext[A], online: OnlineSpec) -> Credit:
        """Return the credit of an online run's rollouts, by default the one in ``online.credit``.

        Raises:
            UserError: the credit does not fit the method's agent.
        """
        if isinstance(online.credit, InformationGainSpec):
            opening = self.opening(run.agent)
            if opening is None:
                raise UserError(f"online.credit.type {no_information_gain(self.name)}")
            return InformationGain(online.credit, online.reward, opening)
        if online.credit.others == "own" and not self.rewards_called:
            raise UserError(f"online.credit.others {no_called_rewards(self.name)}")
        return GroupAdvantage(online.reward, online.credit, partial(self.called_reward, run))

    def opening(self, agent: A) -> str | None:
        """Return the text with which the agent begins an answer; None if it cannot be credited by information gain."""
        return self.answer_opening

    def stops(self, agent: A) -> tuple[str, ...]:
        """Return the strings that end a turn of the agent, in addition to end tokens."""
        return ()

    def turn_tokens(self, agent: A) -> int | None:
        """Return the maximum tokens of a turn if ``stops`` cannot give its stop strings; else None."""
        return None

    @property
    def rewards_called(self) -> bool:
        """Return True if the trajectories that the main one calls have separate rewards."""
        return type(self).called_reward is not Method.called_reward

    def called_reward(self, run: RunContext[A], rollout: Rollout, trajectory: Trajectory) -> float | None:
        """Return the own reward of a trajectory called by the main one; None if it has none."""
        return None


AnyMethod = Method[Any, Any, Any]


def load_method(name: str) -> AnyMethod:
    """Return the method of a pipeline: a shipped one by its name, another by its module's dotted name.

    Raises:
        UserError: there is no such method, its module has no ``METHOD``, or it lacks a required part.
    """
    module = name if "." in name else f"{__package__}.{name}.method"
    shipped = [path.parent.name for path in Path(__file__).parent.glob("*/method.py")]
    if "." not in name and name not in shipped:
        raise UserError(f"method {name}: there is no such method; {suggestion(name, shipped, module=True)}")
    found = import_definition(f"{module}:METHOD")
    if not isinstance(found, Method):
        raise UserError(
            f"method {name}: METHOD of {module} is of type {type(found).__name__}; make it an instance of a subclass "
            f"of {__name__}.Method"
        )
    if missing := [part for part in ("name", "agent_settings", "evaluation_settings") if not hasattr(found, part)]:
        raise UserError(f"method {name}: METHOD of {module} has no {', '.join(missing)}")
    return found


def _settings(name: str, kind: type[S], given: Mapping[str, Any]) -> S:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        path = field_path(first["loc"], given, first["type"])
        raise UserError(str(Fault((name, *path), readable(first["msg"])))) from error


@contextmanager
def open_search(run: RunContext[Any]) -> Iterator[SearchFunction]:
    """Open the search of the run's environment.

    Raises:
        UserError: the index belongs to another corpus.
    """
    from platform_sdk.retrieval.environments import build_retriever

    with build_retriever(run.environment, run.run_dir, run.retrieval) as retriever:
        if retriever.corpus_digest != run.searched_digest:
            raise UserError(
                f"{run.run_dir}: the retriever searches corpus {retriever.corpus_digest[:12]}…, but this run's is "
                f"{run.searched_digest[:12]}…; build the index again"
            )
        yield retriever.search
