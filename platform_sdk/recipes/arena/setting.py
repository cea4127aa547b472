"""What all steps of a run share: the recipe's settings, checked against the run's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import PLACING
from platform_sdk.files import read_object
from platform_sdk.recipes.arena.agent import Environment, Generator
from platform_sdk.recipes.arena.settings import AgentSpec, SamplingSpec
from platform_sdk.recipes.arena.speaker import Distribution
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge


@dataclass(frozen=True)
class Setting:
    """What all steps of a run share; ``corpus_digest`` is that of the passages that the run began with."""

    run_dir: Path
    environment: Environment
    agent: AgentSpec
    sampling: SamplingSpec
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
        return None

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
        """The setting from a recipe's plain structs, validated.

        Raises:
            UserError: the settings do not fit each other, or the run directory holds other passages.
        """
        spec = AgentSpec.model_validate(agent)
        if environment not in ("distractor", "closed-book"):
            raise UserError(f"environment: {environment} is not for ARENA, whose passages are given; use distractor")
        if environment == "closed-book" and spec.form != "direct":
            raise UserError(
                f"environment closed-book has no passages to choose from: set agent.form: direct, not {spec.form}"
            )
        if environment == "closed-book" and spec.demonstrate:
            raise UserError("environment closed-book has no worked example: remove agent.demonstrate")
        if retrieval:
            raise UserError("retrieval: ARENA searches nothing; leave it empty")
        found = read_object(run_dir / "corpus" / "digests.json").get("passages", "none")
        if found != corpus_digest:
            raise UserError(
                f"{run_dir}/corpus: holds passages {found[:12]}…, but this run's are {corpus_digest[:12]}…; "
                "run the step corpus again"
            )
        return cls(run_dir, environment, spec, SamplingSpec.model_validate(sampling), corpus_digest, seed)  # type: ignore[arg-type]

    def questions(self, part: str) -> list[Question]:
        """The questions to ``train`` or ``eval`` on.

        Raises:
            UserError: there are none, or one comes without passages where they are to be chosen from.
        """
        path = self.run_dir / "corpus" / f"questions.{part}.jsonl"
        questions = list(read_jsonl(path, Question))
        if not questions:
            raise UserError(f"{path}: there are no questions; see dataset in the recipe")
        if self.environment == "distractor":
            bare = next((q for q in questions if not q.context), None)
            if bare is not None:
                raise UserError(
                    f"{path}: question {bare.id} comes without passages; use files with contexts (a generated world: "
                    "dataset.world.context), or environment closed-book"
                )
        return questions

    def generator(
        self, distribution: Distribution, judge: Judge | None, tokenizer: Any, weights: str, phase: str
    ) -> Generator:
        """The agent under a policy's tokenizer and weights; ``phase`` names what its draws depend on."""
        return Generator(
            tokenizer=tokenizer,
            spec=self.agent,
            environment=self.environment,
            distribution=distribution,
            weights=weights,
            corpus=self.corpus_digest,
            seed=self.seed,
            phase=phase,
            judge=judge,
        )

    @property
    def training_distribution(self) -> Distribution:
        sampling = self.sampling
        return Distribution(sampling.temperature, sampling.top_p, sampling.top_k, self.agent.max_tokens)
