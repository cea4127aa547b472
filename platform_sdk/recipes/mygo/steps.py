"""What the pipeline's components call: sample a phase, score and select, evaluate.

Each step reads and writes the run directory, does nothing when its result is there already for the same
inputs, and goes on where a killed one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.evaluation import run
from platform_sdk.evaluation.answers import f1_score
from platform_sdk.evaluation.run import Evaluated
from platform_sdk.recipes.mygo.agent import Mujica, form_of, searches, undemonstrated
from platform_sdk.recipes.mygo.grammar import Form
from platform_sdk.recipes.mygo.rewards import rewards
from platform_sdk.recipes.mygo.sampling import batch_of, sample_iteration, sample_warmup, shuffled
from platform_sdk.recipes.mygo.selection import select
from platform_sdk.recipes.mygo.settings import AgentSpec, EvaluationSpec, SamplingSpec, SelectionSpec, WarmupSpec
from platform_sdk.records import Question, Rollout, digest_records, read_jsonl, write_jsonl
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.phase import Phase, open_phase
from platform_sdk.tracking.outcomes import begin, digest_of, finished, read_json, write_json

WARMUP = "warmup"
UNDEMONSTRATED = "undemonstrated.jsonl"
"""The warm-up's successes under the bare prompts: what is trained on."""


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
        """What decides a step's outcome. The place of a run does not: a moved run directory is the same run."""
        return {name: value for name, value in vars(self).items() if name != "run_dir"}

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


@dataclass(frozen=True)
class Sampled:
    """The outcome of a sampling step: where the rollouts are, their digest, and K for the next step."""

    path: Path
    digest: str
    threshold: float


@dataclass(frozen=True)
class Scored:
    """The outcome of a scoring step: the accepted rollouts, their digest, and the phase's figures."""

    path: Path
    digest: str
    figures: dict[str, Any]


def sample(
    setting: Setting,
    phase: str,
    iteration: int,
    model: str,
    threshold: float,
    selection: SelectionSpec,
    warmup: WarmupSpec,
) -> Sampled:
    """Sample the rollouts of the warm-up (``phase`` is ``warmup``) or of an iteration (from 1) of MyGO.

    Raises:
        UserError: the phase's folder holds rollouts of other weights or another corpus.
    """
    folder = setting.run_dir / phase
    inputs = digest_of(setting.inputs, phase, iteration, weights_digest(model), threshold, selection, warmup)
    path, outcome = folder / "rollouts.jsonl", folder / "sample.json"
    done = finished(outcome, inputs)
    if done is None:
        questions = _questions(setting, "train")
        if phase == WARMUP:
            questions = shuffled(questions, setting.seed, WARMUP)
        else:
            questions = batch_of(questions, iteration, selection.questions, setting.seed)
        begin(folder, inputs)
        with _open_phase(
            setting, path, phase, model, demonstrate=phase == WARMUP, distribution=setting.sampling
        ) as work:
            if phase == WARMUP:
                sample_warmup(work, questions, warmup)
                mean_reward = None
            else:
                mean_reward, threshold = sample_iteration(work, questions, threshold, selection)
            rollouts = work.ordered(questions)
            if phase == WARMUP:
                bare = partial(undemonstrated, work.engine.tokenizer, setting.agent, form_of(setting.environment))
                successes = [bare(r) for r in rollouts if r.rewards["em"] == 1]
                write_jsonl(folder / UNDEMONSTRATED, Rollout, successes)
        done = {
            "inputs": inputs,
            "iteration": iteration,
            "mean_reward": mean_reward,
            "threshold": threshold,
            "digest": digest_records(rollouts),
            "order": [q.id for q in questions],
            "tokens_sampled": sum(sum(t.agent_mask) for r in rollouts for t in r.trajectories),
            "sampling_seconds": round(work.seconds, 2),
        }
        write_json(outcome, done)
    return Sampled(path, done["digest"], done["threshold"])


def score(run_dir: Path, phase: str, selection: SelectionSpec, warmup: WarmupSpec) -> Scored:
    """Score a sampled phase, select what is learned from, and sum the phase up in ``figures.json``.

    Raises:
        UserError: the phase has not been sampled, or a rollout's recorded rewards are not those of its answer.
    """
    folder = run_dir / phase
    sampled = read_json(folder / "sample.json")
    place = {id: i for i, id in enumerate(sampled["order"])}
    rollouts = sorted(read_jsonl(folder / "rollouts.jsonl", Rollout), key=lambda r: (place[r.question.id], r.attempt))
    if digest_records(rollouts) != sampled["digest"]:
        raise UserError(
            f"{folder / 'rollouts.jsonl'}: was changed after it was sampled; its digest is not sample.json's"
        )
    for rollout in rollouts:
        if rollout.rewards != rewards(rollout):
            raise UserError(
                f"{folder / 'rollouts.jsonl'}: {rollout.id}: the recorded rewards are not those of its answer"
            )
    if phase == WARMUP:
        # In the order they were sampled in, so that the number asked for is reached as early as possible.
        rollouts.sort(key=lambda r: (r.attempt, place[r.question.id]))
        bare = {r.id: r for r in read_jsonl(folder / UNDEMONSTRATED, Rollout)}
        chosen = [bare[r.id] for r in select(rollouts, "em", 1.0, warmup.attempts)[: warmup.trajectories]]
        threshold, reward = 1.0, "em"
    else:
        threshold, reward = sampled["threshold"], selection.reward
        chosen = select(rollouts, reward, threshold, selection.accepted)
    path = folder / "selected.jsonl"
    write_jsonl(path, Rollout, chosen)
    accepted = sum(r.rewards[reward] >= threshold for r in rollouts)
    tried = Counter(r.question.id for r in rollouts)
    successful = {r.question.id for r in rollouts if r.rewards[reward] >= threshold}
    figures = {
        "phase": phase,
        "iteration": sampled["iteration"],
        "mean_reward": sampled["mean_reward"],
        "threshold": threshold,
        "rollouts": len(rollouts),
        "acceptance_rate": accepted / len(rollouts),
        "attempts_histogram": {str(n): count for n, count in sorted(Counter(tried.values()).items())},
        "questions": len(tried),
        "questions_without_accepted": len(tried) - len(successful),
        "wanted": warmup.trajectories if phase == WARMUP else None,
        "selected": len(chosen),
        "examples": sum(len(r.trajectories) for r in chosen),
        "well_formed": sum(r.rewards["well_formed"] for r in rollouts) / len(rollouts),
        "tokens_sampled": sampled["tokens_sampled"],
        "sampling_seconds": sampled["sampling_seconds"],
    }
    write_json(folder / "figures.json", figures)
    return Scored(path, digest_records(chosen), figures)


def evaluate(setting: Setting, phase: str, model: str, evaluation: EvaluationSpec) -> Evaluated:
    """Answer every evaluation question once, and write ``scores.json`` with 95 % bootstrap intervals."""
    folder = setting.run_dir / phase
    return run.evaluate(
        partial(
            _open_phase,
            setting,
            folder / "rollouts.jsonl",
            # An evaluation asks the same questions of every model with the same seeds.
            "evaluation",
            model,
            demonstrate=evaluation.demonstrate,
            distribution=SamplingSpec(temperature=evaluation.temperature, top_p=evaluation.top_p),
        ),
        _questions(setting, "eval"),
        partial(measures, form_of(setting.environment)),
        outcome=folder / run.SCORES,
        inputs=digest_of(setting.inputs, phase, weights_digest(model), evaluation),
        seed=setting.seed,
    )


def measures(form: Form, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
    """What an evaluation reports of each rollout: the answer's scores, and how it came about."""
    return [_measures(form, rollout) for rollout in rollouts]


def _measures(form: Form, rollout: Rollout) -> dict[str, float]:
    question = rollout.question
    best = f1_score(rollout.planner.answer, question.answers, question.dataset)  # type: ignore[arg-type]
    found = {
        "em": rollout.rewards["em"],
        "f1": best.f1,
        "prec": best.precision,
        "recall": best.recall,
        "answered": float(rollout.outcome == "answered"),
        "well_formed": rollout.rewards["well_formed"],
        "turns": float(sum(turn.speaker == "agent" for turn in rollout.planner.turns)),
        "searches": float(searches(form, rollout)),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }
    gold = {triple.text for triple in question.gold_triples} if form == "kg" else set(question.gold_passages)
    if gold:
        seen = {item.text if form == "kg" else item.title for t in rollout.trajectories for item in t.evidence}
        found["evidence_recall"] = len(gold & seen) / len(gold)
    return found


@contextmanager
def _open_phase(
    setting: Setting, path: Path, phase: str, model: str, *, demonstrate: bool, distribution: SamplingSpec
) -> Iterator[Phase]:
    """Bring up the engine and the retriever: the slow part, left out when a step has nothing to do."""
    from platform_sdk.retrieval.environments import build_retriever

    with build_retriever(setting.environment, setting.run_dir, setting.retrieval) as retriever:
        if retriever.corpus_digest != setting.corpus_digest:
            raise UserError(
                f"{setting.run_dir}: the retriever searches corpus {retriever.corpus_digest[:12]}…, but this run's is "
                f"{setting.corpus_digest[:12]}…; build the index again"
            )

        def make_agent(tokenizer: Any, weights: str) -> Mujica:
            return Mujica(
                tokenizer=tokenizer,
                spec=setting.agent,
                form=form_of(setting.environment),
                demonstrate=demonstrate,
                temperature=distribution.temperature,
                top_p=distribution.top_p,
                top_k=distribution.top_k,
                weights=weights,
                corpus=retriever.corpus_digest,
                seed=setting.seed,
                phase=phase,
            )

        with open_phase(path, setting.sampling.engine, model, retriever.search, make_agent) as work:
            yield work


def _questions(setting: Setting, part: str) -> list[Question]:
    questions = list(read_jsonl(setting.run_dir / "corpus" / f"questions.{part}.jsonl", Question))
    if not questions:
        raise UserError(f"{setting.run_dir}/corpus: there are no questions for {part}; see dataset in the recipe")
    return questions
