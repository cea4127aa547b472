"""What all steps of a run share: its settings, its questions, and the agent with what it searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import PLACING
from platform_sdk.recipes.mygo.agent import Mujica, form_of
from platform_sdk.recipes.mygo.settings import AgentSpec, SamplingSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.sampling.pairs import models_of
from platform_sdk.sampling.phase import Phase, open_phase
from platform_sdk.sampling.rollout import SearchFunction

MakeAgent = Callable[[Any, str, str], Mujica]
"""From the tokenizer, the digest of the weights, and the name of what is sampled for: the agent's seeds follow from
it."""


@dataclass(frozen=True)
class Setting:
    """What all sampling steps of a run share; the digests are those of the data that the run began with."""

    run_dir: Path
    environment: str
    agent: AgentSpec
    sampling: SamplingSpec
    retrieval: RetrievalSpec
    corpus_digest: str
    seed: int

    @property
    def inputs(self) -> dict[str, Any]:
        """What decides a step's outcome. Where the run lies does not, nor where and by how many it is sampled."""
        sampling = self.sampling.model_dump(mode="json", exclude={"engine": set(PLACING)})
        return {name: value for name, value in vars(self).items() if name != "run_dir"} | {"sampling": sampling}

    @property
    def alone(self) -> str | None:
        """Why only one process can do the run's sampling; None: several can."""
        if self.retrieval.url is not None or self.retrieval.backend == "server":
            return None
        return (
            "only one at a time can search an index of Milvus Lite: give retrieval.url (hopforge serve retriever) or "
            "retrieval.uri of a Milvus server, or take one process (sampling.engine.processes, online.processes; "
            "on a cluster job.nodes and job.resources.gpus)"
        )

    @classmethod
    def read(
        cls,
        run_dir: Path,
        environment: str,
        agent: Mapping[str, Any],
        sampling: Mapping[str, Any],
        retrieval: Mapping[str, Any],
        corpus_digest: str,
        seed: int,
    ) -> Self:
        """The setting from a recipe's plain structs, validated."""
        return cls(
            run_dir,
            environment,
            AgentSpec.model_validate(agent),
            SamplingSpec.model_validate(sampling),
            RetrievalSpec.model_validate(retrieval),
            corpus_digest,
            seed,
        )

    def questions(self, part: Literal["train", "eval"]) -> list[Question]:
        """The questions of the run's corpus.

        Raises:
            UserError: there are none.
        """
        questions = list(read_jsonl(self.run_dir / "corpus" / f"questions.{part}.jsonl", Question))
        if not questions:
            raise UserError(f"{self.run_dir}/corpus: there are no questions for {part}; see dataset in the recipe")
        return questions


def mujica_of(setting: Setting, distribution: SamplingSpec, *, demonstrate: bool = False) -> MakeAgent:
    """The run's agent, sampling from ``distribution``, with worked examples or without."""

    def make_agent(tokenizer: Any, weights: str, phase: str) -> Mujica:
        return Mujica(
            tokenizer=tokenizer,
            spec=setting.agent,
            form=form_of(setting.environment),
            demonstrate=demonstrate,
            temperature=distribution.temperature,
            top_p=distribution.top_p,
            top_k=distribution.top_k,
            weights=weights,
            corpus=setting.corpus_digest,
            seed=setting.seed,
            phase=phase,
        )

    return make_agent


@contextmanager
def open_search(setting: Setting) -> Iterator[SearchFunction]:
    """The search of the run's environment.

    Raises:
        UserError: the index is of another corpus than the run's.
    """
    from platform_sdk.retrieval.environments import build_retriever

    with build_retriever(setting.environment, setting.run_dir, setting.retrieval) as retriever:
        if retriever.corpus_digest != setting.corpus_digest:
            raise UserError(
                f"{setting.run_dir}: the retriever searches corpus {retriever.corpus_digest[:12]}…, but this run's is "
                f"{setting.corpus_digest[:12]}…; build the index again"
            )
        yield retriever.search


@contextmanager
def open_mujica(setting: Setting, path: Path, phase: str, model: str, make_agent: MakeAgent) -> Iterator[Phase]:
    """A phase of the agent with an engine and a retriever of its own: slow, so left out where there is nothing to do.

    Raises:
        UserError: see ``open_search``; or the undivided agent was given two models.
    """
    if models_of(model) and not setting.agent.split:
        raise UserError("agent.split is false, and one agent has no use for a worker_model; leave one of them out")

    def of_phase(tokenizer: Any, weights: str) -> Mujica:
        return make_agent(tokenizer, weights, phase)

    with open_search(setting) as search, open_phase(path, setting.sampling.engine, model, search, of_phase) as work:
        yield work
